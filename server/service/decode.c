/* decode.c - the parts of a pull, push or erase, from bytes to an operation: read, checked one by
 * one, copied. */

#include "proto/part_name.h"
#include "server/engine/check.h"
#include "server/engine/push.h"
#include "server/engine/scale.h"
#include "server/service/authorize.h"
#include "server/service/prefetch.h"
#include "server/service/state.h"

/* The keys of a push may have been looked up while its gradients arrived. */
static int check_routes(struct call *call, const struct op_part *part, uint32_t i,
                        const struct routed_place *place)
{
    char what[PART_NAME_BYTES];
    struct store_keys in = op_keys(&part->in);
    if (place->n_shards == 1 || (i == 0 && prefetch_is_routed(call->request, part->table)))
        return EMBD_OK;
    embd__part_name(what, i, "");
    return routed_check(part->table, &in, place, what, &call->error);
}

static int check_all(struct call *call)
{
    struct op *op = &call->work->op;
    struct embd__error *e = &call->error;
    bool is_push = op->kind == OP_PUSH, scales = false, has_tokens = call->shard->access != NULL;
    const struct routed_place place = shard_place(call->shard);
    for (uint32_t i = 0; i < op->n_parts; i++) {
        struct op_part *part = &op->parts[i];
        uint64_t n_finite = is_push && i == 0 ? prefetch_n_finite(call->request) : 0;
        part->in = call->shard->parts[i];
        scales |= part->in.scale;
        part->table = tables_by_id(&call->shard->engine.tables, part->in.table);
        if ((has_tokens && authorize_part(call, part, i, op->kind != OP_PULL) != EMBD_OK) ||
            check_part_of(part->table, &part->in, i, e) != EMBD_OK ||
            check_routes(call, part, i, &place) != EMBD_OK ||
            (is_push && check_grads(part->table, &part->in, i, n_finite, e) != EMBD_OK))
            return e->status;
    }
    if (!is_push || check_tables_differ(op, e) != EMBD_OK || work_unpack(call->work, e) != EMBD_OK)
        return e->status;
    return scales ? scale_push(op, e) : EMBD_OK;
}

/* A cluster that began with one shard has no other map to take it for. */
static bool was_always_alone(const struct shard *shard)
{
    const struct placement *own = shard->config.placement;
    return shard->config.n_shards == 1 && (own == NULL || own->version <= 1) &&
           !shard_has_left(shard);
}

int check_placement(struct call *call)
{
    const struct placement *own = call->shard->config.placement;
    uint64_t theirs = call->reader.placement, ours = shard_split_by(call->shard);
    if (theirs == ours || was_always_alone(call->shard))
        return EMBD_OK;
    if (shard_has_left(call->shard))
        return shard_refuse_left(call);
    unsigned long long version = own == NULL ? 1 : own->version;
    if (theirs == 0)
        return embd__error_set(&call->error, EMBD_MOVED,
                               "shard %u has version %llu of the placement, and the request was "
                               "split by the even one; ask cluster for it, or update the client",
                               call->shard->config.index, version);
    return embd__error_set(&call->error, EMBD_MOVED,
                           "shard %u has version %llu of the placement, and the request was split "
                           "by version %llu; ask cluster for it",
                           call->shard->config.index, version, (unsigned long long)theirs);
}

/* A push that was split by an earlier map, and was applied while this shard had that one: its
 * answer was lost. The error of check_placement stays if it was not. */
static int decode_again(struct call *call, uint32_t n)
{
    struct op *op = &call->work->op;
    const struct embd__error moved = call->error;
    call->error = (struct embd__error){.status = EMBD_OK};
    if (work_size_parts(call->work, n, &call->error) != EMBD_OK)
        return call->error.status;
    for (uint32_t i = 0; i < n; i++) {
        struct op_part *part = &op->parts[i];
        part->in = call->shard->parts[i];
        part->table = tables_by_id(&call->shard->engine.tables, part->in.table);
        if (part->table != NULL && call->shard->access != NULL &&
            authorize_part(call, part, i, true) != EMBD_OK)
            return call->error.status;
        if (part->table == NULL)
            n = 0;
    }
    op->number = call->extra.number;
    if (n > 0 && push_look(op) == EMBD_OK && op->is_again)
        return call_reserve_answer(call, n);
    op->is_again = false;
    call->error = moved;
    return moved.status;
}

int decode_parts(struct call *call, enum op_kind kind)
{
    struct embd__error *e = &call->error;
    struct op *op = work_op(call->work, kind);
    struct part *parts = call->shard->parts;
    int n = kind == OP_PUSH ? embd__push_read(&call->reader, parts, LIMIT_PARTS, &call->extra)
                            : embd__parts_read(&call->reader, parts, LIMIT_PARTS,
                                               kind == OP_PULL ? PARTS_PULL : PARTS_ERASE);
    if (n >= 0 && check_placement(call) != EMBD_OK && kind == OP_PUSH &&
        call->extra.number.sequence > 0)
        return decode_again(call, (uint32_t)n);
    if (n < 0 || e->status != EMBD_OK || work_size_parts(call->work, (uint32_t)n, e) != EMBD_OK ||
        check_all(call) != EMBD_OK)
        return e->status;
    if (call->request->frame->frame_bytes > LIMIT_FRAME_BYTES &&
        answer_check_statuses(op, e) != EMBD_OK)
        return e->status;
    for (uint32_t i = 0; i < op->n_parts; i++)
        hot_see(&op->parts[i].table->hot, op->parts[i].in.keys, op->parts[i].in.n_keys);
    if (op_size_statuses(op, e) != EMBD_OK)
        return e->status;
    return call_reserve_answer(call, op->n_parts);
}
