/* work.c - the pool of works, and the rows of answers that are made while they are sent. */
#include "server/service/work.h"

#include <stdlib.h>
#include <string.h>

#include "proto/assert.h"
#include "server/engine/pull.h"
#include "server/engine/unpack.h"
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
    op_begin(op, op->engine, OP_PULL);
    free_memory(work);
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
    if (bytes == 0)
        return EMBD_OK;
    uint64_t limit = shard_push_bytes(work->shard);
    if (bytes <= limit && work_charge_unpacked(work, bytes, "gradients", e) != EMBD_OK)
        return e->status;
    return unpack_push(&work->op, limit, e);
}

int work_size_rows(struct shard_work *work, struct embd__error *e)
{
    uint32_t n = work->op.n_parts;
    if (n > work->rows_capacity) {
        struct answer_rows *rows = realloc(work->rows, n * sizeof *rows);
        if (rows == NULL)
            return embd__error_set(e, EMBD_NO_MEMORY, "no memory for a request of %u parts", n);
        work->rows = rows;
        work->rows_capacity = n;
    }
    if (n > 0)
        memset(work->rows, 0, n * sizeof *work->rows);
    return EMBD_OK;
}

struct op *work_op(struct shard_work *work, enum op_kind kind)
{
    op_begin(&work->op, &work->shard->engine, kind);
    work->op.origin = work->request->session;
    work->op.spent_ns = &work->request->session->spent_ns;
    work->op.now_ns = work->shard->now_ns;
    return &work->op;
}

/* ---- answers that are made while they are sent ---- */

void work_begin_streaming(struct shard_work *work)
{
    struct shard *shard = work->shard;
    work->is_streaming = true;
    work->before = NULL;
    work->next = shard->streaming;
    if (shard->streaming != NULL)
        shard->streaming->before = work;
    shard->streaming = work;
}

void work_end_streaming(struct shard_work *work)
{
    if (!work->is_streaming)
        return;
    if (work->before != NULL)
        work->before->next = work->next;
    else
        work->shard->streaming = work->next;
    if (work->next != NULL)
        work->next->before = work->before;
    work->next = work->before = NULL;
    work->is_streaming = false;
}

void work_end_part(struct shard_work *work, struct op_part *part)
{
    struct counters *counters = &work->shard->counters;
    if (part->statuses != NULL) {
        uint64_t n_hit = 0, n_missing = 0;
        for (uint32_t i = 0; i < part->in.n_keys; i++) {
            n_hit += part->statuses[i] == EMBD_KEY_HIT;
            n_missing += part->statuses[i] == EMBD_KEY_MISSING;
        }
        counters->keys_hit += n_hit;
        counters->keys_missing += n_missing;
    }
    part->table = NULL;
}

void work_make_rows(struct shard_work *work, uint32_t i, void *out, uint32_t count)
{
    struct op_part *part = &work->op.parts[i];
    struct answer_rows *rows = &work->rows[i];
    pull_rows(&work->op, part, rows->n_made, count, out);
    rows->n_made += count;
    if (rows->n_made == part->in.n_rows)
        work_end_part(work, part);
}
