/* index.h - from a key to its row: a hash table that grows without a pause, and of which at all
 * times the same part is empty.
 *
 * Five entries of 12.8 bytes are a bucket, which is one cache line; a find starts at the bucket
 * that low bits of the hash name and goes on to the next while buckets are full. Buckets fill
 * from the front, and what is removed is filled up from behind, so an entry that is empty ends the
 * search.
 *
 * Buckets lie in segments of at most 512 KiB, reached through a directory by the address of the
 * hash (extendible hashing). A segment that is 0.84 full doubles; at its full size it is split in
 * two, which takes 0.2 milliseconds, however large the table is. Rows do not move.
 *
 * Hashes fall so evenly that segments of equal parts of all hashes would be full all at once, and
 * half empty thereafter. So their parts are unequal: the address rises with the hash, at first
 * twice as fast as at last (index_address), which makes the last segment's part twice as large as
 * the first's, and the others' in between. They fill in turn, from the last to the first, and 0.6
 * of all places are in use, whatever the number of keys: 21 to 23 bytes a key.
 *
 * An entry holds the hash in place of the key: index_hash is a bijection for each slot, so nothing
 * is lost (index_key), no key value is special, and splits need not hash again. It shares nothing
 * with the hash that routes keys to shards, which would leave most buckets of a shard empty.
 *
 * Where slots distinguish keys an entry has no room for 64 bits of hash and 10 of slot. There the
 * first 4 bits of the hash are left out: a segment has less than a 16th of all hashes, and knows
 * its first. */
#ifndef EMBD_HOST_INDEX_H
#define EMBD_HOST_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

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

#define INDEX_BUCKET 5u
#define INDEX_HOME   6u /* the bits of a hash from this one on name its first bucket */
/* A segment has no more buckets than this. */
#define INDEX_BUCKETS_MAX 8192u
/* 2^20 segments hold 2 * 10^10 keys. Keys made to collide reach this early: a split then does not
 * separate them. */
#define INDEX_DEPTH_MAX 20u
/* An index has at least 32 segments: the first one has a 42nd of all hashes then, the last one a
 * 22nd. */
#define INDEX_DEPTH_MIN 5u

/* Five entries, field by field: what a find compares lies together. */
struct index_bucket {
    uint64_t word[INDEX_BUCKET]; /* the hash; slot tables: its last 60 bits, 4 bits of the slot */
    uint32_t ref[INDEX_BUCKET];
    uint32_t slots; /* slot tables: the other 6 bits of each */
};
_Static_assert(sizeof(struct index_bucket) == 64, "a bucket is a cache line");
_Static_assert(offsetof(struct index_bucket, slots) ==
                   offsetof(struct index_bucket, ref) + INDEX_BUCKET * sizeof(uint32_t),
               "index_look reads it as one more reference");

#define INDEX_LOW_SLOT  4u /* bits of a slot that stand in the word */
#define INDEX_HIGH_SLOT 6u

struct segment {
    struct index_bucket *buckets; /* aligned to a line */
    uint32_t bucket_mask;         /* buckets - 1 */
    uint32_t used;
    uint32_t pending; /* during index_reserve: entries that are to come */
    uint32_t depth;   /* high bits of the address that all its entries share */
    uint64_t first;   /* of the hashes it may have */
    uint64_t moved;   /* the index's n_moves when its entries last changed their places */
};

/* All that a find needs to know of a segment. */
struct index_place {
    const char *buckets;
    uint64_t byte_mask; /* in a hash the bits that name a bucket: (buckets - 1) * 64 */
};

struct index_chunk; /* memory of segments of full size: index_grow.c */

struct index {
    /* [1 << depth] each; a segment stands in 1 << (depth - its depth) places. */
    struct index_place *places;
    struct segment **segments;
    uint32_t depth, shift; /* 64 - depth */
    bool has_slots;        /* slots distinguish keys */
    uint64_t n_segments;
    uint64_t n_entries;
    uint64_t n_moves;      /* times that entries changed their places */
    uint64_t bucket_bytes; /* of all segments */
    struct index_chunk *chunks;
    uint32_t n_blocks_left; /* of the first chunk */
    uint64_t n_sure;        /* no segment lacks room for its share of so many more keys */
};

/* Out of memory: false, and the index is as if it was never there (open) or as it was (reserve). */
bool index_open(struct index *index, bool has_slots);
void index_close(struct index *index);

/* Makes room for new keys of these hashes, so that index_put of them cannot fail. */
bool index_reserve(struct index *index, const uint64_t *hashes, size_t n);
bool index_grow_more(struct index *index, uint64_t n);
/* Makes room for n more keys, unless their hashes were made to fall together. */
static inline bool index_reserve_more(struct index *index, uint64_t n)
{
    return n <= index->n_sure || index_grow_more(index, n);
}
/* Bytes that n more keys would add at most, unless their hashes were made to fall together: a table
 * that is copied counts beside its copy. */
uint64_t index_growth(const struct index *index, uint64_t n);

/* Sets what is known of a key, new or old; ref is not 0. New ones need room, see index_reserve. */
void index_put(struct index *index, uint64_t hash, uint32_t slot, uint32_t ref);

/* Forgets a key; false: it was not known. */
bool index_remove(struct index *index, uint64_t hash, uint32_t slot);

/* Entry number *at in an order that stays until the next index_put of a new key or index_remove:
 * gives the first used entry at or after *at and moves *at behind it. false: there is none, and *at
 * is UINT64_MAX. */
bool index_next(const struct index *index, uint64_t *at, struct index_entry *out);

/* A number that is another one after entries of the segment that has `address` changed their
 * places. */
uint64_t index_moved(const struct index *index, uint64_t address);
/* The next used entry, from number *at on, of the segment that has `address`; moves *at behind it,
 * in an order that stays while index_moved does. false: there is none, and *next_out is the first
 * address of the next segment, 0 after the last. */
bool index_next_of(const struct index *index, uint64_t address, uint64_t *at,
                   struct index_entry *out, uint64_t *next_out);

/* The segment that has `address`, entries at the front of each of its buckets; *next_out as above.
 */
const struct segment *index_segment(const struct index *index, uint64_t address,
                                    uint64_t *next_out);

static inline uint64_t index_bytes(const struct index *index)
{
    return index->bucket_bytes + index->n_segments * sizeof(struct segment) +
           ((sizeof *index->places + sizeof *index->segments) << index->depth);
}

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

/* x + (x - x^2) * 5 / 16 of the first 30 bits x of a hash, taken as a number from 0 to 1: its slope
 * falls from 1.31 to 0.69, nearly as that of log2(1 + x). So addresses rise with hashes. Two x
 * differ in the high 32 bits. */
static inline uint64_t index_address_first(uint64_t hash)
{
    uint64_t x = hash >> 34;
    return 5 * x * (UINT64_C(4509715660) - x); /* 4.2 * 2^30 - x: below 2^64 */
}

static inline uint64_t index_address(uint64_t hash)
{
    return index_address_first(hash) >> 32 << 32 | (uint32_t)(hash >> 2);
}

/* ---- a place ---- */

static inline const struct index_place *index_place(const struct index *index, uint64_t hash)
{
    return &index->places[index_address_first(hash) >> index->shift];
}

/* The bucket that a hash names, and those behind it; the last is followed by the first. */
static inline const struct index_bucket *index_bucket(const struct index_place *place,
                                                      uint64_t hash, uint64_t behind)
{
    uint64_t at = (hash + behind * sizeof(struct index_bucket)) & place->byte_mask;
    return (const struct index_bucket *)(const void *)(place->buckets + at);
}

/* Into the second-level cache, as rows_prefetch. The bucket where the search begins. */
MEMORY_PREFETCH const struct index_bucket *index_prefetch(const struct index *index, uint64_t hash)
{
    const struct index_bucket *home = index_bucket(index_place(index, hash), hash, 0);
    __builtin_prefetch(home, 0, 2);
    return home;
}

/* ---- an entry ---- */

static inline uint64_t index_word(uint64_t hash, uint32_t slot, bool has_slots)
{
    return has_slots ? hash << INDEX_LOW_SLOT | (slot & ((1u << INDEX_LOW_SLOT) - 1)) : hash;
}

static inline uint32_t index_high_slot(const struct index_bucket *b, unsigned i)
{
    return b->slots >> (INDEX_HIGH_SLOT * i) & ((1u << INDEX_HIGH_SLOT) - 1);
}

static inline uint64_t index_entry_hash(const struct index *index, const struct segment *segment,
                                        const struct index_bucket *b, unsigned i)
{
    if (!index->has_slots)
        return b->word[i];
    uint64_t mask = UINT64_MAX >> INDEX_LOW_SLOT;
    return segment->first + (((b->word[i] >> INDEX_LOW_SLOT) - segment->first) & mask);
}

static inline struct index_entry index_entry_of(const struct index *index,
                                                const struct segment *segment,
                                                const struct index_bucket *b, unsigned i)
{
    uint32_t low = (uint32_t)b->word[i] & ((1u << INDEX_LOW_SLOT) - 1);
    uint32_t slot = index->has_slots ? index_high_slot(b, i) << INDEX_LOW_SLOT | low : 0;
    return (struct index_entry){index_entry_hash(index, segment, b, i), b->ref[i], slot};
}

/* The reference of a key that stands in this bucket, or 0. All are compared without a branch
 * between, because which of them is the one cannot be predicted; gcc sees that of numbers, not of
 * references. An empty entry may match too (hash 0); it stands behind the real one and its ref is
 * 0. `has_slots` should be a constant of the caller's, false only where slots do not distinguish
 * keys: there what follows the last reference is 0 too. */
static inline uint32_t index_look(const struct index_bucket *b, uint64_t hash, uint32_t slot,
                                  bool has_slots)
{
    uint64_t word = index_word(hash, slot, has_slots);
    uint32_t at = INDEX_BUCKET, ref;
    for (uint32_t i = INDEX_BUCKET; i-- > 0;) {
        bool is_it = b->word[i] == word;
        if (has_slots)
            is_it &= index_high_slot(b, i) == slot >> INDEX_LOW_SLOT;
        at = __builtin_expect_with_probability(is_it, 1, 0.5) ? i : at;
    }
    memcpy(&ref, (const char *)b + offsetof(struct index_bucket, ref) + at * sizeof ref,
           sizeof ref);
    return has_slots && at == INDEX_BUCKET ? 0 : ref;
}

static inline bool index_is_full(const struct index_bucket *b)
{
    return b->ref[INDEX_BUCKET - 1] != 0;
}

/* The entry of a key, which does not stand in the first `passed` buckets of its search; 0: none. */
uint32_t index_find_behind(const struct index *index, uint64_t hash, uint32_t slot,
                           uint32_t passed);

/* The entry of a key; 0: none. */
static inline uint32_t index_find(const struct index *index, uint64_t hash, uint32_t slot)
{
    return index_find_behind(index, hash, slot, 0);
}

/* Not known yet: no candidate has been seen 0 times. */
#define INDEX_PENDING INDEX_CANDIDATE

/* For finding many keys: index_prefetch, some keys later index_find_home of what it returned, some
 * keys later index_find_rest. At 0.6 load one key in ten is outside its first bucket; its second is
 * prefetched here instead of waited for. */
static inline uint32_t index_find_home(const struct index_bucket *home, uint64_t hash,
                                       uint32_t slot, bool has_slots)
{
    uint32_t ref = index_look(home, hash, slot, has_slots);
    if (ref != 0 || !index_is_full(home))
        return ref;
    __builtin_prefetch(home + 1, 0, 2); /* behind the last one: in vain */
    return INDEX_PENDING;
}
static inline uint32_t index_find_rest(const struct index *index, uint64_t hash, uint32_t slot,
                                       uint32_t ref)
{
    return ref == INDEX_PENDING ? index_find_behind(index, hash, slot, 1) : ref;
}

#endif
