/* load.c - rows into the shard, block by block. A block is checked whole before the store sees it.
 */
#include "check.h"
#include "commit.h"
#include "settle.h"
#include "state.h"

int handle_load(struct call *call)
{
    const struct shard_config *config = &call->shard->config;
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
    uint64_t step = embd__field_uint(&f, "step", 0, UINT64_MAX, 0);
    if (embd__fields_end(&f) != EMBD_OK)
        return e->status;

    struct table *table = tables_find(&call->shard->tables, name, e);
    struct row_block block;
    if (table == NULL || embd__row_block_read(&call->reader, &table->schema.s, n_rows, n_candidates,
                                              &block) != EMBD_OK)
        return e->status;
    if (check_block(table, &block, config->index, config->n_shards, e) != EMBD_OK)
        return e->status;
    if (settle(call->shard, call->request->session, table, CHANGE_ROWS, e) != EMBD_OK ||
        commit_now(call, table->schema.s.durability) != EMBD_OK ||
        ops->load(table->store, &block, e) != EMBD_OK)
        return e->status;
    call->shard->changed_table = table->id;
    if (has_step)
        ops->set_step(table->store, step);
    embd__msg_result(call->answer, call->reader.msgid);
    embd__msg_map(call->answer, 0);
    return EMBD_OK;
}
