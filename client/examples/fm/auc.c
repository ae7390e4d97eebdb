/* auc.c - the Mann-Whitney statistic over sorted scores.
 *
 * Each positive counts the negatives below it, and half of those beside it. Counts are whole
 * numbers (of halves), so the result does not depend on the order of summation: it is exact up
 * to one division. */
#include "client/examples/fm/auc.h"

#include <stdint.h>
#include <stdlib.h>

static int by_score(const void *a, const void *b)
{
    float x = ((const scored *)a)->score, y = ((const scored *)b)->score;
    return (x > y) - (x < y);
}

double auc(scored *samples, size_t n)
{
    qsort(samples, n, sizeof *samples, by_score);
    uint64_t halves = 0, positives = 0, negatives = 0;
    for (size_t i = 0; i < n;) {
        uint64_t p = 0, q = 0;
        float score = samples[i].score;
        do
            *(samples[i].label > 0.5f ? &p : &q) += 1;
        while (++i < n && samples[i].score == score);
        halves += p * (2 * negatives + q);
        positives += p;
        negatives += q;
    }
    if (positives == 0 || negatives == 0)
        return 0.5;
    return (double)halves / (2.0 * (double)positives * (double)negatives);
}
