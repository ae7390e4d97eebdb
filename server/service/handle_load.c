/* handle_load.c - rows into the shard, block by block, and keys that lost theirs out of it. A block
 * is checked whole before the store sees it. */
#include "server/engine/check.h"
#include "server/engine/staged.h"
#include "server/service/authorize.h"
#include "server/service/state.h"
#include "server/service/token_use.h"

static struct table *find_table(struct call *call, const struct load_fields *fields)
{
    const struct tables *tables = &call->shard->engine.tables;
    return fields->staged == 0 ? tables_find(tables, fields->table, &call->error)
                               : staged_find(tables, fields->staged, fields->table, &call->error);
}

/* Into tables in use only an admin loads. */
static int authorize(struct call *call, const struct load_fields *fields)
{
    if (fields->staged == 0 && authorize_coordinator(call, "load without 'staged'") != EMBD_OK)
        return call->error.status;
    return authorize_table(call, fields->table);
}

/* The table is known before the block can be read: its schema says how many bytes a row has. */
int load_read_block(struct call *call, struct op_load *load, const struct routed_place *place)
{
    const struct load_fields *fields = &load->fields;
    struct embd__error *e = &call->error;
    if (load->table == NULL ||
        embd__row_block_read(&call->reader, &load->table->schema.s, fields->n_rows,
                             fields->n_candidates, &load->block) != EMBD_OK ||
        check_block(load->table, &load->block, fields->is_gone, place, e) != EMBD_OK)
        return e->status;
    return check_states(load->table, &load->block, e);
}

int handle_load(struct call *call)
{
    struct op_load *load = &work_op(call->work, OP_LOAD)->as.load;
    const struct routed_place place = shard_place(call->shard);
    if (embd__load_fields_read(&call->reader, LIMIT_STEP, &load->fields) != EMBD_OK ||
        authorize(call, &load->fields) != EMBD_OK)
        return call->error.status;
    load->table = find_table(call, &load->fields);
    if (load_read_block(call, load, &place) != EMBD_OK)
        return call->error.status;
    token_use_bound_staged(&call->work->op, call->request->session);
    return submit(call, submit_result_empty);
}
