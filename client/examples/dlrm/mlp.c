/* mlp.c - a layer of a multi-layer perceptron, in plain loops that a compiler can vectorize. */
#include "client/examples/dlrm/mlp.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LANES 8 /* partial sums of a dot product */

static size_t n_weights(const layer *l)
{
    return ((size_t)l->n_in + 1) * l->n_out;
}

/* In [-1, 1). */
static float next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (float)(*state >> 40) * 0x1p-23f - 1;
}

bool layer_init(layer *l, uint32_t n_in, uint32_t n_out, bool relu, uint64_t seed)
{
    *l = (layer){.n_in = n_in, .n_out = n_out, .relu = relu};
    l->weights = calloc(n_weights(l), sizeof *l->weights);
    l->gradient = calloc(n_weights(l), sizeof *l->gradient);
    l->squares = calloc(n_weights(l), sizeof *l->squares);
    if (!l->weights || !l->gradient || !l->squares)
        return false;
    float bound = sqrtf(3 / (float)n_in);
    for (size_t i = 0; i < (size_t)n_in * n_out; i++)
        l->weights[i] = bound * next_random(&seed);
    return true;
}

void layer_free(layer *l)
{
    free(l->weights);
    free(l->gradient);
    free(l->squares);
    *l = (layer){0};
}

float dot(const float *a, const float *b, uint32_t n)
{
    float lanes[LANES] = {0}, sum = 0;
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (uint32_t k = 0; k < LANES; k++)
            lanes[k] += a[i + k] * b[i + k];
    for (uint32_t k = 0; k < LANES; k++)
        sum += lanes[k];
    for (; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

void layer_forward(const layer *l, const float *x, float *restrict y)
{
    const float *row = l->weights;
    memcpy(y, row + (size_t)l->n_in * l->n_out, l->n_out * sizeof *y);
    for (uint32_t i = 0; i < l->n_in; i++, row += l->n_out)
        for (uint32_t o = 0; o < l->n_out; o++)
            y[o] += x[i] * row[o];
    for (uint32_t o = 0; l->relu && o < l->n_out; o++)
        y[o] = y[o] > 0 ? y[o] : 0;
}

void layer_backward(layer *l, const float *x, const float *y, float *gy, float *gx)
{
    float *restrict gradient = l->gradient;
    for (uint32_t o = 0; l->relu && o < l->n_out; o++)
        gy[o] = y[o] > 0 ? gy[o] : 0;
    for (uint32_t i = 0; i <= l->n_in; i++, gradient += l->n_out) {
        float of = i < l->n_in ? x[i] : 1;
        for (uint32_t o = 0; o < l->n_out; o++)
            gradient[o] += of * gy[o];
    }
    for (uint32_t i = 0; gx && i < l->n_in; i++)
        gx[i] = dot(l->weights + (size_t)i * l->n_out, gy, l->n_out);
}

void layer_step(layer *l, float learning_rate, float n)
{
    for (size_t i = 0; i < n_weights(l); i++) {
        float g = l->gradient[i] / n;
        l->squares[i] += g * g;
        l->weights[i] -= learning_rate * g / (sqrtf(l->squares[i]) + 1e-7f);
        l->gradient[i] = 0;
    }
}
