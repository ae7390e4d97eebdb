/* keyed.c - see keyed.h. */
#include "proto/keyed.h"

#include <string.h>

#include "proto/dtype.h"
#include "proto/names.h"
#include "proto/schema.h"

void embd__keyed_fields_write(struct msg *m, const struct keyed_fields *fields)
{
    bool has_number = fields->number.sequence > 0;
    uint32_t n_more = 0u + has_number + (fields->step > 0) + (fields->seconds > 0) +
                      fields->is_foreign + (fields->placement > 0);
    embd__msg_map(m, 2u + fields->has_states + n_more);
    embd__msg_field_str(m, "table", fields->table);
    embd__msg_field_uint(m, "keys", fields->n_keys);
    if (fields->has_states)
        embd__msg_field_bool(m, "states", true);
    if (has_number)
        embd__push_number_write(m, &fields->number);
    if (fields->step > 0)
        embd__msg_field_uint(m, "step", fields->step);
    if (fields->seconds > 0)
        embd__msg_field_uint(m, "seconds", fields->seconds);
    if (fields->is_foreign)
        embd__msg_field_bool(m, "foreign", true);
    if (fields->placement > 0)
        embd__msg_field_uint(m, "placement", fields->placement);
}

static void read_fields(struct fields *f, struct keyed_fields *out)
{
    *out = (struct keyed_fields){.n_keys = 0};
    embd__field_str(f, "table", out->table, sizeof out->table, NULL);
    out->n_keys = (uint32_t)embd__field_uint(f, "keys", 0, LIMIT_KEYS, FIELD_REQUIRED);
    out->has_states = embd__field_bool(f, "states", false);
    embd__request_placement_read(f);
}

int embd__get_fields_read(struct reader *r, struct keyed_fields *out)
{
    struct fields f;
    embd__read_fields(&f, r, "get");
    read_fields(&f, out);
    return embd__fields_end(&f);
}

static int read_put(struct reader *r, bool is_record, struct keyed_fields *out)
{
    struct fields f;
    embd__read_fields(&f, r, "put");
    read_fields(&f, out);
    if (embd__field_has(&f, "writer"))
        embd__push_number_read(&f, &out->number);
    out->step = embd__field_uint(&f, "step", 1, LIMIT_STEP, 0);
    out->seconds = is_record ? embd__field_uint(&f, "seconds", 1, UINT64_MAX - 1, 0) : 0;
    out->is_foreign = is_record && embd__field_bool(&f, "foreign", false);
    return embd__fields_end(&f);
}

int embd__put_fields_read(struct reader *r, struct keyed_fields *out)
{
    return read_put(r, false, out);
}

int embd__put_record_read(struct reader *r, struct keyed_fields *out)
{
    return read_put(r, true, out);
}

/* ---- bins ---- */

static bool has_slots(const embd_schema *schema)
{
    return schema->partition == EMBD_PARTITION_SLOT;
}

static uint64_t row_bytes(const embd_schema *schema)
{
    return embd__value_bytes(schema->dtype, schema->dim);
}

void embd__get_bins_write(struct msg *m, const embd_schema *schema, const struct row_block *block)
{
    uint64_t n = block->n_rows;
    embd__msg_bin(m, block->keys, n * sizeof *block->keys);
    if (has_slots(schema))
        embd__msg_bin(m, block->slots, n * sizeof *block->slots);
}

void embd__put_bins_write(struct msg *m, const embd_schema *schema, const struct row_block *block)
{
    uint64_t n = block->n_rows;
    embd__get_bins_write(m, schema, block);
    embd__msg_bin(m, block->rows, n * row_bytes(schema));
    if (block->states != NULL && embd__schema_state_floats(schema) > 0)
        embd__msg_bin(m, block->states,
                      n * embd__schema_state_floats(schema) * sizeof *block->states);
}

static void read_keys(struct reader *r, const embd_schema *schema, uint32_t n,
                      struct row_block *out)
{
    memset(out, 0, sizeof *out);
    out->n_rows = n;
    out->keys = embd__read_bin(r, "keys", (uint64_t)n * sizeof *out->keys);
    if (has_slots(schema))
        out->slots = embd__read_bin(r, "slots", (uint64_t)n * sizeof *out->slots);
}

int embd__get_bins_read(struct reader *r, const embd_schema *schema, uint32_t n,
                        struct row_block *out)
{
    read_keys(r, schema, n, out);
    return embd__reader_end(r);
}

int embd__put_bins_read(struct reader *r, const embd_schema *schema, uint32_t n, bool has_states,
                        struct row_block *out)
{
    uint64_t state_floats = embd__schema_state_floats(schema);
    read_keys(r, schema, n, out);
    out->rows = embd__read_bin(r, "rows", n * row_bytes(schema));
    if (has_states && state_floats > 0)
        out->states = embd__read_bin(r, "states", n * state_floats * sizeof *out->states);
    return embd__reader_end(r);
}

/* ---- answers ---- */

#define STATE_FLOATS_MOST (4u * EMBD_DIM_MAX + 64u)

static uint64_t rows_bytes(const struct get_answer *answer)
{
    return (uint64_t)answer->n_keys * embd__value_bytes(answer->dtype, answer->dim);
}

static uint64_t states_bytes(const struct get_answer *answer)
{
    return (uint64_t)answer->n_keys * answer->n_states * sizeof *answer->states;
}

uint64_t embd__get_answer_bytes(const struct get_answer *answer)
{
    return answer->n_keys + rows_bytes(answer) + states_bytes(answer);
}

void embd__get_answer_write(struct msg *m, const struct get_answer *answer)
{
    embd__msg_map(m, 4);
    embd__msg_field_uint(m, "keys", answer->n_keys);
    embd__msg_field_uint(m, "dim", answer->dim);
    embd__msg_field_str(m, "dtype", embd_dtype_name(answer->dtype));
    embd__msg_field_uint(m, "states", answer->n_states);
    embd__msg_bin(m, answer->statuses, answer->n_keys);
    embd__msg_bin(m, answer->rows, rows_bytes(answer));
    if (answer->n_states > 0)
        embd__msg_bin(m, answer->states, states_bytes(answer));
}

int embd__get_answer_read(struct reader *r, struct get_answer *out)
{
    struct fields f;
    memset(out, 0, sizeof *out);
    embd__read_fields(&f, r, "result");
    out->n_keys = (uint32_t)embd__field_uint(&f, "keys", 0, LIMIT_KEYS, FIELD_REQUIRED);
    out->dim = (uint32_t)embd__field_uint(&f, "dim", 1, EMBD_DIM_MAX, FIELD_REQUIRED);
    out->dtype = (embd_dtype)embd__field_enum(&f, "dtype", embd__dtype_names,
                                              embd__names_count(embd__dtype_names), -1);
    out->n_states = (uint32_t)embd__field_uint(&f, "states", 0, STATE_FLOATS_MOST, FIELD_REQUIRED);
    if (embd__fields_end(&f) != EMBD_OK)
        return r->error->status;
    out->statuses = embd__read_bin(r, "statuses", out->n_keys);
    out->rows = embd__read_bin(r, "rows", rows_bytes(out));
    if (out->n_states > 0)
        out->states = embd__read_bin(r, "states", states_bytes(out));
    return embd__reader_end(r);
}

void embd__list_fields_write(struct msg *m, const struct list_fields *fields)
{
    embd__msg_map(m, fields->cursor == 0 ? 2 : 4);
    embd__msg_field_str(m, "table", fields->table);
    embd__msg_field_uint(m, "keys", fields->n_most);
    if (fields->cursor == 0)
        return;
    embd__msg_field_uint(m, "cursor", fields->cursor);
    embd__msg_field_uint(m, "scan", fields->scan);
}

int embd__list_fields_read(struct reader *r, struct list_fields *out)
{
    struct fields f;
    embd__read_fields(&f, r, "keys");
    embd__field_str(&f, "table", out->table, sizeof out->table, NULL);
    out->n_most = (uint32_t)embd__field_uint(&f, "keys", 1, LIST_KEYS_MAX, LIST_KEYS);
    out->cursor = embd__field_uint(&f, "cursor", 0, UINT64_MAX, 0);
    out->scan = embd__field_uint(&f, "scan", 0, UINT64_MAX, 0);
    if (embd__fields_end(&f) != EMBD_OK)
        return r->error->status;
    return embd__reader_end(r);
}

void embd__list_answer_write(struct msg *m, const struct list_answer *answer)
{
    embd__msg_map(m, 4);
    embd__msg_field_uint(m, "keys", answer->n_keys);
    embd__msg_field_uint(m, "next", answer->next);
    embd__msg_field_bool(m, "done", answer->is_done);
    embd__msg_field_uint(m, "scan", answer->scan);
    embd__msg_bin(m, answer->keys, answer->n_keys * sizeof *answer->keys);
    if (answer->slots != NULL)
        embd__msg_bin(m, answer->slots, answer->n_keys * sizeof *answer->slots);
}

int embd__list_answer_read(struct reader *r, bool has_slots, struct list_answer *out)
{
    struct fields f;
    memset(out, 0, sizeof *out);
    embd__read_fields(&f, r, "result");
    out->n_keys = (uint32_t)embd__field_uint(&f, "keys", 0, LIST_KEYS_MAX, FIELD_REQUIRED);
    out->next = embd__field_uint(&f, "next", 0, UINT64_MAX, FIELD_REQUIRED);
    out->is_done = embd__field_bool(&f, "done", false);
    out->scan = embd__field_uint(&f, "scan", 0, UINT64_MAX, FIELD_REQUIRED);
    if (embd__fields_end(&f) != EMBD_OK)
        return r->error->status;
    out->keys = embd__read_bin(r, "keys", out->n_keys * sizeof *out->keys);
    if (has_slots)
        out->slots = embd__read_bin(r, "slots", out->n_keys * sizeof *out->slots);
    return embd__reader_end(r);
}

void embd__put_answer_write(struct msg *m, uint64_t n_inserted, bool is_again)
{
    embd__msg_map(m, 1u + is_again);
    embd__msg_field_uint(m, "inserted", n_inserted);
    if (is_again)
        embd__msg_field_bool(m, "again", true);
}

int embd__put_answer_read(struct reader *r, uint64_t *n_inserted_out)
{
    struct fields f;
    embd__read_fields(&f, r, "result");
    *n_inserted_out = embd__field_uint(&f, "inserted", 0, UINT64_MAX, FIELD_REQUIRED);
    embd__field_bool(&f, "again", false);
    if (embd__fields_end(&f) != EMBD_OK)
        return r->error->status;
    return embd__reader_end(r);
}
