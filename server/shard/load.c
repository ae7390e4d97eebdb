/* load.c - rows into the shard, block by block, and keys that lost theirs out of it. A block is
 * checked whole before the store sees it. */
#include "server/engine/check.h"
#include "server/shard/commit.h"
#include "server/shard/settle.h"
#include "server/shard/state.h"

/* Keys to be forgotten, as candidates that were seen 0 times. */
static int check_gone(const struct row_block *block, struct embd__error *e)
{
    if (block->n_rows > 0)
        return embd__error_set(e, EMBD_INVALID, "load rows: %u, and keys that are gone have none",
                               block->n_rows);
    for (uint32_t i = 0; i < block->n_candidates; i++)
        if (block->candidate_counts[i] != 0)
            return embd__error_set(e, EMBD_INVALID,
                                   "load candidate counts[%u]: %u, of keys that are "
                                   "gone it is 0",
                                   i, block->candidate_counts[i]);
    return EMBD_OK;
}

static int apply(struct call *call, const struct table *table, const struct row_block *block,
                 bool is_gone)
{
    const struct store_ops *ops = call->shard->tables.ops;
    struct store_erase erase = {.in = {.n_keys = block->n_candidates,
                                       .n_rows = block->n_candidates,
                                       .keys = block->candidate_keys,
                                       .slots = block->candidate_slots}};
    if (!is_gone)
        return ops->load(table->store, block, &call->error);
    return block->n_candidates == 0 ? EMBD_OK : ops->erase(table->store, &erase, &call->error);
}

int handle_load(struct call *call)
{
    const struct store_ops *ops = call->shard->tables.ops;
    struct embd__error *e = &call->error;
    struct fields f;
    char name[EMBD_NAME_MAX + 1];
    embd__read_fields(&f, &call->reader, "load");
    embd__field_str(&f, "table", name, sizeof name, NULL);
    uint32_t n_rows = (uint32_t)embd__field_uint(&f, "rows", 0, LIMIT_ROWS, FIELD_REQUIRED);
    uint32_t n_candidates =
        (uint32_t)embd__field_uint(&f, "candidates", 0, LIMIT_ROWS, FIELD_REQUIRED);
    bool has_step = embd__field_has(&f, "step");
    /* What a journal holds was taken, by whatever limits there were then. */
    uint64_t max_step = call->shard->is_replaying ? UINT64_MAX : LIMIT_STEP;
    uint64_t step = embd__field_uint(&f, "step", 0, max_step, 0);
    bool is_gone = embd__field_bool(&f, "gone", false);
    if (embd__fields_end(&f) != EMBD_OK)
        return e->status;

    struct table *table = tables_find(&call->shard->tables, name, e);
    struct row_block block;
    if (table == NULL || embd__row_block_read(&call->reader, &table->schema.s, n_rows, n_candidates,
                                              &block) != EMBD_OK)
        return e->status;
    const struct routed_place place = shard_place(call->shard);
    if (check_block(table, &block, is_gone, &place, e) != EMBD_OK ||
        (!call->shard->is_replaying && check_states(table, &block, e) != EMBD_OK) ||
        (is_gone && check_gone(&block, e) != EMBD_OK))
        return e->status;
    if (settle(call->shard, call->request->session, table, CHANGE_ROWS, e) != EMBD_OK ||
        commit_now(call, table->schema.s.durability) != EMBD_OK)
        return e->status;
    if (apply(call, table, &block, is_gone) != EMBD_OK) {
        commit_withdraw(call->work, false, e);
        return e->status;
    }
    call->shard->changed_table = table->id;
    if (has_step)
        ops->set_step(table->store, step);
    embd__msg_result(call->answer, call->reader.msgid);
    embd__msg_map(call->answer, 0);
    return EMBD_OK;
}
