/* hot.c - see hot.h. */
#include "server/engine/hot.h"

#include <stdlib.h>
#include <string.h>

/* Marsaglia's xorshift64: distances must only not beat in time with the requests. */
static uint64_t next_distance(struct hot *hot)
{
    uint64_t x = hot->random != 0 ? hot->random : UINT64_C(0x9e3779b97f4a7c15);
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    hot->random = x;
    return 1 + (x & (2 * HOT_STRIDE - 1));
}

void hot_take(struct hot *hot, const uint64_t *keys, uint32_t n_keys)
{
    uint64_t at = hot->n_skip;
    for (; at < n_keys; at += next_distance(hot))
        hot->keys[hot->n_taken++ % HOT_SAMPLES] = keys[at];
    hot->n_skip = at - n_keys;
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Puts a key where it belongs among the n there are; returns the new n. */
static uint32_t insert(struct hot_key *out, uint32_t n, uint32_t max, struct hot_key added)
{
    uint32_t at = n;
    while (at > 0 && out[at - 1].n < added.n)
        at--;
    if (at == max)
        return n;
    uint32_t n_after = n < max ? n - at : n - at - 1;
    memmove(out + at + 1, out + at, n_after * sizeof *out);
    out[at] = added;
    return n < max ? n + 1 : n;
}

uint32_t hot_list(const struct hot *hot, uint64_t *memory, uint32_t max, struct hot_key *out)
{
    uint32_t n_samples = hot->n_taken < HOT_SAMPLES ? (uint32_t)hot->n_taken : HOT_SAMPLES, n = 0;
    memcpy(memory, hot->keys, n_samples * sizeof *memory);
    qsort(memory, n_samples, sizeof *memory, compare);
    for (uint32_t i = 0, run; i < n_samples; i += run) {
        for (run = 1; i + run < n_samples && memory[i + run] == memory[i]; run++)
            ;
        n = insert(out, n, max, (struct hot_key){memory[i], run});
    }
    return n;
}
