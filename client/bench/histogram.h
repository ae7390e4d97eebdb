/* histogram.h - latencies by logarithmic buckets: any range, 1.6 % wide, fixed memory. */
#ifndef EMBD_BENCH_HISTOGRAM_H
#define EMBD_BENCH_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_SUB_BITS 6u /* 64 buckets per power of two */
#define HISTOGRAM_BUCKETS  ((64u - HISTOGRAM_SUB_BITS + 1) << HISTOGRAM_SUB_BITS)

struct histogram {
    uint64_t n;
    uint64_t counts[HISTOGRAM_BUCKETS];
};

void histogram_add(struct histogram *h, uint64_t value);
void histogram_merge(struct histogram *into, const struct histogram *from);

/* The value that `share` (0..1) of all values do not exceed, to the width of a bucket (its middle);
 * NaN when empty. */
double histogram_quantile(const struct histogram *h, double share);

#endif
