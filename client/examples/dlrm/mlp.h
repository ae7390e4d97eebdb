/* mlp.h - a layer of a multi-layer perceptron: forward, backward, one AdaGrad step. */
#ifndef DLRM_MLP_H
#define DLRM_MLP_H

#include <stdbool.h>
#include <stdint.h>

typedef struct layer {
    uint32_t n_in, n_out;
    bool relu;       /* y = max(0, x W + b); otherwise y = x W + b */
    float *weights;  /* [n_in + 1][n_out] the last row is b */
    float *gradient; /* same shape: sums since the last step */
    float *squares;  /* same shape: of AdaGrad */
} layer;

/* First weights uniform in +-sqrt(3 / n_in), a function of the seed. False: no memory. */
bool layer_init(layer *l, uint32_t n_in, uint32_t n_out, bool relu, uint64_t seed);
void layer_free(layer *l);

void layer_forward(const layer *l, const float *x, float *y);

/* Takes the gradient gy of y, which it changes; adds that of the weights; sets gx, unless NULL, to
 * that of x. */
void layer_backward(layer *l, const float *x, const float *y, float *gy, float *gx);

/* One step with the gradient / n, which is then 0. */
void layer_step(layer *l, float learning_rate, float n);

/* Sum of a[i] * b[i], always in the same order. */
float dot(const float *a, const float *b, uint32_t n);

#endif
