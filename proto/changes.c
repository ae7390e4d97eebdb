#include "proto/changes.h"

#include <string.h>

#include <xxhash.h>

#include "proto/dtype.h"
#include "proto/names.h"

/* ---- the question ---- */

void embd__changes_ask_write(struct msg *m, const struct changes_ask *ask)
{
    embd__msg_map(m, 7);
    embd__msg_field_str(m, "table", ask->table);
    embd__msg_field_str(m, "dtype", embd_dtype_name(ask->dtype));
    embd__msg_field_bool(m, "from_now", ask->from_now);
    embd__msg_field_bool(m, "ends", ask->ends);
    embd__msg_field_uint(m, "id", ask->id);
    embd__msg_field_uint(m, "part", ask->part);
    embd__msg_field_uint(m, "chain", ask->chain);
}

static embd_dtype read_dtype(struct fields *f)
{
    return (embd_dtype)embd__field_enum(f, "dtype", embd__dtype_names,
                                        embd__names_count(embd__dtype_names), EMBD_DTYPE_F32);
}

int embd__changes_ask_read(struct reader *r, struct changes_ask *out)
{
    struct fields f;
    *out = (struct changes_ask){.id = 0};
    embd__read_fields(&f, r, "changes");
    embd__field_name(&f, "table", out->table, sizeof out->table);
    out->dtype = read_dtype(&f);
    out->from_now = embd__field_bool(&f, "from_now", false);
    out->ends = embd__field_bool(&f, "ends", false);
    out->id = embd__field_uint(&f, "id", 0, UINT64_MAX, 0);
    out->part = embd__field_uint(&f, "part", 0, UINT64_MAX, 0);
    out->chain = embd__field_uint(&f, "chain", 0, UINT64_MAX, 0);
    return embd__fields_end(&f) != EMBD_OK ? r->error->status : embd__reader_end(r);
}

/* ---- the answer ---- */

static uint64_t slots_bytes(const struct changes_answer *answer, uint32_t n)
{
    return answer->has_slots ? n * sizeof *answer->slots : 0;
}

static uint64_t rows_bytes(const struct changes_answer *answer)
{
    return answer->n_rows * embd__value_bytes(answer->dtype, answer->dim);
}

void embd__changes_answer_write(struct msg *m, const struct changes_answer *answer)
{
    bool is_gone = answer->gone[0] != '\0';
    embd__msg_map(m, 15u + is_gone);
    embd__msg_field_uint(m, "id", answer->id);
    if (is_gone)
        embd__msg_field_str(m, "gone", answer->gone);
    embd__msg_field_bool(m, "waits", answer->waits);
    embd__msg_field_uint(m, "part", answer->part);
    embd__msg_field_uint(m, "before", answer->before);
    embd__msg_field_uint(m, "chain", answer->chain);
    embd__msg_field_uint(m, "round", answer->round);
    embd__msg_field_bool(m, "first", answer->is_first);
    embd__msg_field_bool(m, "last", answer->is_last);
    embd__msg_field_bool(m, "all", answer->has_all);
    embd__msg_field_uint(m, "step", answer->step);
    embd__msg_field_str(m, "dtype", embd_dtype_name(answer->dtype));
    embd__msg_field_uint(m, "dim", answer->dim);
    embd__msg_field_uint(m, "rows", answer->n_rows);
    embd__msg_field_uint(m, "erased", answer->n_gone);
    embd__msg_field_bool(m, "slots", answer->has_slots);
    embd__msg_bin(m, answer->keys, answer->n_rows * sizeof *answer->keys);
    embd__msg_bin(m, answer->slots, slots_bytes(answer, answer->n_rows));
    embd__msg_bin(m, answer->rows, rows_bytes(answer));
    embd__msg_bin(m, answer->gone_keys, answer->n_gone * sizeof *answer->gone_keys);
    embd__msg_bin(m, answer->gone_slots, slots_bytes(answer, answer->n_gone));
}

static void read_part(struct fields *f, struct changes_answer *out)
{
    out->part = embd__field_uint(f, "part", 0, UINT64_MAX, 0);
    out->before = embd__field_uint(f, "before", 0, UINT64_MAX, 0);
    out->chain = embd__field_uint(f, "chain", 0, UINT64_MAX, 0);
    out->round = embd__field_uint(f, "round", 0, UINT64_MAX, 0);
    out->is_first = embd__field_bool(f, "first", false);
    out->is_last = embd__field_bool(f, "last", false);
    out->has_all = embd__field_bool(f, "all", false);
    out->step = embd__field_uint(f, "step", 0, UINT64_MAX, 0);
    out->dtype = read_dtype(f);
    out->dim = (uint32_t)embd__field_uint(f, "dim", 1, EMBD_DIM_MAX, FIELD_REQUIRED);
    out->n_rows = (uint32_t)embd__field_uint(f, "rows", 0, CHANGES_ROWS, 0);
    out->n_gone = (uint32_t)embd__field_uint(f, "erased", 0, CHANGES_ROWS, 0);
    out->has_slots = embd__field_bool(f, "slots", false);
}

int embd__changes_answer_read(struct reader *r, struct changes_answer *out)
{
    struct fields f;
    *out = (struct changes_answer){.id = 0};
    embd__read_fields(&f, r, "result");
    out->id = embd__field_uint(&f, "id", 0, UINT64_MAX, FIELD_REQUIRED);
    embd__field_str(&f, "gone", out->gone, sizeof out->gone, "");
    out->waits = embd__field_bool(&f, "waits", false);
    read_part(&f, out);
    if (embd__fields_end(&f) != EMBD_OK)
        return r->error->status;
    out->keys = embd__read_bin(r, "keys", out->n_rows * sizeof *out->keys);
    out->slots = embd__read_bin(r, "slots", slots_bytes(out, out->n_rows));
    out->rows = embd__read_bin(r, "rows", rows_bytes(out));
    out->gone_keys = embd__read_bin(r, "erased keys", out->n_gone * sizeof *out->gone_keys);
    out->gone_slots = embd__read_bin(r, "erased slots", slots_bytes(out, out->n_gone));
    return embd__reader_end(r);
}

static uint64_t sum(const void *data, uint64_t bytes, uint64_t seed)
{
    return bytes == 0 ? seed : XXH3_64bits_withSeed(data, bytes, seed);
}

uint64_t embd__changes_chain(const struct changes_answer *answer)
{
    const uint64_t head[] = {
        answer->id,      answer->part,  answer->before,  answer->round,
        answer->step,    answer->dim,   answer->n_rows,  answer->n_gone,
        answer->is_last, answer->dtype, answer->has_all, answer->is_first,
    };
    uint64_t chain = XXH3_64bits_withSeed(head, sizeof head, answer->before);
    chain = sum(answer->keys, answer->n_rows * sizeof *answer->keys, chain);
    chain = sum(answer->slots, slots_bytes(answer, answer->n_rows), chain);
    chain = sum(answer->rows, rows_bytes(answer), chain);
    chain = sum(answer->gone_keys, answer->n_gone * sizeof *answer->gone_keys, chain);
    return sum(answer->gone_slots, slots_bytes(answer, answer->n_gone), chain);
}
