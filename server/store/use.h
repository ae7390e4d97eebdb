/* use.h - what a table that evicts remembers of each row, and which rows go first: written once for
 * host and device.
 *
 * A row's use stands last in its state: the table's step at its last push (stamp.h), and with
 * evict_lfu how often it was pushed. Which rows go depends on steps, counts and keys only, never on
 * where rows lie or on a clock: a journal that is replayed, or a dump that is loaded, evicts the
 * same. Also compiled as CUDA C++. */
#ifndef EMBD_STORE_USE_H
#define EMBD_STORE_USE_H

#include "proto/route.h"
#include "proto/stamp.h"

#define USE_COUNT_MAX 16777215.0f /* the last whole number that f32 counts to */

/* A pass takes at least this part of the capacity away, which keeps the next one far off. */
#define USE_PASS_PART 16u

/* A new row's, whose count is 0. */
EMBD_INLINE void use_begin(float *use, uint64_t step)
{
    embd__stamp_put(use, step);
}

EMBD_INLINE void use_note(float *use, uint64_t step, bool counts)
{
    embd__stamp_put(use, step);
    if (counts && use[2] < USE_COUNT_MAX)
        use[2] += 1.0f;
}

EMBD_INLINE uint64_t use_count(const float *use, bool counts)
{
    return counts ? embd__stamp_half(use[2]) : 0;
}

/* The lowest go first, compared in this order. */
struct use_rank {
    uint64_t count, stamp, mixed;
    uint32_t slot;
};

EMBD_INLINE struct use_rank use_rank_of(const float *use, bool counts, uint64_t key, uint32_t slot)
{
    struct use_rank rank;
    rank.count = use_count(use, counts);
    rank.stamp = embd__stamp_get(use);
    rank.mixed = embd__mix64(key);
    rank.slot = slot;
    return rank;
}

EMBD_INLINE bool use_goes_first(const struct use_rank *a, const struct use_rank *b)
{
    if (a->count != b->count)
        return a->count < b->count;
    if (a->stamp != b->stamp)
        return a->stamp < b->stamp;
    if (a->mixed != b->mixed)
        return a->mixed < b->mixed;
    return a->slot < b->slot;
}

/* evict_ttl: the first step at which a row has expired; UINT64_MAX: never. */
EMBD_INLINE uint64_t use_expiry(uint64_t stamp, uint64_t ttl)
{
    return stamp <= UINT64_MAX - ttl ? stamp + ttl : UINT64_MAX;
}

#endif
