/* handle_device.c - pulls and pushes whose keys, rows and gradients lie in memory of a GPU.
 *
 * The happy path: a client on this host lends memory (device_open); device_pull and device_push
 * name places in it; the store's kernels read and write there; the answer says that they have
 * ended. The host never sees a key, so what looks at keys here is left out: hot keys, and the
 * shards that keys belong to. In a cluster of several shards a request has a set of this one's
 * vshards instead, which is compared with the map, and kernels take keys of the set alone.
 *
 * A request may have a gate (gates.h): then it is handled, and its set looked at, when its keys are
 * written. The map does not change between that and the store's call (moving.h).
 *
 * A push to a journaled table is copied to the host's memory, since its record has the gradients,
 * of keys of its set alone; from there on it is a push like any other. */
#include <string.h>

#include "proto/little.h"
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
    if (table->schema.s.partition == EMBD_PARTITION_SLOT || table->schema.slot_starts != NULL)
        return embd__error_set(&call->error, EMBD_UNSUPPORTED,
                               "%s: table '%s' has slots, and keys in memory of a GPU have none",
                               call->reader.method_name, table->schema.s.name);
    return EMBD_OK;
}

static uint32_t owner_of(const struct routed_place *place, bool is_hash, uint32_t v)
{
    if (place->placement != NULL)
        return is_hash ? place->placement->of_vshard[v] : place->placement->of_residue[v];
    return is_hash ? v * place->n_shards / PLACEMENT_VSHARDS : v % place->n_shards;
}

static uint32_t residues_of(const struct routed_place *place)
{
    uint32_t n = place->n_shards;
    return place->placement != NULL ? place->placement->n_residues : n * (PLACEMENT_VSHARDS / n);
}

static int refuse_vshard(struct call *call, const struct routed_place *place, bool is_hash,
                         uint32_t v)
{
    const char *what = is_hash ? "vshard" : "residue";
    if (!is_hash && v >= residues_of(place))
        return embd__error_set(&call->error, EMBD_INVALID,
                               "%s field 'own' has residue %u; the map has %u",
                               call->reader.method_name, v, residues_of(place));
    return embd__error_set(&call->error, EMBD_MOVED,
                           "%s field 'own' has %s %u, which belongs to shard %u of %u; this is "
                           "shard %u: ask cluster for the placement",
                           call->reader.method_name, what, v, owner_of(place, is_hash, v),
                           place->n_shards, place->shard);
}

/* All of its vshards, or residues, are this shard's. */
static int check_set(struct call *call, const struct routed_place *place, bool is_hash,
                     const uint8_t *own)
{
    uint32_t n = is_hash ? PLACEMENT_VSHARDS : residues_of(place);
    for (uint32_t v = 0; v < PLACEMENT_VSHARDS; v++)
        if (embd__placement_set_has(own, v) &&
            (v >= n || owner_of(place, is_hash, v) != place->shard))
            return refuse_vshard(call, place, is_hash, v);
    return EMBD_OK;
}

/* The keys that take part. The set is copied first: its memory may be the peer's. */
static int take_own(struct call *call, const struct op_part *part, const struct device_batch *batch,
                    const struct key_set **out)
{
    const struct routed_place place = shard_place(call->shard);
    bool is_hash = part->table->schema.s.partition == EMBD_PARTITION_HASH;
    struct key_set *set = &call->work->own;
    uint8_t own[PLACEMENT_SET_BYTES];
    if (batch->own == NULL && place.n_shards > 1)
        return embd__error_set(&call->error, EMBD_UNSUPPORTED,
                               "%s: the cluster has %u shards, and the request no field 'own', "
                               "which says whose keys this one takes",
                               call->reader.method_name, place.n_shards);
    if (batch->own == NULL)
        return EMBD_OK;
    memcpy(own, batch->own, sizeof own);
    if (check_placement(call) != EMBD_OK || check_set(call, &place, is_hash, own) != EMBD_OK)
        return call->error.status;
    set->n_residues = is_hash ? 0 : residues_of(&place);
    for (uint32_t i = 0; i < KEY_SET_WORDS; i++)
        set->words[i] = embd__get_u32(own + i * sizeof set->words[0]);
    *out = set;
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
        check_table(call, part->table) != EMBD_OK ||
        take_own(call, part, &batch, &part->in.own) != EMBD_OK ||
        gate_check(call, &batch.gate) != EMBD_OK)
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
        work->shard->counters.keys_pulled += op_n_keys(&part->in);
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

static uint64_t row_bytes_of(const struct part *in)
{
    return in->n_keys > 0 ? in->grads_bytes / in->n_keys : 0;
}

/* Nobody looks at gradients of other keys. */
static void clear_others(const struct part *in, const uint64_t *keys, uint8_t *grads)
{
    uint64_t row_bytes = row_bytes_of(in);
    for (uint32_t i = 0; i < in->n_keys; i++)
        if (!embd__key_set_has(in->own, keys[i]))
            memset(grads + i * row_bytes, 0, row_bytes);
}

/* Keeps keys of the set, in their order. */
static void select_own(struct part *in, uint64_t *keys, uint8_t *grads)
{
    uint64_t row_bytes = row_bytes_of(in);
    uint32_t n = 0;
    for (uint32_t i = 0; i < in->n_keys; i++) {
        if (!embd__key_set_has(in->own, keys[i]))
            continue;
        if (n < i) {
            keys[n] = keys[i];
            memcpy(grads + n * row_bytes, grads + i * row_bytes, row_bytes);
        }
        n++;
    }
    in->n_keys = in->n_rows = n;
    in->grads_bytes = n * row_bytes;
    in->own = NULL;
}

/* Keys and gradients in the host's memory, which the request has until it is answered. */
static int fetch(struct call *call, struct op_part *part)
{
    const struct store_ops *ops = call->shard->engine.tables.ops;
    uint64_t keys_bytes = part->in.n_keys * sizeof *part->in.keys;
    struct embd__error *e = &call->error;
    uint64_t *keys = work_memory(call->work, keys_bytes + part->in.grads_bytes + 8, e);
    if (keys == NULL)
        return e->status;
    uint8_t *grads = (uint8_t *)keys + keys_bytes;
    if (ops->device_read(keys, part->in.keys, keys_bytes, e) != EMBD_OK ||
        ops->device_read(grads, part->in.grads, part->in.grads_bytes, e) != EMBD_OK)
        return e->status;
    part->in.keys = keys;
    part->in.grads = grads;
    part->in.on_device = false;
    if (part->in.own != NULL)
        clear_others(&part->in, keys, grads);
    if (check_grads(part->table, &part->in, 0, 0, e) == EMBD_OK && part->in.own != NULL)
        select_own(&part->in, keys, grads);
    return e->status;
}

/* Of a push to several shards: a cut has it on all of them. */
static void take_place(struct call *call)
{
    const struct request *request = call->request;
    if (!request->is_push)
        return;
    call->work->op.source = (struct push_source){request->session->client, request->place};
    call->work->op.connection = request->session->serial;
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
    take_place(call);
    return push_begin(call);
}
