/* histogram.h - how often a duration was how long, in buckets that are a quarter of a power of two
 * wide: a quantile read from it is off by 12.5 % at most. Adding costs a few instructions and one
 * cache line, so it stays on. Owner: one thread. */
#ifndef EMBD_SERVICE_HISTOGRAM_H
#define EMBD_SERVICE_HISTOGRAM_H

#include <stdint.h>

/* Durations of up to 2^LOW ns share the first bucket, those beyond 2^HIGH ns (69 s) the last. */
#define HISTOGRAM_LOW     8
#define HISTOGRAM_HIGH    36
#define HISTOGRAM_BUCKETS ((HISTOGRAM_HIGH - HISTOGRAM_LOW) * 4 + 2)

struct histogram {
    uint64_t sum_ns;
    uint64_t counts[HISTOGRAM_BUCKETS];
};

/* Bucket i holds what is more than the bound of bucket i - 1 and at most its own. */
static inline uint32_t histogram_bucket(uint64_t ns)
{
    uint64_t below = ns > 0 ? ns - 1 : 0;
    if (below >> HISTOGRAM_LOW == 0)
        return 0;
    if (below >> HISTOGRAM_HIGH != 0)
        return HISTOGRAM_BUCKETS - 1;
    uint32_t octave = 63u - (uint32_t)__builtin_clzll(below);
    return 1 + (octave - HISTOGRAM_LOW) * 4 + (uint32_t)(below >> (octave - 2) & 3);
}

/* Counted `times` times. */
static inline void histogram_add(struct histogram *h, uint64_t ns, uint64_t times)
{
    h->sum_ns += ns * times;
    h->counts[histogram_bucket(ns)] += times;
}

/* The longest duration bucket i holds; UINT64_MAX for the last. */
uint64_t histogram_bound(uint32_t bucket);

uint64_t histogram_count(const struct histogram *h);

/* How many lasted at most 2^power ns; power is HISTOGRAM_LOW to HISTOGRAM_HIGH. */
uint64_t histogram_up_to(const struct histogram *h, uint32_t power);

/* The duration that a part of `quantile` (0 to 1) of what was added to `h` since it was `since`
 * (NULL: ever) did not pass; 0 where there was none. */
uint64_t histogram_quantile(const struct histogram *h, const struct histogram *since,
                            double quantile);

#endif
