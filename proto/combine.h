/* combine.h - how rows of a slot become one, and how a gradient goes back: each rule written once,
 * for server and client, host and device. f32 throughout, no contraction (-ffp-contract=off,
 * -fmad=false).
 *
 * A pooled row is the sum over its keys in CSR order, starting from the first term (an empty row is
 * +0), each term row * weight where there are weights; then one division where the divisor is
 * not 1. */
#ifndef EMBD_PROTO_COMBINE_H
#define EMBD_PROTO_COMBINE_H

#include <math.h>

#include "proto/dtype.h"

/* The divisor of a row with n keys and `weights` [n] or NULL. Never 0: a weight sum of 0 gives 1.
 */
EMBD_INLINE float embd__divisor(embd_combiner combiner, uint64_t n, const float *weights)
{
    if (combiner != EMBD_COMBINER_MEAN && combiner != EMBD_COMBINER_SQRTN)
        return 1.0f;
    float sum = 0.0f;
    if (weights == NULL)
        sum = (float)n;
    else
        for (uint64_t i = 0; i < n; i++)
            sum += combiner == EMBD_COMBINER_MEAN ? weights[i] : weights[i] * weights[i];
    if (sum == 0.0f)
        return 1.0f;
    return combiner == EMBD_COMBINER_MEAN ? sum : sqrtf(sum);
}

/* acc = row * weight for the first key, acc += row * weight after it; weight is not applied when 1
 * is implied. */
EMBD_INLINE void embd__combine_first(float *acc, const float *row, size_t dim)
{
    for (size_t c = 0; c < dim; c++)
        acc[c] = row[c];
}
EMBD_INLINE void embd__combine_add(float *acc, const float *row, size_t dim)
{
    for (size_t c = 0; c < dim; c++)
        acc[c] += row[c];
}
EMBD_INLINE void embd__combine_first_weighted(float *acc, const float *row, float weight,
                                              size_t dim)
{
    for (size_t c = 0; c < dim; c++)
        acc[c] = row[c] * weight;
}
EMBD_INLINE void embd__combine_add_weighted(float *acc, const float *row, float weight, size_t dim)
{
    for (size_t c = 0; c < dim; c++)
        acc[c] += row[c] * weight;
}
EMBD_INLINE void embd__combine_divide(float *acc, float divisor, size_t dim)
{
    if (divisor != 1.0f)
        for (size_t c = 0; c < dim; c++)
            acc[c] = acc[c] / divisor;
}

/* The gradient of one key of a pooled row is grad * embd__key_scale(weight, divisor), not
 * multiplied at all when both are 1 by rule (sum, no weights). */
EMBD_INLINE float embd__key_scale(float weight, float divisor)
{
    return divisor == 1.0f ? weight : weight / divisor;
}

/* Sums of gradients have one shape: a key's occurrences in request order, in runs of this many
 * added left to right, then the runs left to right. */
#define EMBD_SUM_RUN 256u

#endif
