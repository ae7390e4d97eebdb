/* narrow_tables.c - the tables of a replica with narrow rows. The happy path: a round with all rows
 * goes into a staged table, which then takes its place; a round of changes goes into the rows that
 * are shown, by operations as requests make them.
 *
 * What can fail: answers that are half sent have no room for the rows that change, or there is no
 * memory. Then nothing has changed, and the same is tried again. */
#include <stdlib.h>
#include <string.h>

#include "proto/assert.h"
#include "proto/dtype.h"
#include "server/engine/staged.h"
#include "server/service/narrow_inside.h"

/* Never wider than they are there. What decides first values and routes stays; what only pushes
 * need goes, and with it all state. */
void narrow_schema(embd_schema *schema, embd_dtype dtype)
{
    embd_schema plain;
    embd_schema_init(&plain);
    if (embd__value_bytes(dtype, schema->dim) < embd__value_bytes(schema->dtype, schema->dim))
        schema->dtype = dtype;
    schema->optimizer = plain.optimizer;
    schema->regularization = plain.regularization;
    schema->rounding = EMBD_ROUNDING_NEAREST;
    schema->capacity = 0;
    schema->on_full = EMBD_ON_FULL_GROW;
    schema->ttl = schema->ttl_seconds = schema->lfu_half_life = 0;
    schema->lfu_occurrences = false;
    schema->admit_after = 0;
    schema->create_on = EMBD_CREATE_ON_PUSH;
    schema->durability = EMBD_DURABILITY_SNAPSHOT;
    schema->changed = 0;
}

static int run(struct op *op, struct embd__error *e)
{
    if (engine_make_way(op, e) != EMBD_OK)
        return e->status;
    engine_apply(op);
    op_wait(op);
    *e = op->error;
    return e->status;
}

/* Calls of a device that read a table end before it goes. */
static void settle(struct engine *engine)
{
    while (engine->n_in_flight > 0)
        for (uint32_t i = 0; i < engine->tables.n; i++)
            engine->tables.ops->collect(engine->tables.by_name[i]->store);
}

/* ---- staged ---- */

/* An id of a set is one of a table: no two have it. */
static int stage(struct shard *shard, struct narrow_table *t, struct embd__error *e)
{
    struct op op = {.kind = OP_STAGE};
    if (t->is_staged)
        return EMBD_OK;
    op_begin(&op, &shard->engine, OP_STAGE);
    op.as.stage = (struct op_stage){.id = t->id, .schema = t->schema, .table = t->id};
    t->is_staged = run(&op, e) == EMBD_OK;
    return e->status;
}

static void unstage(struct shard *shard, struct narrow_table *t)
{
    if (t->is_staged)
        staged_drop(&shard->engine.tables, t->id);
    t->is_staged = false;
}

/* ---- parts ---- */

static void drop_parts(struct narrow_table *t)
{
    while (t->first != NULL) {
        struct narrow_part *part = t->first;
        t->first = part->next;
        free(part);
    }
    t->last = &t->first;
    t->n_queued = 0;
}

void narrow_end_round(struct shard *shard, struct narrow_table *t)
{
    drop_parts(t);
    unstage(shard, t);
    t->is_whole = t->renews = false;
    t->n_rows = 0;
}

static int load(struct shard *shard, struct table *table, const struct narrow_part *part,
                bool is_gone, struct embd__error *e)
{
    struct op op = {.kind = OP_LOAD};
    op_begin(&op, &shard->engine, OP_LOAD);
    struct op_load *load = &op.as.load;
    *load = (struct op_load){.fields = {.is_gone = is_gone}, .table = table};
    if (is_gone) {
        load->block.n_candidates = part->n_gone;
        load->block.candidate_keys = part->gone_keys;
        load->block.candidate_slots = part->gone_slots;
    } else {
        load->block = part->block;
    }
    return run(&op, e);
}

/* A load without rows sets the step alone. Where nothing has changed, answers that are half sent
 * stay as they are. */
static int set_step(struct shard *shard, struct table *table, uint64_t step, struct embd__error *e)
{
    struct op op = {.kind = OP_LOAD};
    struct store_stats stats;
    shard->engine.tables.ops->stats(table->store, &stats);
    if (stats.steps == step)
        return EMBD_OK;
    op_begin(&op, &shard->engine, OP_LOAD);
    op.as.load = (struct op_load){.fields = {.is_gone = true, .has_step = true, .step = step},
                                  .table = table};
    return run(&op, e);
}

static struct table *table_of(struct shard *shard, struct narrow_table *t, struct embd__error *e)
{
    if (!t->renews)
        return tables_find(&shard->engine.tables, t->name, e);
    if (stage(shard, t, e) != EMBD_OK)
        return NULL;
    return staged_find(&shard->engine.tables, t->id, t->name, e);
}

/* Again, it does the same. */
int narrow_apply(struct shard *shard, struct narrow_table *t, struct embd__error *e)
{
    struct narrow_part *part = t->first;
    struct table *table = table_of(shard, t, e);
    if (table == NULL)
        return e->status;
    t->is_changing = t->is_changing || !t->renews;
    if ((part->n_gone > 0 && load(shard, table, part, true, e) != EMBD_OK) ||
        (part->block.n_rows > 0 && load(shard, table, part, false, e) != EMBD_OK) ||
        (part->is_last && set_step(shard, table, part->step, e) != EMBD_OK))
        return e->status;
    t->is_whole = part->is_last;
    t->n_rows += part->block.n_rows + part->n_gone;
    t->n_queued -= part->bytes;
    t->first = part->next;
    if (t->first == NULL)
        t->last = &t->first;
    free(part);
    return EMBD_OK;
}

/* ---- what is shown ---- */

int narrow_show(struct shard *shard, struct narrow_table *t, struct embd__error *e)
{
    struct op op = {.kind = OP_REPLACE};
    settle(&shard->engine);
    op_begin(&op, &shard->engine, OP_REPLACE);
    op.now_ns = clock_ns();
    op.as.replace = (struct op_replace){.id = t->id};
    if (run(&op, e) != EMBD_OK)
        return e->status;
    const struct table *table = tables_by_name(&shard->engine.tables, t->name);
    EMBD_ASSERT(table != NULL);
    shard->narrow->of[table->number] = t;
    t->is_staged = t->is_changing = false;
    t->is_shown = true;
    return EMBD_OK;
}

int narrow_hide(struct shard *shard, struct narrow_table *t, struct embd__error *e)
{
    struct table *table = tables_by_name(&shard->engine.tables, t->name);
    struct op op = {.kind = OP_TABLE_DROP};
    if (table == NULL)
        return EMBD_OK;
    settle(&shard->engine);
    uint32_t number = table->number;
    op_begin(&op, &shard->engine, OP_TABLE_DROP);
    op.as.dropped = table;
    if (run(&op, e) != EMBD_OK)
        return e->status;
    shard->narrow->of[number] = NULL;
    t->is_shown = t->is_changing = false;
    return EMBD_OK;
}

void narrow_table_free(struct shard *shard, struct narrow_table *t)
{
    narrow_end_round(shard, t);
    embd__schema_fini(&t->schema);
    free(t);
}
