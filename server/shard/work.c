/* work.c - the pool of works, and the store calls a work makes.
 *
 * All calls of a request are made one right behind the other, whether each has returned before the
 * next, as those of the host store have, or not. So nothing comes between them, and what was found
 * true of all stores before the first call is still true at the last; nor is a request half made
 * where its connection goes. */
#include "server/shard/work.h"
#include "proto/assert.h"

#include <stdlib.h>
#include <string.h>

#include "server/shard/settle.h"
#include "server/shard/state.h"

/* Kept for the next request; what is larger or more is given back to the system. */
#define POOL_WORKS          64u
#define POOL_STATUSES_BYTES (1u << 20)

static void destroy(struct shard_work *work)
{
    free(work->parts);
    free(work->calls);
    free(work->statuses);
    free(work);
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
    work->error.status = EMBD_OK;
    work->n_applied = work->n_calls = work->n_out = 0;
    work->in_flight = false;
    work->is_begun = false;
    work->writer.sequence = 0;
    work->noted = NULL;
    work->is_coming = work->is_prepared = work->is_opening = false;
    work->is_recorded = false;
    request->work = work;
    return work;
}

static void free_values(struct shard_work *work)
{
    for (uint32_t i = 0; i < work->n_parts; i++)
        if (work->parts[i].values != NULL)
            settle_free(work->shard, &work->parts[i]);
    work->n_parts = 0;
}

void work_free(struct shard_work *work)
{
    struct work_pool *pool = &work->shard->works;
    free_values(work);
    free(work->memory);
    work->memory = NULL;
    work->request->work = NULL;
    work->request = NULL;
    if (work->statuses_capacity > POOL_STATUSES_BYTES) {
        free(work->statuses);
        work->statuses = NULL;
        work->statuses_capacity = 0;
    }
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
    if (n > work->parts_capacity) {
        struct work_part *parts = realloc(work->parts, n * sizeof *parts);
        work->parts = parts != NULL ? parts : work->parts;
        struct work_call *calls = realloc(work->calls, 2 * n * sizeof *calls);
        work->calls = calls != NULL ? calls : work->calls;
        if (parts == NULL || calls == NULL)
            return embd__error_set(e, EMBD_NO_MEMORY, "no memory for a request of %u parts", n);
        work->parts_capacity = n;
    }
    if (n > 0)
        memset(work->parts, 0, n * sizeof *work->parts);
    work->n_parts = n;
    work->fill = 0;
    work->at = work->n_applied = work->n_calls = 0;
    return EMBD_OK;
}

int work_size_statuses(struct shard_work *work, struct embd__error *e)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < work->n_parts; i++)
        if (work->parts[i].in.want_status)
            bytes += work->parts[i].in.n_keys;
    if (bytes > work->statuses_capacity) {
        uint8_t *statuses = realloc(work->statuses, bytes);
        if (statuses == NULL)
            return embd__error_set(e, EMBD_NO_MEMORY, "no memory for %llu key statuses",
                                   (unsigned long long)bytes);
        work->statuses = statuses;
        work->statuses_capacity = bytes;
    }
    static uint8_t nothing; /* statuses of no keys: anywhere but NULL */
    uint64_t at = 0;
    for (uint32_t i = 0; i < work->n_parts; i++)
        if (work->parts[i].in.want_status) {
            work->parts[i].statuses = work->parts[i].in.n_keys > 0 ? work->statuses + at : &nothing;
            at += work->parts[i].in.n_keys;
        }
    return EMBD_OK;
}

struct work_call *work_call_new(struct shard_work *work, struct work_part *part,
                                void (*fn)(struct store_done *done, int status))
{
    EMBD_ASSERT(work->n_calls < 2 * work->parts_capacity);
    struct work_call *call = &work->calls[work->n_calls++];
    call->done.fn = fn;
    call->done.error.status = EMBD_OK;
    call->work = work;
    call->part = part;
    call->store = part->table->store;
    work->n_out++;
    return call;
}

void work_run(struct shard_work *work)
{
    while (work->error.status == EMBD_OK && work->next_call(work))
        ;
    if (work->n_out == 0) {
        work->end(work);
        return;
    }
    work->in_flight = true;
    work->shard->hold.n_in_flight++;
}

void work_returned(struct work_call *call, int status)
{
    struct shard_work *work = call->work;
    EMBD_ASSERT(call->store != NULL && work->n_out > 0); /* a store calls done once */
    if (status != EMBD_OK)
        embd__error_set(&work->error, status, "%s",
                        call->done.error.status != EMBD_OK ? call->done.error.text
                                                           : embd_status_text(status));
    call->store = NULL;
    if (--work->n_out > 0 || !work->in_flight)
        return;
    struct shard *shard = work->shard;
    work->in_flight = false;
    shard->hold.n_in_flight--;
    work->end(work);
    dispatch_parked(shard);
}

void work_wait(struct shard_work *work)
{
    while (work->n_out > 0)
        for (uint32_t i = 0; i < work->n_calls && work->n_out > 0; i++)
            if (work->calls[i].store != NULL)
                work->shard->tables.ops->collect(work->calls[i].store);
}

void work_forget(struct shard_work *work)
{
    if (!work->in_flight)
        return;
    for (uint32_t i = 0; i < work->n_calls; i++)
        if (work->calls[i].store != NULL)
            work->shard->tables.ops->forget(work->calls[i].store, &work->calls[i].done);
    work->n_out = 0;
    work->in_flight = false;
    work->shard->hold.n_in_flight--;
}
