/* hot.h - a table's most frequent keys, from a sample: about one key in HOT_STRIDE of all pulled
 * and pushed, at irregular distances, the last HOT_SAMPLES of them. A sample costs a load and a
 * store. Owner: the shard's thread. */
#ifndef EMBD_ENGINE_HOT_H
#define EMBD_ENGINE_HOT_H

#include <stdint.h>

#define HOT_SAMPLES 4096u
#define HOT_STRIDE  1024u /* keys from one sample to the next, on average; a power of two */

struct hot {
    uint64_t keys[HOT_SAMPLES]; /* the newest at (n_taken - 1) % HOT_SAMPLES */
    uint64_t n_taken;
    uint64_t n_skip; /* keys to pass over before the next sample */
    uint64_t random; /* 0 before the first */
};

/* Where one of them at least is sampled. */
void hot_take(struct hot *hot, const uint64_t *keys, uint32_t n_keys);

/* Keys of a request that is being answered. */
static inline void hot_see(struct hot *hot, const uint64_t *keys, uint32_t n_keys)
{
    if (hot->n_skip < n_keys)
        hot_take(hot, keys, n_keys);
    else
        hot->n_skip -= n_keys;
}

struct hot_key {
    uint64_t key;
    uint32_t n;
};

/* The most frequent of the samples, most frequent first, then by key; at most `max`. Returns how
 * many. `memory` [HOT_SAMPLES] is used for sorting. */
uint32_t hot_list(const struct hot *hot, uint64_t *memory, uint32_t max, struct hot_key *out);

#endif
