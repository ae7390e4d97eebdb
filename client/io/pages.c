/* pages.c - see pages.h. A pool's first blocks are as large as what it has: a client of a few
 * shards takes what these need, one of many a huge page at a time. */
#include "client/io/pages.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_BYTES ((size_t)2 << 20)
#define LINE_BYTES ((size_t)64)
/* With so much of small pages the pool goes on in huge ones. */
#define SMALL_BYTES ((size_t)256 << 10)

struct pool_block {
    struct pool_block *next;
    void *memory;
};

static size_t round_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

void *embd__pages_new(size_t bytes)
{
    size_t whole = bytes / HUGE_BYTES * HUGE_BYTES, unit = whole > 0 ? HUGE_BYTES : LINE_BYTES;
    void *memory = aligned_alloc(unit, round_up(bytes, unit)); /* what is not used takes nothing */
    if (memory != NULL && whole > 0)
        (void)madvise(memory, whole, MADV_HUGEPAGE); /* without it all is as slow as it was */
    return memory;
}

void embd__pool_init(struct pool *pool, size_t piece_bytes)
{
    pthread_mutex_init(&pool->mutex, NULL);
    pool->piece_bytes = round_up(piece_bytes, LINE_BYTES);
}

void embd__pool_fini(struct pool *pool)
{
    while (pool->blocks != NULL) {
        struct pool_block *block = pool->blocks;
        pool->blocks = block->next;
        free(block->memory);
        free(block);
    }
    pthread_mutex_destroy(&pool->mutex);
}

/* As much again as was taken before; then by huge pages. */
static size_t next_bytes(const struct pool *pool)
{
    if (pool->taken >= SMALL_BYTES)
        return round_up(pool->piece_bytes, HUGE_BYTES);
    return pool->taken > 0 ? pool->taken : pool->piece_bytes;
}

static bool add_block(struct pool *pool)
{
    size_t bytes = next_bytes(pool);
    struct pool_block *block = malloc(sizeof *block);
    void *memory = block != NULL ? embd__pages_new(bytes) : NULL;
    if (memory == NULL) {
        free(block);
        return false;
    }
    *block = (struct pool_block){pool->blocks, memory};
    pool->blocks = block;
    pool->at = memory;
    pool->left = bytes;
    return true;
}

static void *take(struct pool *pool)
{
    void *piece = pool->given;
    if (piece != NULL) {
        memcpy(&pool->given, piece, sizeof pool->given);
        return piece;
    }
    if (pool->left < pool->piece_bytes && !add_block(pool))
        return NULL;
    piece = pool->at;
    pool->at += pool->piece_bytes;
    pool->left -= pool->piece_bytes;
    pool->taken += pool->piece_bytes;
    return piece;
}

void *embd__pool_take(struct pool *pool)
{
    pthread_mutex_lock(&pool->mutex);
    void *piece = take(pool);
    pthread_mutex_unlock(&pool->mutex);
    return piece != NULL ? memset(piece, 0, pool->piece_bytes) : NULL;
}

void embd__pool_give(struct pool *pool, void *piece)
{
    pthread_mutex_lock(&pool->mutex);
    memcpy(piece, &pool->given, sizeof pool->given);
    pool->given = piece;
    pthread_mutex_unlock(&pool->mutex);
}
