/* frame_memory.c - size classes of four steps per doubling (4, 5, 6, 7, 8, 10, ... KiB), so that at
 * most a fifth of a buffer is unused. Idle buffers wait in a list per class, last in, first out:
 * the one given last is the one still in the cache. The list's link lives in the buffer itself. */
#include "server/net/frame_memory.h"

#include "proto/assert.h"

struct idle_buffer {
    struct idle_buffer *next;
};

static uint64_t class_bytes(uint32_t class)
{
    return (uint64_t)(4 + class % 4) << (10 + class / 4);
}

static uint32_t class_of(uint64_t bytes)
{
    uint32_t class = 0;
    while (class_bytes(class) < bytes)
        class ++;
    EMBD_ASSERT(class < FRAME_CLASSES);
    return class;
}

uint64_t frame_pool_charge(uint64_t bytes)
{
    return class_bytes(class_of(bytes));
}

void frame_pool_init(struct frame_pool *pool, const struct store_ops *store, struct quota *quota)
{
    *pool = (struct frame_pool){.store = store, .quota = quota};
    uint64_t most = 2ull * LIMIT_FRAME_BYTES, share = quota->limit / 8;
    pool->idle_limit = share < most ? share : most;
}

void frame_pool_fini(struct frame_pool *pool)
{
    EMBD_ASSERT(pool->lent_bytes == 0);
    frame_pool_trim(pool);
}

void *frame_pool_take(struct frame_pool *pool, uint64_t bytes, struct embd__error *e)
{
    uint32_t class = class_of(bytes);
    uint64_t charge = class_bytes(class);
    if (!quota_take(pool->quota, charge)) {
        embd__error_set(
            e, EMBD_BUSY,
            "no frame memory for a bin of %llu bytes: %llu are in use, the limit is %llu "
            "(frame_memory)",
            (unsigned long long)bytes,
            (unsigned long long)atomic_load_explicit(&pool->quota->used, memory_order_relaxed),
            (unsigned long long)pool->quota->limit);
        return NULL;
    }
    struct idle_buffer *buffer = pool->idle[class];
    if (buffer != NULL) {
        pool->idle[class] = buffer->next;
        pool->idle_bytes -= charge;
    } else {
        buffer = pool->store->buffer_new(charge);
    }
    if (buffer == NULL) {
        quota_give(pool->quota, charge);
        embd__error_set(e, EMBD_NO_MEMORY, "no memory for a bin of %llu bytes",
                        (unsigned long long)bytes);
        return NULL;
    }
    pool->lent_bytes += charge;
    return buffer;
}

void frame_pool_give(struct frame_pool *pool, void *data, uint64_t bytes)
{
    uint32_t class = class_of(bytes);
    uint64_t charge = class_bytes(class);
    pool->lent_bytes -= charge;
    quota_give(pool->quota, charge);
    if (pool->idle_bytes + charge > pool->idle_limit)
        /* sizes have changed: the buffers kept here have another size than requested */
        frame_pool_trim(pool);
    if (charge > pool->idle_limit) {
        pool->store->buffer_free(data, charge);
        return;
    }
    struct idle_buffer *buffer = data;
    buffer->next = pool->idle[class];
    pool->idle[class] = buffer;
    pool->idle_bytes += charge;
}

void frame_pool_trim(struct frame_pool *pool)
{
    for (uint32_t class = 0; class < FRAME_CLASSES; class ++)
        while (pool->idle[class] != NULL) {
            struct idle_buffer *buffer = pool->idle[class];
            pool->idle[class] = buffer->next;
            pool->store->buffer_free(buffer, class_bytes(class));
        }
    pool->idle_bytes = 0;
}
