/* work.c - the pool of works, and the sequence of store calls a work makes.
 *
 * A sequence is a loop: make a call; when it returned before coming back, as those of the host
 * store do, make the next; otherwise leave, and let the call's return go on with the loop. So there
 * is no recursion however many parts a request has. */
#include "work.h"

#include <stdlib.h>
#include <string.h>

#include "settle.h"
#include "state.h"

/* Kept for the next request; what is larger or more is given back to the system. */
#define POOL_WORKS          64u
#define POOL_STATUSES_BYTES (1u << 20)

static void destroy(struct shard_work *work)
{
    free(work->parts);
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
    work->is_begun = false;
    work->writer.sequence = 0;
    work->noted = NULL;
    work->is_coming = work->is_prepared = false;
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
        if (parts == NULL)
            return embd__error_set(e, EMBD_NO_MEMORY, "no memory for a request of %u parts", n);
        work->parts = parts;
        work->parts_capacity = n;
    }
    if (n > 0)
        memset(work->parts, 0, n * sizeof *work->parts);
    work->n_parts = n;
    work->fill = 0;
    work->at = 0;
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

void work_run(struct shard_work *work)
{
    struct hold *hold = &work->shard->hold;
    work->returned = true;
    while (work->error.status == EMBD_OK) {
        work->returned = false;
        work->done.error.status = EMBD_OK;
        if (!work->next_call(work))
            break;
        if (!work->returned) {
            work->in_flight = true;
            hold->n_in_flight++;
            return;
        }
    }
    work->end(work);
}

void work_returned(struct shard_work *work, int status)
{
    if (status != EMBD_OK)
        embd__error_set(&work->error, status, "%s",
                        work->done.error.status != EMBD_OK ? work->done.error.text
                                                           : embd_status_text(status));
    work->returned = true;
    if (!work->in_flight)
        return;
    struct shard *shard = work->shard;
    work->in_flight = false;
    shard->hold.n_in_flight--;
    work_run(work);
    dispatch_parked(shard);
}

void work_forget(struct shard_work *work)
{
    if (!work->in_flight)
        return;
    work->shard->tables.ops->forget(work->store, &work->done);
    work->in_flight = false;
    work->shard->hold.n_in_flight--;
}

struct shard_work *work_of_done(struct store_done *done)
{
    return (struct shard_work *)((char *)done - offsetof(struct shard_work, done));
}
