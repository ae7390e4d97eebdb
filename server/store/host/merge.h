/* merge.h - the distinct keys of one request, in order of their first occurrence, with the
 * occurrences of each and its index entry.
 *
 * A push makes one optimizer step for a key however often it occurs. The occurrences of a key form
 * a chain in request order. A small table of 4-byte cells (part of the hash, number of the distinct
 * key) that fits the cache finds equal keys. Meanwhile the buckets of the keys found so far arrive
 * from memory, so that merging and looking up take hardly longer than the longer of the two. */
#ifndef EMBD_HOST_MERGE_H
#define EMBD_HOST_MERGE_H

#include "server/store/host/index.h"
#include "server/store/store.h"

struct distinct {
    uint64_t hash;        /* index_hash of key and slot */
    uint32_t ref;         /* what the index says of it */
    uint32_t first, last; /* occurrences: positions in the request's keys */
    uint32_t slot : 10;
    uint32_t repeats : 22; /* occurrences - 1 */
};

/* Memory is kept for the next request, up to MERGE_KEEP_KEYS. */
struct merge {
    struct distinct *distinct; /* [n] */
    uint32_t n;
    uint32_t *next;   /* [n_keys]: the following occurrence of the same key; unset for the last */
    uint32_t *row_of; /* [n_keys]: the request's row that a key belongs to; with offsets only */
    uint32_t *cells;
    uint32_t capacity; /* keys there is room for */
    uint64_t ticket;   /* number of the ticket these keys were merged for; 0: none waits for them */
};

#define MERGE_KEEP_KEYS (1u << 18)

/* A request being merged. Keys are hashed a block ahead, so that their cells are in the nearest
 * cache. */
#define MERGE_BLOCK 16u
struct merging {
    struct merge *merge;
    const struct store_keys *in;
    const struct index *index;
    uint32_t cell_mask;
    uint32_t looked, found; /* distinct keys that have passed index_find_home, index_find_rest */
    uint32_t at;            /* the next key to be merged, of a block */
    uint64_t hash[2 * MERGE_BLOCK];
    const struct index_bucket *home[2 * MERGE_BLOCK]; /* of distinct keys, by their number */
};

/* A merge in several steps, between which the index does not change. Out of memory: false, nothing
 * merged. */
bool merge_begin(struct merging *work, struct merge *merge, const struct store_keys *in,
                 const struct index *index);
/* Up to key `end`: of a block, or the last. */
void merge_some(struct merging *work, uint32_t end);
/* All of it. */
bool merge_keys(struct merge *merge, const struct store_keys *in, const struct index *index);
/* A merge is valid until the index changes; then no ticket must find it. */
static inline void merge_forget(struct merge *merge)
{
    merge->ticket = 0;
}

/* Room for a number for each key, until keys are merged again. */
static inline uint64_t *merge_space(struct merge *merge)
{
    return (uint64_t *)(void *)merge->cells;
}

/* After a request: gives back memory that only a large one needs. */
void merge_end(struct merge *merge);
void merge_fini(struct merge *merge);
uint64_t merge_bytes(const struct merge *merge);

#endif
