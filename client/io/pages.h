/* pages.h - memory that many shards' requests pass through, in huge pages where the system has
 * them: with pages of 4 KiB a call to 1000 shards misses the translation of an address for each
 * thing of each shard. */
#ifndef EMBD_IO_PAGES_H
#define EMBD_IO_PAGES_H

#include <pthread.h>
#include <stddef.h>

/* Aligned to 64; freed with free(). What fills no huge page lies in small ones, and is as much as
 * was asked for. NULL: no memory. */
void *embd__pages_new(size_t bytes);

/* Pieces of one size that lie close together. Zeroed, then embd__pool_init. Any thread. */
struct pool {
    pthread_mutex_t mutex; /* guards all */
    size_t piece_bytes;
    struct pool_block *blocks;
    void *given; /* back: each piece begins with the next one */
    char *at;    /* [left] of the last block that no piece has had */
    size_t left, taken;
};

void embd__pool_init(struct pool *pool, size_t piece_bytes);
/* Frees the pieces, too. */
void embd__pool_fini(struct pool *pool);
/* Zeroed, and aligned to 64. NULL: no memory. */
void *embd__pool_take(struct pool *pool);
void embd__pool_give(struct pool *pool, void *piece);

#endif
