/* put.c - rows with given values. They are written as a load writes them: of all or of none, and
 * nothing is evicted for them. A put names its rows, so admit_after does not ask for more sights.
 *
 * A put without states gives its rows those that a new row has. They depend on the table's step,
 * which is known when the put is applied: a record has the put as it was asked for.
 *
 * A put with a number takes its turn in its stream, as a push does. One that was applied before is
 * answered whatever the table's step is now: pushes may have come since. */
#include <stdlib.h>

#include "proto/convert.h"
#include "server/engine/apply.h"
#include "server/engine/engine.h"
#include "server/engine/push.h"
#include "server/store/optimizer.h"
#include "server/store/use.h"

/* As a store gives a new row at that step or second; with the row's values as master values. */
static void first_state(const embd_schema *schema, uint64_t time, const uint8_t *row, float *state)
{
    uint32_t n = embd__schema_state_floats(schema), n_use = embd__schema_use_floats(schema),
             n_own = embd__schema_optimizer_floats(schema);
    float first = optimizer_first_state(&schema->optimizer);
    for (uint32_t i = 0; i < n; i++)
        state[i] = i < n_own ? first : 0.0f;
    if (embd__schema_master_floats(schema) > 0)
        embd__row_to_f32(state + embd__schema_master_at(schema), row, schema->dtype, schema->dim);
    if (n_use > 0)
        use_begin(state + n - n_use, time);
}

/* NULL: no memory. */
static float *first_states(const struct table *table, const struct row_block *block, uint64_t time)
{
    const embd_schema *schema = &table->schema.s;
    const uint8_t *rows = block->rows;
    size_t n_floats = embd__schema_state_floats(schema),
           row_bytes = embd__value_bytes(schema->dtype, schema->dim);
    float *states = malloc((block->n_rows * n_floats + 1) * sizeof *states);
    for (uint32_t i = 0; i < block->n_rows && states != NULL; i++)
        first_state(schema, time, rows + i * row_bytes, states + i * n_floats);
    return states;
}

static void write_rows(struct op *op, const struct row_block *block, uint64_t n_before)
{
    struct op_put *put = &op->as.put;
    struct tables *tables = &op->engine->tables;
    struct store_stats stats;
    if (tables->ops->load(put->table->store, block, &op->error) != EMBD_OK)
        return;
    if (put->step > 0)
        tables->ops->set_step(put->table->store, put->step);
    tables->ops->stats(put->table->store, &stats);
    tables_count_as(tables, put->table, &stats);
    put->n_inserted = stats.rows - n_before;
    op->engine->counters.keys_inserted += put->n_inserted;
}

static void put_rows(struct op *op)
{
    const struct op_put *put = &op->as.put;
    struct row_block block = put->block;
    struct store_stats stats;
    float *own = NULL;
    op->engine->tables.ops->stats(put->table->store, &stats);
    if (block.states == NULL && embd__schema_state_floats(&put->table->schema.s) > 0) {
        block.states = own = first_states(put->table, &block, op_put_time(op, &stats));
        if (own == NULL) {
            embd__error_set(&op->error, EMBD_NO_MEMORY,
                            "table %s: no memory for the states of %u rows",
                            put->table->schema.s.name, block.n_rows);
            return;
        }
    }
    write_rows(op, &block, stats.rows);
    free(own);
}

static int check_step(const struct op_put *put, const struct store_stats *stats,
                      struct embd__error *e)
{
    if (put->step == 0 || put->step >= stats->steps)
        return EMBD_OK;
    return embd__error_set(
        e, EMBD_INVALID, "put step: %llu, table '%s' has made %llu; a step does not go back",
        (unsigned long long)put->step, put->table->schema.s.name, (unsigned long long)stats->steps);
}

int put_admit(struct op *op)
{
    const struct op_put *put = &op->as.put;
    struct store_stats stats;
    if (op->number.sequence > 0 && (push_look(op) != EMBD_OK || op->is_again))
        return op->error.status;
    op->engine->tables.ops->stats(put->table->store, &stats);
    return check_step(put, &stats, &op->error);
}

void apply_put(struct op *op)
{
    bool is_numbered = op->number.sequence > 0;
    if (is_numbered && (push_take_turn(op) != EMBD_OK || op->is_again))
        return;
    put_rows(op);
    if (is_numbered && op->error.status != EMBD_OK)
        push_give_turn_back(op);
    else if (is_numbered)
        pushers_note_table(op->noted, &op->number, op->as.put.table->number);
}
