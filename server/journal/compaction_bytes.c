/* compaction_bytes.c - how much a base of the tables will take: see compaction.h. */
#include "server/engine/block.h"
#include "server/journal/compaction.h"

#define HEAD_BYTES 4096u /* of a table's definition; of each block, whose end is filled up */

static uint64_t table_bytes(const struct tables *tables, const struct table *table)
{
    const embd_schema *schema = &table->schema.s;
    struct store_stats stats;
    tables->ops->stats(table->store, &stats);
    uint64_t bytes =
        stats.rows * embd__row_bytes(schema) + stats.candidates * embd__candidate_bytes(schema);
    uint64_t n_blocks = bytes / (COMPACTION_BLOCK_BYTES / 2) + 1;
    return bytes + (n_blocks + 1) * HEAD_BYTES + schema->slots * sizeof *schema->slot_sizes;
}

uint64_t compaction_bytes(const struct commit *commit)
{
    const struct engine *engine = commit->engine;
    uint64_t bytes = engine->journaled_pushers.n *
                         (sizeof(struct push_stream) + (engine->tables.n / 64 + 2) * 8) +
                     engine->journaled_sources.n * sizeof(struct push_source) +
                     engine->prepared.back[1].n * sizeof(struct push_stream) + HEAD_BYTES;
    for (uint32_t i = 0; i < engine->tables.n; i++)
        if (table_is_journaled(engine->tables.by_name[i]))
            bytes += table_bytes(&engine->tables, engine->tables.by_name[i]);
    for (uint32_t i = 0; i < STAGED_SETS; i++) {
        const struct staged *set = engine->tables.staged[i];
        for (uint32_t k = 0; set != NULL && k < set->n; k++)
            if (table_is_journaled(set->list[k]))
                bytes += table_bytes(&engine->tables, set->list[k]);
    }
    return bytes;
}
