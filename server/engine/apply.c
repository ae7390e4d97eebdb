/* apply.c - the operations that end before engine_apply returns: tables that come and go, rows that
 * are erased or loaded, streams. */
#include "server/engine/apply.h"

#include <stddef.h>

#include "server/engine/engine.h"
#include "server/engine/foreign.h"
#include "server/engine/joining.h"
#include "server/engine/rounds/went_back.h"
#include "server/engine/staged.h"

/* ---- tables ---- */

static int prepare_create(struct tables *tables, struct op_create *create, struct embd__error *e)
{
    if (tables_prepare(tables, &create->schema.s, create->id, e) == EMBD_OK)
        create->id = tables_id_of(tables, create->schema.s.name);
    return e->status;
}

static int prepare_stage(struct tables *tables, struct op_stage *stage, struct embd__error *e)
{
    if (staged_prepare(tables, stage->id, &stage->schema.s, stage->table, e) == EMBD_OK)
        stage->table = tables->staged_prepared->id;
    return e->status;
}

int apply_prepare(struct op *op, struct embd__error *e)
{
    struct tables *tables = &op->engine->tables;
    return op->kind == OP_STAGE ? prepare_stage(tables, &op->as.stage, e)
                                : prepare_create(tables, &op->as.create, e);
}

void apply_create(struct op *op)
{
    const struct op_create *create = &op->as.create;
    tables_create(&op->engine->tables, &create->schema.s, create->id, &op->table, &op->created,
                  &op->error);
}

static void drop(struct engine *engine, struct table *table)
{
    pushers_drop_table(&engine->pushers, table->number);
    pushers_drop_table(&engine->journaled_pushers, table->number);
    tables_drop(&engine->tables, table);
}

void apply_drop(struct op *op)
{
    drop(op->engine, op->as.dropped);
    op->as.dropped = NULL;
}

/* The table's records in the journal are of no use any more. */
static void set_apart(struct engine *engine, struct op_table_set *set)
{
    set->id = set->table->id;
    foreign_lose_table(engine, set->table->number);
    drop(engine, set->table);
    set->table = NULL;
    joining_set_apart(&engine->tables, set->id, set->name);
}

static struct engine *engine_of(struct setting_owner *owner)
{
    return (struct engine *)(void *)((char *)owner - offsetof(struct engine, set));
}

/* Pulls that came meanwhile are answered with the rows that go. */
static bool make_way(struct setting_owner *owner, const struct table *table)
{
    struct engine *engine = engine_of(owner);
    struct embd__error e = {.status = EMBD_OK};
    return !engine->is_read || engine->before_change(engine->arg, engine->set.op->origin, table,
                                                     CHANGE_ROWS, &e) == EMBD_OK;
}

static void on_set(struct setting_owner *owner, uint32_t n_gone, const struct embd__error *e)
{
    struct engine *engine = engine_of(owner);
    struct op *op = engine->set.op;
    struct op_table_set *set = &op->as.set;
    engine->set.is_on = false;
    engine->counters.keys_evicted += n_gone;
    op->n_applied = n_gone > 0;
    op->n_out = 0;
    op->in_flight = false;
    if (e->status != EMBD_OK)
        op->error = *e;
    if (engine->is_replaying && engine->set.was_journaled && !table_is_journaled(set->table))
        set_apart(engine, set);
    op_end(op);
}

void apply_set(struct op *op)
{
    struct op_table_set *set = &op->as.set;
    struct engine *engine = op->engine;
    if (set->table == NULL) {
        joining_set_apart(&engine->tables, set->id, set->name);
        op_end(op);
        return;
    }
    engine->set.owner = (struct setting_owner){.make_way = make_way, .ended = on_set};
    engine->set.is_on = true;
    engine->set.was_journaled = table_is_journaled(set->table);
    engine->set.op = op;
    op->n_out = 1;
    op->in_flight = true;
    tables_begin_set(&engine->tables, set->table, &set->change, &engine->set.owner);
}

void apply_stage(struct op *op)
{
    const struct op_stage *stage = &op->as.stage;
    staged_add(&op->engine->tables, stage->id, &stage->schema.s, stage->table, &op->error);
}

/* Of a set that is not there any more, nothing. */
void apply_unstage(struct op *op)
{
    staged_drop(&op->engine->tables, op->as.unstaged);
    if (op->engine->prepared.id == op->as.unstaged)
        prepared_fini(&op->engine->prepared);
}

/* The tables of a kind that there are. */
static struct table_set all_of(const struct tables *tables, bool is_journaled)
{
    struct table_set all = {.may_have_others = 0};
    for (uint32_t i = 0; i < tables->n; i++)
        if (table_is_journaled(tables->by_name[i]) == is_journaled)
            table_set_add(&all, tables->by_name[i]->number);
    return all;
}

int apply_check_replace(struct op *op, struct embd__error *e)
{
    struct engine *engine = op->engine;
    struct op_replace *replace = &op->as.replace;
    if (replace->place != NULL && staged_set(&engine->tables, replace->id) == NULL)
        return EMBD_OK;
    if (staged_check(&engine->tables, replace->id, e) != EMBD_OK ||
        pushers_check_rollback(&engine->pushers, &replace->back[0], e) != EMBD_OK)
        return e->status;
    return pushers_check_rollback(&engine->journaled_pushers, &replace->back[1], e);
}

/* Jobs that push to it by rounds, or are named as it is: what their workers would push is of rows
 * that are not there any more. */
static void end_jobs(struct engine *engine, const struct table *table)
{
    for (uint32_t i = 0; i < JOBS_MAX; i++) {
        struct job *job = engine->jobs.jobs[i];
        if (job != NULL && !job->is_over &&
            (went_back_is_named(table, job->name) ||
             rounds_push_to(&engine->rounds, job, table->id)))
            jobs_end(&engine->jobs, job);
    }
}

static void go_back(struct engine *engine, const struct table_set *replaced)
{
    for (uint32_t i = 0; i < engine->tables.n; i++) {
        struct table *table = engine->tables.by_name[i];
        if (!table_set_has(replaced, table->number))
            continue;
        went_back_note(engine, table);
        end_jobs(engine, table);
    }
}

static void replace_tables(struct op *op)
{
    struct engine *engine = op->engine;
    const struct rollback *back = op->as.replace.back;
    struct pushers *const pushers[2] = {&engine->pushers, &engine->journaled_pushers};
    struct table_set replaced[2];
    staged_replace(&engine->tables, op->as.replace.id, replaced);
    const struct table_set both = table_set_both(&replaced[0], &replaced[1]);
    if (op->as.replace.place == NULL) /* else they are those of a shard that becomes a member */
        go_back(engine, &both);
    for (int kind = 0; kind < 2; kind++) {
        const struct rolled_tables tables = {
            .replaced = both, .own = replaced[kind], .all = all_of(&engine->tables, kind == 1)};
        pushers_roll_back(pushers[kind], &back[kind], &tables, op->now_ns);
    }
}

static void place(struct engine *engine, const struct op_replace *replace)
{
    struct engine_placed *placed = &engine->placed;
    placed->is_set = true;
    placed->decision = replace->decision;
    placed->map = *replace->place;
    if (engine->on_placed != NULL)
        engine->on_placed(engine->arg, replace);
}

void apply_replace(struct op *op)
{
    struct engine *engine = op->engine;
    if (apply_check_replace(op, &op->error) != EMBD_OK)
        return;
    const struct op_replace *replace = &op->as.replace;
    if (replace->place == NULL || staged_set(&engine->tables, replace->id) != NULL)
        replace_tables(op); /* with a map those of a shard that becomes a member */
    if (replace->place != NULL)
        place(engine, replace);
    if (op->as.replace.decision != 0)
        engine->decided = op->as.replace.decision;
    if (engine->prepared.id == op->as.replace.id)
        prepared_fini(&engine->prepared); /* `back` may have been its lists, `place` its map */
}

static void prepare(struct engine *engine, const struct op_replace *replace, struct embd__error *e)
{
    const struct prepared wanted = {.id = replace->id,
                                    .decision = replace->decision,
                                    .back = {replace->back[0], replace->back[1]},
                                    .place = (struct placement *)(uintptr_t)replace->place};
    struct prepared copy;
    if (prepared_copy(&wanted, &copy, e) != EMBD_OK)
        return;
    prepared_fini(&engine->prepared);
    engine->prepared = copy;
}

void apply_prepared(struct op *op)
{
    struct engine *engine = op->engine;
    const struct op_replace *replace = &op->as.replace;
    if (replace->step == REPLACE_PREPARED)
        prepare(engine, replace, &op->error);
    else if (replace->step == REPLACE_DECIDED)
        engine->decided = replace->decision;
    else if (replace->step == REPLACE_PLACED)
        place(engine, replace);
    else if (engine->prepared.decision == replace->decision)
        prepared_fini(&engine->prepared);
}

/* ---- rows ---- */

void apply_erase(struct op *op)
{
    struct engine *engine = op->engine;
    for (uint32_t i = 0; i < op->n_parts; i++) {
        struct op_part *part = &op->parts[i];
        struct store_erase erase = {.in = op_keys(&part->in), .statuses = part->statuses};
        if (engine->tables.ops->erase(part->table->store, &erase, &op->error) != EMBD_OK)
            return;
        op->n_applied++;
        engine->counters.keys_erased += erase.n_erased;
        part->n_erased = erase.n_erased;
        part->table->lost.erased += erase.n_erased;
    }
}

/* Keys to be forgotten stand where candidates do. */
static int forget_keys(const struct op_load *load, const struct store_ops *ops,
                       struct embd__error *e)
{
    const struct row_block *block = &load->block;
    struct store_erase erase = {.in = {.n_keys = block->n_candidates,
                                       .n_rows = block->n_candidates,
                                       .keys = block->candidate_keys,
                                       .slots = block->candidate_slots}};
    return block->n_candidates == 0 ? EMBD_OK : ops->erase(load->table->store, &erase, e);
}

void apply_load(struct op *op)
{
    const struct store_ops *ops = op->engine->tables.ops;
    const struct op_load *load = &op->as.load;
    int status = load->fields.is_gone ? forget_keys(load, ops, &op->error)
                                      : ops->load(load->table->store, &load->block, &op->error);
    if (status == EMBD_OK && load->fields.has_step)
        ops->set_step(load->table->store, load->fields.step);
    if (status == EMBD_OK && op->engine->on_loaded != NULL)
        op->engine->on_loaded(op->engine->arg, load);
}

/* ---- streams ---- */

void apply_open_stream(struct op *op)
{
    const struct stream_opening *opening = &op->as.opening;
    struct pushers *pushers = op_pushers(op);
    int status = pushers_open(pushers, opening, op->now_ns, &op->error);
    op->created = status == EMBD_OK;
    op->last = status < EMBD_OK ? 0 : pushers_last(pushers, &opening->stream);
}

/* Other rows go if there is no room. */
static void replace_streams(struct pushers *pushers, const struct op_streams *streams,
                            struct embd__error *e)
{
    for (uint32_t i = 0; i < streams->n && e->status == EMBD_OK; i++) {
        const struct push_stream *stream = &streams->list[i];
        const struct push_number id = {
            .high = stream->high, .low = stream->low, .stream = stream->stream};
        if (pushers_know(pushers, &id) || pushers_begin_old(pushers, &id, e) == EMBD_OK)
            pushers_restore(pushers, stream, NULL, 1, 0, e);
    }
}

void apply_streams(struct op *op)
{
    const struct op_streams *streams = &op->as.streams;
    for (uint32_t i = 0; i < streams->n_clients; i++)
        sources_note(&op->engine->journaled_sources,
                     &(struct push_source){streams->clients[i], streams->places[i]});
    if (streams->may_replace)
        replace_streams(op_pushers(op), streams, &op->error);
    else
        pushers_restore(op_pushers(op), streams->list, streams->sets, streams->n, op->now_ns,
                        &op->error);
}
