/* replace_record.c - see replace_record.h.
 *
 * A record without `phase` is the change, as earlier versions wrote it. One with `shards` has a map
 * of keys to shards, and no tables. */
#include "server/journal/replace_record.h"

#include "proto/placement_wire.h"
#include "server/engine/staged.h"
#include "server/journal/table_record.h"

static const char *const phase_names[REPLACE_STEPS] = {"apply", "prepare", "withdraw", "decided",
                                                       "placed"};

/* ---- writing ---- */

static bool has_streams(enum replace_step step)
{
    return step == REPLACE_DONE || step == REPLACE_PREPARED;
}

void replace_record_write(struct msg *m, const struct op_replace *replace)
{
    const struct rollback *back = &replace->back[1];
    bool with_phase = replace->step != REPLACE_DONE, with_streams = has_streams(replace->step),
         with_place = replace->place != NULL;
    embd__msg_map(m, 1u + with_phase + (replace->decision != 0) + 2u * with_streams +
                         2u * with_place + replace->is_moving);
    embd__msg_field_uint(m, "id", replace->id);
    if (with_phase)
        embd__msg_field_str(m, "phase", phase_names[replace->step]);
    if (replace->decision != 0)
        embd__msg_field_uint(m, "decision", replace->decision);
    if (with_place) {
        embd__msg_field_uint(m, "shards", replace->place->n_shards);
        embd__placement_write(m, replace->place);
    }
    if (replace->is_moving)
        embd__msg_field_bool(m, "moving", true);
    if (!with_streams)
        return;
    embd__msg_field_uint(m, "writers", back->n);
    embd__msg_field_bool(m, "all", back->brings_unknown);
    embd__msg_bin(m, back->list, back->n * sizeof *back->list);
}

/* ---- reading ---- */

/* All of its tables are left out: nothing is staged. What shard 0 decided stays known. */
static int leave_out(struct op *op)
{
    struct op_replace *replace = &op->as.replace;
    bool is_decided = replace->step == REPLACE_DONE && replace->decision != 0;
    op->kind = is_decided ? OP_PREPARE : OP_PULL;
    replace->step = REPLACE_DECIDED;
    return EMBD_OK;
}

static int read_streams(struct op *op, struct reader *r, uint64_t n, bool brings_unknown,
                        struct push_stream **out)
{
    const uint8_t *bytes = embd__read_bin(r, "writers", n * STREAM_BYTES);
    if (embd__reader_end(r) != EMBD_OK)
        return r->error->status;
    *out = embd__streams_take(bytes, n, true, r->error);
    op->as.replace.back[1] =
        (struct rollback){.list = *out, .n = (uint32_t)n, .brings_unknown = brings_unknown};
    return r->error->status;
}

static void read_place(struct op_replace *replace, struct fields *f, struct placement *out)
{
    uint32_t n_shards = (uint32_t)embd__field_uint(f, "shards", 1, LIMIT_SHARDS, 0);
    if (n_shards == 0 || embd__placement_read(f, n_shards, out) != EMBD_OK)
        return;
    replace->place = out;
}

/* Those that a shard or its loader has, and no journal alone. */
static bool has_id(enum replace_step step)
{
    return step != REPLACE_DECIDED && step != REPLACE_PLACED;
}

static int read_fields(struct op_replace *replace, struct reader *r, uint64_t *n_out, bool *all_out,
                       struct placement *place_out)
{
    struct fields f;
    embd__read_fields(&f, r, "table_replace");
    int phase = embd__field_enum(&f, "phase", phase_names, REPLACE_STEPS, REPLACE_DONE);
    replace->step = (enum replace_step)phase;
    replace->id = embd__field_uint(&f, "id", has_id(replace->step), UINT64_MAX, FIELD_REQUIRED);
    replace->decision = embd__field_uint(&f, "decision", 1, UINT64_MAX, 0);
    if (has_streams(replace->step)) {
        *n_out = embd__field_uint(&f, "writers", 0, 2 * PUSHER_STREAMS_MAX, FIELD_REQUIRED);
        *all_out = embd__field_bool(&f, "all", false);
    }
    read_place(replace, &f, place_out);
    if (replace->step == REPLACE_PLACED)
        replace->is_moving = embd__field_bool(&f, "moving", false);
    if (embd__fields_end(&f) == EMBD_OK && replace->step == REPLACE_PLACED &&
        replace->place == NULL)
        embd__error_set(r->error, EMBD_MALFORMED, "table_replace: a record has no map of keys");
    return r->error->status;
}

int replace_record_look(struct reader *r, struct op_replace *out, struct placement *place_out)
{
    uint64_t n;
    bool all;
    *out = (struct op_replace){.id = 0};
    return read_fields(out, r, &n, &all, place_out);
}

int replace_record_read(struct op *op, struct reader *r, struct push_stream **streams_out,
                        struct placement *place_out)
{
    struct tables *tables = &op->engine->tables;
    struct op_replace *replace = &op->as.replace;
    uint64_t n = 0;
    bool brings_unknown = false;
    *replace = (struct op_replace){.id = 0};
    if (read_fields(replace, r, &n, &brings_unknown, place_out) != EMBD_OK)
        return r->error->status;
    op->kind = replace->step == REPLACE_DONE ? OP_REPLACE : OP_PREPARE;
    if (!has_streams(replace->step))
        return embd__reader_end(r);
    if (read_streams(op, r, n, brings_unknown, streams_out) != EMBD_OK)
        return r->error->status;
    if (replace->step == REPLACE_DONE)
        table_record_replaced(tables, replace->id);
    bool has_tables = tables->n_left_out == 0 || staged_set(tables, replace->id) != NULL;
    return has_tables || replace->place != NULL ? EMBD_OK : leave_out(op);
}
