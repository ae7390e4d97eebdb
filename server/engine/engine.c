/* engine.c - an operation is admitted, and applied. */
#include "server/engine/engine.h"

#include <string.h>

#include "server/engine/apply.h"
#include "server/engine/pull.h"
#include "server/engine/push.h"
#include "server/engine/capacity.h"
#include "server/engine/staged.h"

void engine_init(struct engine *engine, const struct store_ops *ops)
{
    memset(engine, 0, sizeof *engine);
    tables_init(&engine->tables, ops);
}

void engine_fini(struct engine *engine)
{
    rounds_fini(&engine->rounds);
    jobs_fini(&engine->jobs);
    pushers_fini(&engine->pushers);
    pushers_fini(&engine->journaled_pushers);
    sources_fini(&engine->sources);
    sources_fini(&engine->journaled_sources);
    tables_fini(&engine->tables);
    free(engine->behind);
    prepared_fini(&engine->prepared);
}

/* ---- making way ---- */

static int make_way(const struct op *op, const struct table *table, enum change change,
                    struct embd__error *e)
{
    const struct engine *engine = op->engine;
    if (change == CHANGE_DROP && engine->before_drop != NULL)
        engine->before_drop(engine->arg, table);
    if (!engine->is_read)
        return EMBD_OK;
    return engine->before_change(engine->arg, op->origin, table, change, e);
}

/* The tables whose places they take. */
static int make_way_for_staged(const struct op *op, struct embd__error *e)
{
    const struct tables *tables = &op->engine->tables;
    const struct staged *staged = staged_set(tables, op->as.replace.id);
    for (uint32_t i = 0; staged != NULL && i < staged->n; i++) {
        const struct table *old = tables_by_name(tables, staged->list[i]->schema.s.name);
        if (old != NULL && make_way(op, old, CHANGE_DROP, e) != EMBD_OK)
            return e->status;
    }
    return EMBD_OK;
}

/* A journal's base may be reading them. */
static int end_staged(const struct op *op, struct embd__error *e)
{
    const struct staged *staged = staged_set(&op->engine->tables, op->as.unstaged);
    for (uint32_t i = 0; staged != NULL && i < staged->n; i++)
        if (make_way(op, staged->list[i], CHANGE_DROP, e) != EMBD_OK)
            return e->status;
    return EMBD_OK;
}

/* A replay drops such a table: no record has its rows from now on. */
static bool leaves_journal(const struct op *op)
{
    const struct op_table_set *set = &op->as.set;
    const embd_durability *to = embd__schema_change_durability(&set->change);
    return op->engine->is_replaying && set->table != NULL && table_is_journaled(set->table) &&
           to != NULL && *to == EMBD_DURABILITY_SNAPSHOT;
}

int engine_ask(const struct op *op, struct embd__error *e)
{
    if (op->engine->before_change == NULL)
        return EMBD_OK;
    if (op->kind == OP_TABLE_DROP)
        return make_way(op, op->as.dropped, CHANGE_DROP, e);
    if (op->kind == OP_REPLACE)
        return make_way_for_staged(op, e);
    if (op->kind == OP_UNSTAGE)
        return end_staged(op, e);
    if (op->kind == OP_LOAD)
        return make_way(op, op->as.load.table, CHANGE_ROWS, e);
    if (op->kind == OP_PUT)
        return make_way(op, op->as.put.table, CHANGE_ROWS, e);
    if (op->kind == OP_TABLE_SET && leaves_journal(op))
        return make_way(op, op->as.set.table, CHANGE_DROP, e);
    if (op->kind == OP_TABLE_SET && op->as.set.table != NULL &&
        embd__schema_change_shows(&op->as.set.change))
        return make_way(op, op->as.set.table, CHANGE_ROWS, e);
    for (uint32_t i = 0; i < op->n_parts && (op->kind == OP_PUSH || op->kind == OP_ERASE); i++)
        if (make_way(op, op->parts[i].table, CHANGE_ROWS, e) != EMBD_OK)
            return e->status;
    return EMBD_OK;
}

/* ---- admitting and applying ---- */

int engine_admit(struct op *op)
{
    const struct op_streams *streams = &op->as.streams;
    if (op->kind == OP_PULL)
        return pull_admit(op);
    if (op->kind == OP_PUSH && (push_admit(op) != EMBD_OK || op->is_again))
        return op->error.status;
    if (op->kind == OP_PUT && (put_admit(op) != EMBD_OK || op->is_again))
        return op->error.status;
    if (op->kind == OP_TABLE_SET && tables_check_set(&op->engine->tables, op->as.set.table,
                                                     &op->as.set.change, &op->error) != EMBD_OK)
        return op->error.status;
    if (op->kind == OP_STREAMS && !streams->may_replace &&
        pushers_check_room(op_pushers(op), streams->list, streams->n, &op->error) != EMBD_OK)
        return op->error.status;
    bool needs_tables = op->kind == OP_REPLACE ||
                        (op->kind == OP_PREPARE && op->as.replace.step == REPLACE_PREPARED);
    if (needs_tables && apply_check_replace(op, &op->error) != EMBD_OK)
        return op->error.status;
    return engine_make_way(op, &op->error);
}

void engine_apply(struct op *op)
{
    static void (*const at_once[])(struct op *) = {
        [OP_TABLE_CREATE] = apply_create,
        [OP_TABLE_DROP] = apply_drop,
        [OP_ERASE] = apply_erase,
        [OP_LOAD] = apply_load,
        [OP_PUT] = apply_put,
        [OP_STREAM_OPEN] = apply_open_stream,
        [OP_STREAMS] = apply_streams,
        [OP_STAGE] = apply_stage,
        [OP_UNSTAGE] = apply_unstage,
        [OP_REPLACE] = apply_replace,
        [OP_PREPARE] = apply_prepared,
    };
    if (op->kind == OP_PULL) {
        pull_apply(op);
    } else if (op->kind == OP_PUSH) {
        push_apply(op);
    } else if (op->kind == OP_TABLE_SET) {
        apply_set(op);
    } else {
        at_once[op->kind](op);
        op_end(op);
    }
}
