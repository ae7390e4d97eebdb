/* world.c - see world.h. */
#include "tests/engine/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "server/engine/apply.h"
#include "server/store/slice.h"
#include "tests/server/deferred_store.h"

struct seen seen;

uint32_t below(struct world *w, uint32_t n)
{
    return dice_below(&w->dice, n);
}

bool one_in(struct world *w, uint32_t n)
{
    return below(w, n) == 0;
}

void world_open(struct world *w, const struct store_ops *ops, uint64_t seed)
{
    store_slice = 16; /* columns: a few rows, or keys of a push */
    *w = (struct world){.dice = {seed}, .ops = ops, .now_ns = 1, .seconds = 4};
    engine_init(&w->engine, ops);
    records_open(&w->records);
    copy_open(&w->copy);
}

void world_close(struct world *w)
{
    for (uint32_t i = 0; i < TABLES; i++)
        if (world_has(w, i))
            model_free(w->tables[i].model);
    world_unstage(w);
    copy_close(&w->copy);
    records_close(&w->records);
    engine_fini(&w->engine);
}

/* ---- tables and streams ---- */

void world_unstage(struct world *w)
{
    for (uint32_t i = 0; i < TABLES; i++) {
        if (w->staged[i].model != NULL)
            model_free(w->staged[i].model);
        w->staged[i] = (struct pair){.model = NULL};
    }
}

bool world_has(const struct world *w, uint32_t table)
{
    return w->tables[table].model != NULL;
}

uint32_t world_draw_table(struct world *w)
{
    uint32_t first = below(w, TABLES);
    for (uint32_t i = 0; i < TABLES; i++)
        if (world_has(w, (first + i) % TABLES))
            return (first + i) % TABLES;
    return TABLES;
}

struct table *world_table(const struct world *w, uint32_t table)
{
    struct embd__error e = {.status = EMBD_OK};
    struct table *found = tables_find(&w->engine.tables, w->tables[table].schema.s.name, &e);
    assert_non_null(found);
    return found;
}

bool world_is_journaled(const struct world *w, uint32_t table)
{
    return w->tables[table].schema.s.durability != EMBD_DURABILITY_SNAPSHOT;
}

struct push_number stream_id(uint32_t i)
{
    return (struct push_number){.high = 7 + i / 3, .low = UINT64_MAX - i / 2, .stream = i};
}

/* ---- operations ---- */

void world_tell_time(struct world *w, const struct op *op)
{
    for (uint32_t i = 0; i < TABLES; i++)
        if (w->tables[i].model != NULL)
            w->tables[i].model->seconds = op->seconds;
}

bool world_admit(struct world *w, struct op *op, struct written **record_out)
{
    embd_durability durability;
    *record_out = NULL;
    op->now_ns = w->now_ns++;
    w->seconds += below(w, 4);
    w->seconds -= one_in(w, 3);
    op->seconds = w->seconds;
    world_tell_time(w, op);
    seen.operations++;
    if (op->error.status != EMBD_OK || op_durability(op, &durability, &op->error) != EMBD_OK ||
        engine_admit(op) != EMBD_OK || op->is_again)
        return false;
    if (op->kind == OP_PULL || durability == EMBD_DURABILITY_SNAPSHOT)
        return true;
    if ((op->kind == OP_TABLE_CREATE || op->kind == OP_STAGE) &&
        apply_prepare(op, &op->error) != EMBD_OK)
        return false;
    *record_out = records_write(&w->records, op);
    seen.recorded[op->kind]++;
    return true;
}

/* An operation may be freed by its `done`, so what is looked at is not in it. */
static uint32_t n_ended;

static void on_done(struct op *op)
{
    (void)op;
    n_ended++;
}

/* The next operation comes at any place of what pushes left to do. */
static void sweep(struct world *w)
{
    struct tables *tables = &w->engine.tables;
    seen.swept += tables->n_swept;
    for (uint32_t n = below(w, 4); n > 0 && tables->n_swept > 0; n--)
        tables_sweep(tables);
}

void world_apply(struct world *w, struct op *op, struct written *record)
{
    uint32_t n_before = n_ended;
    op->done = on_done;
    engine_apply(op);
    while (n_ended == n_before)
        if (!deferred_run())
            op_wait(op);
    assert_int_equal(n_ended, n_before + 1);
    assert_int_equal(w->engine.n_in_flight, 0);
    sweep(w);
    if (record == NULL)
        return;
    record->status = op->error.status;
    if (op->kind == OP_TABLE_CREATE && !op->created)
        records_drop_last(&w->records); /* as a commit: such a record is not written */
    else
        copy_replay(&w->copy, &w->records, record);
}

void world_submit(struct world *w, struct op *op)
{
    struct written *record;
    if (world_admit(w, op, &record))
        world_apply(w, op, record);
}
