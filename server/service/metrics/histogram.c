/* histogram.c - see histogram.h. */
#include "server/service/metrics/histogram.h"

#include <stddef.h>

uint64_t histogram_bound(uint32_t bucket)
{
    if (bucket >= HISTOGRAM_BUCKETS - 1)
        return UINT64_MAX;
    if (bucket == 0)
        return UINT64_C(1) << HISTOGRAM_LOW;
    uint32_t octave = HISTOGRAM_LOW + (bucket - 1) / 4;
    return (UINT64_C(5) + (bucket - 1) % 4) << (octave - 2);
}

uint64_t histogram_count(const struct histogram *h)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++)
        n += h->counts[i];
    return n;
}

uint64_t histogram_up_to(const struct histogram *h, uint32_t power)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i <= (power - HISTOGRAM_LOW) * 4; i++)
        n += h->counts[i];
    return n;
}

static uint64_t count_since(const struct histogram *h, const struct histogram *since, uint32_t i)
{
    return h->counts[i] - (since != NULL ? since->counts[i] : 0);
}

/* Durations are taken to be spread evenly over their bucket. */
static uint64_t within(uint32_t bucket, double part)
{
    uint64_t low = bucket > 0 ? histogram_bound(bucket - 1) : 0;
    uint64_t high = bucket < HISTOGRAM_BUCKETS - 1 ? histogram_bound(bucket) : low;
    return low + (uint64_t)((double)(high - low) * part);
}

uint64_t histogram_quantile(const struct histogram *h, const struct histogram *since,
                            double quantile)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++)
        n += count_since(h, since, i);
    double wanted = (double)n * quantile, before = 0;
    for (uint32_t i = 0; i < HISTOGRAM_BUCKETS && n > 0; i++) {
        double here = (double)count_since(h, since, i);
        if (here > 0 && before + here >= wanted)
            return within(i, (wanted - before) / here);
        before += here;
    }
    return 0;
}
