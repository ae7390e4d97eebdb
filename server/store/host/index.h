/* index.h - from a key to its row: a hash table that grows without a pause.
 *
 * An entry is 16 bytes, four of them are a bucket, which is one cache line; a find starts at the
 * bucket that the low bits of the hash name and goes on to the next while buckets are full. Buckets
 * fill from the front, and what is removed is filled up from behind, so an entry that is empty ends
 * the search.
 *
 * Buckets lie in segments of at most 2 MiB, reached through a directory by the high bits of the
 * hash (extendible hashing): a full segment is split in two, which takes about a millisecond,
 * however large the table is; rows do not move. A small table has one small segment, which doubles.
 *
 * Hashes fall so evenly that all segments would be full at once, and a push that finds them so
 * would split them all. So they are split ahead, one after another, while the table goes from 0.62
 * to 0.76 full (linear hashing): 65,536 new keys split four, in a table of any size. What is found
 * fuller than 0.8 all the same, because keys were made to fall together, is split there and then.
 *
 * An entry holds the hash in place of the key: index_hash is a bijection for each slot, so nothing
 * is lost (index_key), no key value is special, and splits need not hash again. It shares nothing
 * with the hash that routes keys to shards, which would leave most buckets of a shard empty. */
#ifndef EMBD_HOST_INDEX_H
#define EMBD_HOST_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/store/host/memory.h"
#include "server/store/secret.h"

/* The value of an index entry. 0: the entry is empty. Top bit clear: row + 1. Top bit set: a
 * candidate, a key without a row that was named the given number of times, at least once, in the
 * given generation. */
#define INDEX_CANDIDATE  0x80000000u
#define INDEX_SIGHTS_MAX 0x3fffffffu
#define INDEX_GENERATION 0x40000000u /* of a candidate: candidates.c */
#define INDEX_ROWS_MAX   0x7fffffffu /* rows of a table: row + 1 keeps the top bit clear */

static inline bool index_has_row(uint32_t ref)
{
    return ref != 0 && !(ref & INDEX_CANDIDATE);
}

struct index_entry {
    uint64_t hash;
    uint32_t ref;
    uint32_t slot; /* slot tables, else 0 */
};

#define INDEX_BUCKET 4u
/* A segment has no more entries than this. */
#define INDEX_SEGMENT_MAX (1u << 17)
/* 2^20 segments hold 10^11 keys. Keys made to collide reach this early: a split then does not
 * separate them. */
#define INDEX_DEPTH_MAX 20u

/* Four entries, field by field: what a find compares lies together. */
struct index_bucket {
    uint64_t hash[INDEX_BUCKET];
    uint32_t ref[INDEX_BUCKET];
    uint32_t slot[INDEX_BUCKET];
};

struct segment {
    struct index_bucket *buckets; /* aligned to a line */
    uint32_t used;
    uint32_t pending; /* during index_reserve: entries that are to come */
    uint32_t depth;   /* high bits of the hash that all its entries share */
    uint64_t moved;   /* the index's n_moves when its entries last changed their places */
};

/* The buckets stand beside their segment to save a find one access. */
struct index_place {
    struct index_bucket *buckets;
    struct segment *segment;
};

struct index {
    /* [1 << depth]; a segment stands in 1 << (depth - its depth) places. */
    struct index_place *directory;
    uint32_t depth;
    uint32_t bucket_mask; /* buckets of a segment - 1; the same for all */
    uint64_t n_segments;
    uint64_t n_entries;
    uint64_t n_moves; /* times that entries changed their places */
    /* Splits ahead: of the 1 << level parts of all hashes the first n_split have segments of more
     * than `level` bits, the others of `level` at least. */
    uint32_t level, n_split;
    uint64_t n_reserved; /* entries that room was made for at once: none of it ahead of them */
};

/* Out of memory: false, and the index is as if it was never there (open) or as it was (reserve). */
bool index_open(struct index *index);
void index_close(struct index *index);

/* Makes room for new keys of these hashes, so that index_put of them cannot fail. */
bool index_reserve(struct index *index, const uint64_t *hashes, size_t n);
/* Makes room for n more keys, unless their hashes were made to fall together. */
bool index_reserve_more(struct index *index, uint64_t n);
/* Bytes that n more keys would add at most, unless their hashes were made to fall together: a table
 * that is copied counts beside its copy. */
uint64_t index_growth(const struct index *index, uint64_t n);
/* Makes room for about n keys in an empty index. */
bool index_reserve_count(struct index *index, uint64_t n);

/* Sets what is known of a key, new or old; ref is not 0. New ones need room, see index_reserve. */
void index_put(struct index *index, uint64_t hash, uint32_t slot, uint32_t ref);

/* Forgets a key; false: it was not known. */
bool index_remove(struct index *index, uint64_t hash, uint32_t slot);

/* Entry number *at in an order that stays until the next index_put of a new key or index_remove:
 * gives the first used entry at or after *at and moves *at behind it. false: there is none, and *at
 * is UINT64_MAX. */
bool index_next(const struct index *index, uint64_t *at, struct index_entry *out);

/* A number that is another one after entries of the segment that has `hash` changed their places.
 */
uint64_t index_moved(const struct index *index, uint64_t hash);
/* The next used entry, from number *at on, of the segment that has `hash`; moves *at behind it, in
 * an order that stays while index_moved does. false: there is none, and *next_out is the first hash
 * of the next segment, 0 after the last. */
bool index_next_of(const struct index *index, uint64_t hash, uint64_t *at, struct index_entry *out,
                   uint64_t *next_out);

/* The buckets of the segment that has `hash`, [*n_out], entries at the front of each; *next_out as
 * above. */
const struct index_bucket *index_segment(const struct index *index, uint64_t hash, uint64_t *n_out,
                                         uint64_t *next_out);

uint64_t index_bytes(const struct index *index);

#define INDEX_SLOT_STEP 0x9e3779b97f4a7c15ULL

/* Steele, Lea and Flood's mix of splitmix64, over key + slot * an odd constant, with the secret of
 * the process: who does not know it cannot choose keys that fall together. */
static inline uint64_t index_hash(uint64_t key, uint32_t slot)
{
    uint64_t x = (key ^ store_secret.first) + slot * INDEX_SLOT_STEP;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27) ^ store_secret.second) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

/* The key that has this hash in this slot: the steps above backwards, with the inverses of the
 * factors. */
static inline uint64_t index_key(uint64_t hash, uint32_t slot)
{
    uint64_t x = hash ^ (hash >> 31) ^ (hash >> 62);
    x = (x * 0x319642b2d24d8ec3ULL) ^ store_secret.second;
    x ^= (x >> 27) ^ (x >> 54);
    x *= 0x96de1b173f119089ULL;
    x ^= (x >> 30) ^ (x >> 60);
    return (x - slot * INDEX_SLOT_STEP) ^ store_secret.first;
}

static inline struct index_place *index_place(const struct index *index, uint64_t hash)
{
    return &index->directory[hash >> 1 >> (63 - index->depth)];
}

static inline struct index_bucket *index_bucket(const struct index *index, uint64_t hash)
{
    return &index_place(index, hash)->buckets[hash & index->bucket_mask];
}

/* Into the second-level cache, as rows_prefetch. */
MEMORY_PREFETCH void index_prefetch(const struct index *index, uint64_t hash)
{
    __builtin_prefetch(index_bucket(index, hash), 0, 2);
}

/* The reference of a key that stands in this bucket, or 0. All four are compared without a branch
 * between, because which of them is the one cannot be predicted. An empty entry may match too (hash
 * 0); it stands behind the real one and its ref is 0. `has_slots` should be a constant of the
 * caller's. */
static inline uint32_t index_look(const struct index_bucket *b, uint64_t hash, uint32_t slot,
                                  bool has_slots)
{
    uint32_t ref = 0;
    for (unsigned i = INDEX_BUCKET; i-- > 0;) {
        bool is_it = b->hash[i] == hash;
        if (has_slots)
            is_it &= b->slot[i] == slot;
        ref = is_it ? b->ref[i] : ref;
    }
    return ref;
}

static inline bool index_is_full(const struct index_bucket *b)
{
    return b->ref[INDEX_BUCKET - 1] != 0;
}

/* The entry of a key; 0: none. */
static inline uint32_t index_find(const struct index *index, uint64_t hash, uint32_t slot)
{
    const struct index_bucket *buckets = index_place(index, hash)->buckets;
    for (uint64_t at = hash & index->bucket_mask;; at = (at + 1) & index->bucket_mask) {
        uint32_t ref = index_look(&buckets[at], hash, slot, true);
        if (ref != 0 || !index_is_full(&buckets[at]))
            return ref;
    }
}

/* Not known yet: no candidate has been seen 0 times. */
#define INDEX_PENDING INDEX_CANDIDATE

/* For finding many keys: index_prefetch, some keys later index_find_home, some keys later
 * index_find_rest. At 0.6 load one key in ten is outside its first bucket; its second is prefetched
 * here instead of waited for. */
static inline uint32_t index_find_home(const struct index *index, uint64_t hash, uint32_t slot,
                                       bool has_slots)
{
    const struct index_bucket *bucket = index_bucket(index, hash);
    uint32_t ref = index_look(bucket, hash, slot, has_slots);
    if (ref != 0 || !index_is_full(bucket))
        return ref;
    index_prefetch(index, hash + 1);
    return INDEX_PENDING;
}
static inline uint32_t index_find_rest(const struct index *index, uint64_t hash, uint32_t slot,
                                       uint32_t ref)
{
    return ref == INDEX_PENDING ? index_find(index, hash, slot) : ref;
}

#endif
