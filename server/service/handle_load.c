/* handle_load.c - rows into the shard, block by block, and keys that lost theirs out of it. A block
 * is checked whole before the store sees it. */
#include "server/engine/check.h"
#include "server/service/state.h"

/* The table is known before the block can be read: its schema says how many bytes a row has. */
static int read_load(struct call *call, struct op_load *load)
{
    struct fields f;
    char name[EMBD_NAME_MAX + 1];
    embd__read_fields(&f, &call->reader, "load");
    embd__field_str(&f, "table", name, sizeof name, NULL);
    uint32_t n_rows = (uint32_t)embd__field_uint(&f, "rows", 0, LIMIT_ROWS, FIELD_REQUIRED);
    uint32_t n_candidates =
        (uint32_t)embd__field_uint(&f, "candidates", 0, LIMIT_ROWS, FIELD_REQUIRED);
    *load = (struct op_load){.has_step = embd__field_has(&f, "step")};
    load->step = embd__field_uint(&f, "step", 0, LIMIT_STEP, 0);
    load->is_gone = embd__field_bool(&f, "gone", false);
    if (embd__fields_end(&f) != EMBD_OK)
        return call->error.status;
    load->table = tables_find(&call->shard->engine.tables, name, &call->error);
    if (load->table == NULL)
        return call->error.status;
    return embd__row_block_read(&call->reader, &load->table->schema.s, n_rows, n_candidates,
                                &load->block);
}

int handle_load(struct call *call)
{
    struct op_load *load = &work_op(call->work, OP_LOAD)->as.load;
    const struct routed_place place = shard_place(call->shard);
    struct embd__error *e = &call->error;
    if (read_load(call, load) != EMBD_OK ||
        check_block(load->table, &load->block, load->is_gone, &place, e) != EMBD_OK ||
        check_states(load->table, &load->block, e) != EMBD_OK)
        return e->status;
    return submit(call, submit_result_empty);
}
