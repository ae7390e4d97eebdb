/* pull.c - rows out of the tables, and the rows that a pull makes (insert.c) before them. */
#include "server/engine/pull.h"

#include <stddef.h>

#include "proto/assert.h"
#include "proto/packed.h"

#include "server/engine/capacity.h"
#include "server/engine/engine.h"
#include "server/engine/insert.h"

/* Rows that come may take the places of others. */
static enum change change_of(const struct table *table)
{
    return embd__schema_use_floats(&table->schema.s) > 0 ? CHANGE_ROWS : CHANGE_INSERTS;
}

int pull_admit(struct op *op)
{
    const struct engine *engine = op->engine;
    if (engine->tables.n_creating == 0)
        return EMBD_OK;
    if (insert_prepare(op, &op->error) != EMBD_OK)
        return op->error.status;
    for (uint32_t i = 0; i < op->n_parts && engine->is_read; i++)
        if (insert_is_of(&op->parts[i]) &&
            engine->before_change(engine->arg, op->origin, op->parts[i].table,
                                  change_of(op->parts[i].table), &op->error) != EMBD_OK) {
            capacity_left(op);
            return op->error.status;
        }
    return EMBD_OK;
}

static void set_pull(struct store_pull *pull, const struct op_part *part, uint32_t first,
                     uint32_t count, void *out)
{
    bool has_statuses = part->table->schema.s.create_on == EMBD_CREATE_ON_PULL &&
                        insert_is_of(part); /* those of the insert stand */
    *pull = (struct store_pull){
        .in = op_keys(&part->in),
        .dtype = embd__is_packed(part->in.dtype) ? EMBD_DTYPE_F32 : part->in.dtype,
        .zero_missing = part->in.zero_missing,
        .scale = part->in.scale,
        .first = first,
        .count = count,
        .values = out,
        .statuses = has_statuses ? NULL : part->statuses,
    };
}

/* ---- in pieces ---- */

/* A call that returns before it comes back. */
struct making {
    struct store_done done; /* first */
    struct store_pull pull;
    bool is_made;
};

static void on_made(struct store_done *done, int status)
{
    struct making *making = (struct making *)(void *)done;
    EMBD_ASSERT(status == EMBD_OK);
    making->is_made = true;
}

static void make_rows(const struct op *op, const struct op_part *part, uint32_t first,
                      uint32_t count, void *out)
{
    struct making making;
    set_pull(&making.pull, part, first, count, out);
    making.done.fn = on_made;
    making.done.error.status = EMBD_OK;
    making.is_made = false;
    op->engine->tables.ops->pull(part->table->store, &making.pull, &making.done);
    EMBD_ASSERT(making.is_made);
}

#define WIDE_FLOATS (4u * EMBD_DIM_MAX) /* of rows made before they are packed: they stay cached */

static void make_packed(const struct op *op, const struct op_part *part, uint32_t first,
                        uint32_t count, uint8_t *out)
{
    float wide[WIDE_FLOATS];
    uint32_t dim = part->table->schema.s.dim, most = WIDE_FLOATS / dim;
    for (uint32_t done = 0; done < count;) {
        uint32_t n = count - done < most ? count - done : most;
        make_rows(op, part, first + done, n, wide);
        embd__rows_from_f32(out, part->in.dtype, wide, dim, n);
        out += n * embd__wire_row_bytes(part->in.dtype, dim);
        done += n;
    }
}

void pull_rows(const struct op *op, const struct op_part *part, uint32_t first, uint32_t count,
               void *out)
{
    if (embd__is_packed(part->in.dtype))
        make_packed(op, part, first, count, out);
    else
        make_rows(op, part, first, count, out);
}

/* ---- inserts, and rows as a whole ---- */

static void on_inserted(struct store_done *done, int status)
{
    struct op_call *call = (struct op_call *)(void *)done;
    struct engine_counters *counters = &call->op->engine->counters;
    const struct store_change *insert = &call->as.change;
    if (status == EMBD_OK && insert->n_inserted + insert->n_filtered > 0)
        tables_count(&call->op->engine->tables, call->part->table);
    if (status == EMBD_OK) {
        if (call->part->n_joined > 1 && insert->statuses != NULL)
            insert_tell(call->op, call->part);
        struct table *table = call->part->table;
        table->lost.evicted[table->schema.s.on_full] += insert->n_evicted;
        counters->keys_inserted += insert->n_inserted;
        counters->keys_full += insert->n_full;
        counters->keys_filtered += insert->n_filtered;
        counters->keys_evicted += insert->n_evicted;
    }
    op_returned(call, status);
}

static void insert_rows(struct op *op, struct op_part *part)
{
    struct op_call *call = op_call_new(op, part, on_inserted);
    call->as.change = insert_of(op, part);
    op->engine->tables.ops->apply(call->store, &call->as.change, &call->done);
}

/* Where the values of a part begin as f32: behind those that are sent, where a float may lie. */
static uint64_t wide_at(const struct op_part *part)
{
    uint32_t dim = part->table->schema.s.dim;
    return (part->in.n_rows * embd__wire_row_bytes(part->in.dtype, dim) + 63) / 64 * 64;
}

uint64_t pull_wide_bytes(const struct op_part *part)
{
    uint32_t dim = part->table->schema.s.dim;
    if (!embd__is_packed(part->in.dtype))
        return 0;
    return 63 + sizeof(float) * part->in.n_rows * (uint64_t)dim;
}

/* The first n_rows are there. */
static void take_made(struct op_part *part, const struct store_pull *pull, uint32_t n_rows)
{
    uint32_t dim = part->table->schema.s.dim, before = part->n_made;
    if (embd__is_packed(part->in.dtype))
        embd__rows_from_f32(
            (uint8_t *)part->values + before * embd__wire_row_bytes(part->in.dtype, dim),
            part->in.dtype, (float *)pull->values + before * (uint64_t)dim, dim, n_rows - before);
    part->n_made = n_rows;
}

static void on_pulled(struct store_done *done, int status)
{
    struct op_call *call = (struct op_call *)(void *)done;
    struct op *op = call->op;
    if (status == EMBD_OK) {
        take_made(call->part, &call->as.pull, call->part->in.n_rows);
        if (op->made != NULL && op->n_out > 1)
            op->made(op);
    }
    op_returned(call, status);
}

static void on_some_made(struct store_pull *pull, uint32_t n_rows)
{
    struct op_call *call =
        (struct op_call *)(void *)((char *)pull - offsetof(struct op_call, as.pull));
    take_made(call->part, pull, n_rows);
    if (call->op->made != NULL)
        call->op->made(call->op);
}

static bool is_sure(const struct op_call *call)
{
    return call->store == NULL || (call->done.fn == on_pulled && call->as.pull.is_sure);
}

bool pull_is_sure(struct op *op)
{
    while (op->n_sure < op->n_calls && is_sure(&op->calls[op->n_sure]))
        op->n_sure++;
    return op->n_sure == op->n_calls && op->at == 2 * op->n_parts && op->error.status == EMBD_OK;
}

static void pull_whole(struct op *op, struct op_part *part)
{
    struct op_call *call = op_call_new(op, part, on_pulled);
    bool is_packed = embd__is_packed(part->in.dtype);
    set_pull(&call->as.pull, part, 0, part->in.n_rows,
             (uint8_t *)part->values + (is_packed ? wide_at(part) : 0));
    call->as.pull.made = op->made != NULL ? on_some_made : NULL;
    op->engine->tables.ops->pull(call->store, &call->as.pull, &call->done);
}

/* op->at counts the inserts of all parts, then their pulls. */
static bool next_call(struct op *op)
{
    while (op->at < 2 * op->n_parts) {
        bool is_insert = op->at < op->n_parts;
        struct op_part *part = &op->parts[op->at++ % op->n_parts];
        if (is_insert && part->n_joined > 0) {
            insert_rows(op, part);
            return true;
        }
        if (!is_insert && pull_is_whole(op->engine) && part->in.n_rows > 0) {
            pull_whole(op, part);
            return true;
        }
    }
    return false;
}

void pull_apply(struct op *op)
{
    op_run(op, next_call);
}
