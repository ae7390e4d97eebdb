/* frame_memory.h - buffers for the bins of frames that arrive: a pool for each shard which gives
 * the same buffers out again, so that page faults are paid once and not per request.
 *
 * A buffer is as large as its bin was announced, within the frame limit and the quota; its pages
 * are touched as bytes arrive. */
#ifndef EMBD_FRAME_MEMORY_H
#define EMBD_FRAME_MEMORY_H

#include <stddef.h>

#include "server/net/quota.h"
#include "server/store/store.h"

#define FRAME_CLASSES 80 /* the largest are longer than LIMIT_PUSH_BYTES */

/* Owner: one shard's thread. */
struct frame_pool {
    const struct store_ops *store; /* makes the buffers */
    struct quota *quota;
    uint64_t lent_bytes;
    uint64_t idle_bytes, idle_limit;
    struct idle_buffer *idle[FRAME_CLASSES];
};

void frame_pool_init(struct frame_pool *pool, const struct store_ops *store, struct quota *quota);
/* Everything lent must be back. */
void frame_pool_fini(struct frame_pool *pool);

/* At least `bytes`, aligned to 64, charged to the quota. bytes <= LIMIT_PUSH_BYTES. On failure
 * NULL and `e` says why: EMBD_BUSY with value and limit, or EMBD_NO_MEMORY. */
void *frame_pool_take(struct frame_pool *pool, uint64_t bytes, struct embd__error *e);
/* `bytes` as given to take. */
void frame_pool_give(struct frame_pool *pool, void *buffer, uint64_t bytes);

/* Bytes charged for a buffer of `bytes`. */
uint64_t frame_pool_charge(uint64_t bytes);

/* Frees what is not lent: for times of quiet. */
void frame_pool_trim(struct frame_pool *pool);

#endif
