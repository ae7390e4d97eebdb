/* handle_put.c - rows with given values, and with their states where the request brings them. The
 * request is checked whole; then it is submitted as an erase or a load is. */
#include "proto/keyed.h"
#include "server/engine/check.h"
#include "server/service/authorize.h"
#include "server/service/state.h"
#include "server/service/token_use.h"

static int read_put(struct call *call, struct op *op)
{
    struct op_put *put = &op->as.put;
    const struct routed_place place = shard_place(call->shard);
    struct keyed_fields fields;
    struct embd__error *e = &call->error;
    if (embd__put_fields_read(&call->reader, &fields) != EMBD_OK ||
        check_placement(call) != EMBD_OK)
        return e->status;
    op->number = fields.number;
    put->step = fields.step;
    put->table = authorized_table(call, fields.table);
    if (put->table == NULL ||
        embd__put_bins_read(&call->reader, &put->table->schema.s, fields.n_keys, fields.has_states,
                            &put->block) != EMBD_OK)
        return e->status;
    return check_keyed(put->table, &put->block, "put", &place, e);
}

static void result(const struct shard_work *work, struct msg *m)
{
    embd__put_answer_write(m, work->op.as.put.n_inserted, work->op.is_again);
}

int handle_put(struct call *call)
{
    struct op *op = work_op(call->work, OP_PUT);
    struct op_put *put = &op->as.put;
    struct store_stats stats;
    if (read_put(call, op) != EMBD_OK)
        return call->error.status;
    clock_tell(op);
    call->shard->engine.tables.ops->stats(put->table->store, &stats);
    uint64_t step = put->step > 0 ? put->step : stats.steps;
    uint64_t time = op_put_time(op, &stats);
    if (check_put_rows(put->table, &put->block, step, time, &call->error) != EMBD_OK)
        return call->error.status;
    put->n_inserted = 0;
    token_use_bound(op, call->request->session);
    return submit(call, result);
}
