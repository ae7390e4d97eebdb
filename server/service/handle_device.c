/* handle_device.c - pulls and pushes whose keys, rows and gradients lie in memory of a GPU.
 *
 * The happy path: a client on this host lends memory (device_open); device_pull and device_push
 * name places in it; the store's kernels read and write there; the answer says that they have
 * ended. The host never sees a key, so what looks at keys here is left out: hot keys, and the
 * shards that keys belong to, for which the cluster has a single one.
 *
 * A request may have a gate (gates.h): then it is handled when its keys are written.
 *
 * A push to a journaled table is copied to the host's memory, since its record has the gradients;
 * from there on it is a push like any other. */
#include "proto/packed.h"
#include "server/engine/check.h"
#include "server/service/authorize.h"
#include "server/service/devices.h"
#include "server/service/gates.h"
#include "server/service/token_use.h"

int handle_device_open(struct call *call)
{
    struct device_lent lent;
    struct device_opened opened;
    if (embd__device_open_read(&call->reader, &lent) != EMBD_OK ||
        devices_open(call, &lent, &opened) != EMBD_OK)
        return call->error.status;
    embd__msg_result(call->answer, call->reader.msgid);
    embd__device_opened_write(call->answer, &opened);
    return EMBD_OK;
}

/* Nothing is under way: dispatch.c, TOUCH_STRUCTURE. */
int handle_device_close(struct call *call)
{
    uint64_t number;
    if (embd__device_close_read(&call->reader, &number) != EMBD_OK ||
        devices_close(call, number) != EMBD_OK)
        return call->error.status;
    embd__msg_result(call->answer, call->reader.msgid);
    embd__msg_map(call->answer, 0);
    return EMBD_OK;
}

/* ---- what pulls and pushes share ---- */

static int check_table(struct call *call, const struct table *table)
{
    const struct routed_place place = shard_place(call->shard);
    if (place.n_shards > 1)
        return embd__error_set(&call->error, EMBD_UNSUPPORTED,
                               "%s: the cluster has %u shards, and keys in memory of a GPU are "
                               "taken by a cluster of one",
                               call->reader.method_name, place.n_shards);
    if (table->schema.s.partition == EMBD_PARTITION_SLOT || table->schema.slot_starts != NULL)
        return embd__error_set(&call->error, EMBD_UNSUPPORTED,
                               "%s: table '%s' has slots, and keys in memory of a GPU have none",
                               call->reader.method_name, table->schema.s.name);
    return EMBD_OK;
}

static struct part part_of(const struct device_batch *batch)
{
    return (struct part){
        .table = batch->table,
        .dtype = batch->dtype,
        .n_keys = batch->n_keys,
        .n_rows = batch->n_keys,
        .zero_missing = batch->zero_missing,
        .lr = batch->lr,
        .on_device = true,
    };
}

/* The operation's one part, but for its rows. *rows_out: where they lie. */
static int read_part(struct call *call, enum op_kind kind, uint8_t **rows_out)
{
    struct embd__error *e = &call->error;
    struct op *op = work_op(call->work, kind);
    struct device_batch batch;
    if (embd__device_batch_read(&call->reader, kind == OP_PUSH, &batch) != EMBD_OK ||
        work_size_parts(call->work, 1, e) != EMBD_OK)
        return e->status;
    struct op_part *part = &op->parts[0];
    part->in = part_of(&batch);
    part->table = tables_by_id(&call->shard->engine.tables, batch.table);
    if (authorize_part(call, part, 0, kind == OP_PUSH) != EMBD_OK ||
        check_is_known(part->table, &part->in, 0, e) != EMBD_OK ||
        check_table(call, part->table) != EMBD_OK || gate_check(call, &batch.gate) != EMBD_OK)
        return e->status;
    part->in.grads_bytes =
        batch.n_keys * embd__wire_row_bytes(batch.dtype, part->table->schema.s.dim);
    part->in.keys = (const uint64_t *)(const void *)devices_find(
        call, &batch.keys, batch.n_keys * sizeof *part->in.keys, "keys");
    if (part->in.keys != NULL)
        *rows_out = devices_find(call, &batch.rows, part->in.grads_bytes, "rows");
    return e->status != EMBD_OK ? e->status : call_reserve_answer(call, 1);
}

/* ---- pull ---- */

static void on_pulled(struct op *op)
{
    struct shard_work *work = work_of(op);
    struct request *request = work->request;
    struct op_part *part = &op->parts[0];
    if (op->error.status == EMBD_OK) {
        work->shard->counters.keys_pulled += part->in.n_keys;
        embd__msg_result(&request->answer, request->frame->msgid);
        embd__msg_map(&request->answer, 0);
        embd__msg_end(&request->answer);
    }
    part->table = NULL;
    call_answer(work->shard, request, &op->error);
}

int handle_device_pull(struct call *call)
{
    struct op *op = &call->work->op;
    uint8_t *rows = NULL;
    if (read_part(call, OP_PULL, &rows) != EMBD_OK)
        return call->error.status;
    op->parts[0].values = rows;
    op->done = on_pulled;
    token_use_bound(op, call->request->session);
    clock_tell(op);
    if (engine_admit(op) != EMBD_OK) {
        call->error = op->error;
        return call->error.status;
    }
    engine_apply(op);
    return CALL_LATER;
}

/* ---- push ---- */

/* Keys and gradients in the host's memory, which the request has until it is answered. */
static int fetch(struct call *call, struct op_part *part)
{
    const struct store_ops *ops = call->shard->engine.tables.ops;
    uint64_t keys_bytes = part->in.n_keys * sizeof *part->in.keys;
    struct embd__error *e = &call->error;
    uint8_t *memory = work_memory(call->work, keys_bytes + part->in.grads_bytes + 8, e);
    if (memory == NULL || ops->device_read(memory, part->in.keys, keys_bytes, e) != EMBD_OK ||
        ops->device_read(memory + keys_bytes, part->in.grads, part->in.grads_bytes, e) != EMBD_OK)
        return e->status;
    part->in.keys = (const uint64_t *)(const void *)memory;
    part->in.grads = memory + keys_bytes;
    part->in.on_device = false;
    return check_grads(part->table, &part->in, 0, 0, e);
}

int handle_device_push(struct call *call)
{
    struct op_part *part;
    struct embd__error *e = &call->error;
    uint8_t *grads = NULL;
    if (read_part(call, OP_PUSH, &grads) != EMBD_OK)
        return e->status;
    part = &call->work->op.parts[0];
    part->in.grads = grads;
    if (part->in.grads_bytes > shard_push_bytes(call->shard))
        return embd__error_set(
            e, EMBD_TOO_LARGE,
            "device_push: gradients of %llu bytes, the limit is %llu (push_limit)",
            (unsigned long long)part->in.grads_bytes,
            (unsigned long long)shard_push_bytes(call->shard));
    if (table_is_journaled(part->table) && fetch(call, part) != EMBD_OK)
        return e->status;
    return push_begin(call);
}
