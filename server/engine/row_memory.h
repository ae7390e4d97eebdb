/* row_memory.h - how much memory rows may take: the setting row_memory, one figure for all shards
 * whose rows are in one memory, the machine's or a GPU's.
 *
 * What counts are rows with their state, keys, candidates, and copies for cuts: memory_bytes of
 * store_stats. A push, an inserting pull or a load that needs more than is left is refused before
 * its record is written (capacity.h). What a journal has was accepted, so a replay asks nobody: it
 * takes what it needs, which is about what the tables took before.
 *
 * Pushes whose records are being written are counted when they are applied; those of one table see
 * each other (store_ticket), those of several tables or shards may together pass the limit by what
 * they bring. A push that is applied in slices is counted as a whole before its first row is made
 * (store_change.claim); without a record it is refused then if others have taken the room. Copies
 * for cuts may pass it by an eighth. The rest of what the machine has beyond the limit is left for
 * the process itself and for what a start takes more. */
#ifndef EMBD_ENGINE_ROW_MEMORY_H
#define EMBD_ENGINE_ROW_MEMORY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "server/store/store.h"

#define ROW_MEMORY_UNLIMITED UINT64_MAX

/* Shared by threads. */
struct row_memory {
    _Atomic uint64_t used;
    _Atomic uint64_t limit; /* 0: not known yet */
    /* Bytes used when a request was refused; 0: none was since there was room again. A device's
     * memory comes in steps, so that may be far below the limit. */
    _Atomic uint64_t refused_at;
    atomic_uint n_shards; /* whose rows are in it */
    atomic_bool is_told;  /* that little is left */
};

/* The memory, of memories[STORE_PLACES], that has the rows of the calling thread's stores. Where
 * its limit is not known, that is 0.8 of what is free of a device. */
struct row_memory *row_memory_join(struct row_memory *memories, const struct store_ops *ops);

/* `*counted`, which it counted before, has become `bytes`. */
static inline void row_memory_count(struct row_memory *memory, uint64_t *counted, uint64_t bytes)
{
    if (bytes == *counted)
        return;
    atomic_fetch_add_explicit(&memory->used, bytes - *counted, memory_order_relaxed);
    *counted = bytes;
}

/* A request that needs memory beyond the limit is refused. */
void row_memory_refuse(struct row_memory *memory);
/* True: nine tenths of the limit have just been reached, or a request was refused, and it is time
 * to say so. */
bool row_memory_is_low(struct row_memory *memory);

/* This shard's part of the limit; 0: there is none. */
uint64_t row_memory_share(const struct row_memory *memory);

static inline uint64_t row_memory_limit(const struct row_memory *memory)
{
    return atomic_load_explicit(&memory->limit, memory_order_relaxed);
}

/* Bytes below the limit, and `beyond` above it, that are left. */
static inline uint64_t row_memory_room(const struct row_memory *memory, uint64_t beyond)
{
    uint64_t used = atomic_load_explicit(&memory->used, memory_order_relaxed);
    uint64_t limit = row_memory_limit(memory);
    uint64_t most = limit > UINT64_MAX - beyond ? UINT64_MAX : limit + beyond;
    return most > used ? most - used : 0;
}

#endif
