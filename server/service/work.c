/* work.c - the pool of works; and the parts of a request, from bytes to an operation: read, checked
 * one by one, copied. */
#include "server/service/work.h"

#include <stdlib.h>
#include <string.h>

#include "proto/assert.h"
#include "proto/part_name.h"
#include "server/engine/check.h"
#include "server/engine/push.h"
#include "server/engine/rounds/step.h"
#include "server/engine/scale.h"
#include "server/engine/unpack.h"
#include "server/service/authorize.h"
#include "server/service/prefetch.h"
#include "server/service/state.h"

/* Kept for the next request; what is larger or more is given back to the system. */
#define POOL_WORKS          64u
#define POOL_STATUSES_BYTES (1u << 20)
/* Bytes that requests of many parts take at once: many times as many as on the wire. */
#define POOL_PARTS_BYTES (256u << 20)

static void destroy(struct shard_work *work)
{
    op_fini(&work->op);
    free(work->rows);
    free(work);
}

void work_free_rows(struct shard *shard, struct answer_rows *rows)
{
    shard->engine.tables.ops->buffer_free(rows->values, rows->room_bytes);
    if (rows->is_materialized)
        shard->materialized_bytes -= rows->values_bytes;
    rows->values = NULL;
    rows->is_materialized = false;
}

struct shard_work *work_new(struct shard *shard, struct request *request)
{
    struct work_pool *pool = &shard->works;
    struct shard_work *work = pool->free;
    if (work != NULL) {
        pool->free = work->next;
        pool->n_free--;
    } else {
        work = calloc(1, sizeof *work);
        if (work == NULL)
            return NULL;
    }
    work->next = work->before = NULL;
    work->shard = shard;
    work->request = request;
    work->is_begun = false;
    work->fill = 0;
    request->work = work;
    return work;
}

static void free_values(struct shard_work *work)
{
    for (uint32_t i = 0; i < work->op.n_parts && work->op.kind == OP_PULL; i++)
        if (i < work->rows_capacity && work->rows[i].values != NULL)
            work_free_rows(work->shard, &work->rows[i]);
}

static void free_memory(struct shard_work *work)
{
    const struct shard_config *config = &work->shard->config;
    free(work->memory);
    work->memory = NULL;
    if (work->charged_bytes + work->unpacked_bytes > 0)
        config->answer_give(config->net_arg, work->charged_bytes + work->unpacked_bytes);
    work->charged_bytes = work->unpacked_bytes = 0;
}

void *work_memory(struct shard_work *work, uint64_t bytes, struct embd__error *e)
{
    const struct shard_config *config = &work->shard->config;
    EMBD_ASSERT(work->memory == NULL);
    if (config->answer_take != NULL && !config->answer_take(config->net_arg, bytes)) {
        embd__error_set(e, EMBD_BUSY,
                        "the answer takes %llu bytes, and other requests leave less than that of "
                        "frame_memory: try again, or ask for fewer keys",
                        (unsigned long long)bytes);
        return NULL;
    }
    work->charged_bytes = config->answer_take != NULL ? bytes : 0;
    work->memory = malloc(bytes);
    if (work->memory == NULL)
        embd__error_set(e, EMBD_NO_MEMORY, "no memory for an answer of %llu bytes",
                        (unsigned long long)bytes);
    return work->memory;
}

void work_free(struct shard_work *work)
{
    struct work_pool *pool = &work->shard->works;
    struct op *op = &work->op;
    free_values(work);
    if (op->kind == OP_TABLE_CREATE)
        embd__schema_fini(&op->as.create.schema);
    if (op->kind == OP_STAGE)
        embd__schema_fini(&op->as.stage.schema);
    free_memory(work);
    op_begin(op, op->engine, OP_PULL);
    work->request->work = NULL;
    work->request = NULL;
    if (op->statuses_capacity > POOL_STATUSES_BYTES) {
        free(op->statuses);
        op->statuses = NULL;
        op->statuses_capacity = 0;
    }
    if (work->parts_bytes > 0)
        op_fini(op);
    pool->parts_bytes -= work->parts_bytes;
    work->parts_bytes = 0;
    if (pool->n_free == POOL_WORKS) {
        destroy(work);
        return;
    }
    work->next = pool->free;
    pool->free = work;
    pool->n_free++;
}

void work_pool_fini(struct work_pool *pool)
{
    while (pool->free != NULL) {
        struct shard_work *work = pool->free;
        pool->free = work->next;
        destroy(work);
    }
    pool->n_free = 0;
}

int work_size_parts(struct shard_work *work, uint32_t n, struct embd__error *e)
{
    struct work_pool *pool = &work->shard->works;
    uint64_t bytes = n * (sizeof(struct op_part) + 2 * sizeof(struct op_call));
    if (n > LIMIT_PART_MAPS) {
        if (pool->parts_bytes + bytes > POOL_PARTS_BYTES)
            return embd__error_set(e, EMBD_BUSY,
                                   "%u parts take %llu bytes; those of requests in progress take "
                                   "%llu, the limit is %u: try again",
                                   n, (unsigned long long)bytes,
                                   (unsigned long long)pool->parts_bytes, POOL_PARTS_BYTES);
        pool->parts_bytes += bytes;
        work->parts_bytes = bytes;
    }
    return op_size_parts(&work->op, n, e);
}

int work_charge_unpacked(struct shard_work *work, uint64_t bytes, const char *what,
                         struct embd__error *e)
{
    const struct shard_config *config = &work->shard->config;
    if (config->answer_take == NULL)
        return EMBD_OK;
    if (!config->answer_take(config->net_arg, bytes))
        return embd__error_set(e, EMBD_BUSY,
                               "the %s take %llu bytes as f32, and peers have all of frame_memory "
                               "but less than that: try again, or with fewer rows",
                               what, (unsigned long long)bytes);
    work->unpacked_bytes = bytes;
    return EMBD_OK;
}

int work_unpack(struct shard_work *work, struct embd__error *e)
{
    uint64_t bytes = unpack_bytes(&work->op);
    uint64_t limit = shard_push_bytes(work->shard);
    if (bytes <= limit && work_charge_unpacked(work, bytes, "gradients", e) != EMBD_OK)
        return e->status;
    return unpack_push(&work->op, limit, e);
}

struct op *work_op(struct shard_work *work, enum op_kind kind)
{
    op_begin(&work->op, &work->shard->engine, kind);
    work->op.origin = work->request->session;
    work->op.spent_ns = &work->request->session->spent_ns;
    work->op.now_ns = work->shard->now_ns;
    return &work->op;
}

/* ---- the parts of a pull, push or erase, from bytes to an operation ---- */

/* The keys of a push may have been looked up while its gradients arrived. */
static int check_routes(struct call *call, const struct op_part *part, uint32_t i,
                        const struct routed_place *place)
{
    char what[PART_NAME_BYTES];
    struct store_keys in = op_keys(&part->in);
    if (i == 0 && prefetch_is_routed(call->request, part->table))
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
            (place.n_shards > 1 && check_routes(call, part, i, &place) != EMBD_OK) ||
            (is_push && check_grads(part->table, &part->in, i, n_finite, e) != EMBD_OK))
            return e->status;
    }
    if (!is_push || check_tables_differ(op, e) != EMBD_OK)
        return e->status;
    if (unpack_bytes(op) > 0 && work_unpack(call->work, e) != EMBD_OK)
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

/* By its number, or by its place where it is of a round. */
static bool was_applied(struct call *call)
{
    struct op *op = &call->work->op;
    op->number = call->extra.number;
    op->source = (struct push_source){call->request->session->client, call->request->place};
    if (op->number.sequence > 0)
        return push_look(op) == EMBD_OK && op->is_again;
    op->is_again = call->extra.order > 0 && round_has_made(op);
    return op->is_again;
}

static bool may_come_again(const struct push_extra *extra)
{
    return extra->number.sequence > 0 || extra->round.n_workers > 0;
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
    if (n > 0 && was_applied(call))
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
        may_come_again(&call->extra))
        return decode_again(call, (uint32_t)n);
    if (n < 0 || e->status != EMBD_OK || work_size_parts(call->work, (uint32_t)n, e) != EMBD_OK ||
        check_all(call) != EMBD_OK)
        return e->status;
    if (call->request->frame->frame_bytes > LIMIT_FRAME_BYTES &&
        answer_check_statuses(op, e) != EMBD_OK)
        return e->status;
    bool wants_statuses = false;
    for (uint32_t i = 0; i < op->n_parts; i++) {
        hot_see(&op->parts[i].table->hot, op->parts[i].in.keys, op->parts[i].in.n_keys);
        wants_statuses |= op->parts[i].in.want_status;
    }
    if (wants_statuses && op_size_statuses(op, e) != EMBD_OK)
        return e->status;
    return call_reserve_answer(call, op->n_parts);
}
