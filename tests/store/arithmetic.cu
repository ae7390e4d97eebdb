/* arithmetic.cu - the arithmetic that all stores share, in a kernel: it must compile as CUDA C++.
 */
#include "proto/combine.h"
#include "proto/initializer.h"
#include "server/store/optimizer.h"

__global__ void first_values(struct initializer init, const uint64_t *keys, const uint32_t *slots,
                             float *rows, uint32_t dim)
{
    embd__initializer_row(&init, keys[threadIdx.x], slots[threadIdx.x],
                          rows + (size_t)threadIdx.x * dim, dim);
}

template <embd_optimizer_kind kind>
__global__ void step(struct optimizer_step p, float *w, float *s0, float *s1, const float *g,
                     uint32_t dim)
{
    if (kind == EMBD_OPTIMIZER_ROWWISE_ADAGRAD) {
        if (threadIdx.x == 0)
            *s0 = optimizer_rowwise(*s0, optimizer_squares(g, dim), dim);
        __syncthreads();
        float v = *s0;
        optimizer_column(kind, &p, w + threadIdx.x, &v, nullptr, g[threadIdx.x]);
    } else {
        optimizer_column(kind, &p, w + threadIdx.x, s0 + threadIdx.x, s1 + threadIdx.x,
                         g[threadIdx.x]);
    }
}

template __global__ void step<EMBD_OPTIMIZER_SGD>(optimizer_step, float *, float *, float *,
                                                  const float *, uint32_t);
template __global__ void step<EMBD_OPTIMIZER_MOMENTUM>(optimizer_step, float *, float *, float *,
                                                       const float *, uint32_t);
template __global__ void step<EMBD_OPTIMIZER_NESTEROV>(optimizer_step, float *, float *, float *,
                                                       const float *, uint32_t);
template __global__ void step<EMBD_OPTIMIZER_ADAGRAD>(optimizer_step, float *, float *, float *,
                                                      const float *, uint32_t);
template __global__ void step<EMBD_OPTIMIZER_ROWWISE_ADAGRAD>(optimizer_step, float *, float *,
                                                              float *, const float *, uint32_t);
template __global__ void step<EMBD_OPTIMIZER_ADAM>(optimizer_step, float *, float *, float *,
                                                   const float *, uint32_t);
template __global__ void step<EMBD_OPTIMIZER_RMSPROP>(optimizer_step, float *, float *, float *,
                                                      const float *, uint32_t);
template __global__ void step<EMBD_OPTIMIZER_FTRL>(optimizer_step, float *, float *, float *,
                                                   const float *, uint32_t);

__global__ void pool(const void *rows, embd_dtype dtype, const float *weights, float *out,
                     void *rounded, uint32_t n, uint32_t dim, embd_combiner combiner)
{
    float row[32];
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t c = 0; c < dim; c++)
            row[c] = embd__f32_from_half(((const uint16_t *)rows)[i * dim + c], dtype);
        if (i == 0)
            embd__combine_first_weighted(out, row, weights[i], dim);
        else
            embd__combine_add_weighted(out, row, weights[i], dim);
    }
    embd__combine_divide(out, embd__divisor(combiner, n, weights), dim);
    for (uint32_t c = 0; c < dim; c++)
        ((uint16_t *)rounded)[c] = embd__half_from_f32(out[c], dtype);
}

optimizer_step begin(const embd_schema *s, uint64_t t)
{
    return optimizer_begin(s, 0.0f, t);
}
