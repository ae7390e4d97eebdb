/* histogram.c - a value's bucket is its highest bit and the six bits after it. Values below 64 have
 * buckets of their own, so the scheme is exact there. */
#include "client/bench/histogram.h"

#include <math.h>

#define SUB (1u << HISTOGRAM_SUB_BITS)

static uint32_t bucket_of(uint64_t value)
{
    if (value < SUB)
        return (uint32_t)value;
    uint32_t shift = 63u - (uint32_t)__builtin_clzll(value) - HISTOGRAM_SUB_BITS;
    return (shift + 1) * SUB + (uint32_t)((value >> shift) - SUB);
}

static double middle_of(uint32_t bucket)
{
    if (bucket < SUB)
        return bucket;
    uint32_t shift = bucket / SUB - 1;
    return ldexp((double)(SUB + bucket % SUB) + 0.5, (int)shift);
}

void histogram_add(struct histogram *h, uint64_t value)
{
    h->counts[bucket_of(value)]++;
    h->n++;
}

void histogram_merge(struct histogram *into, const struct histogram *from)
{
    for (uint32_t b = 0; b < HISTOGRAM_BUCKETS; b++)
        into->counts[b] += from->counts[b];
    into->n += from->n;
}

double histogram_quantile(const struct histogram *h, double share)
{
    double wanted = share * (double)h->n;
    uint64_t seen = 0;
    for (uint32_t b = 0; b < HISTOGRAM_BUCKETS; b++) {
        seen += h->counts[b];
        if (h->counts[b] && (double)seen >= wanted)
            return middle_of(b);
    }
    return NAN;
}
