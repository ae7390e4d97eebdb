/* gradient.cuh - the gradients of a push as kernels read them. */
#ifndef EMBD_CUDA_GRADIENT_CUH
#define EMBD_CUDA_GRADIENT_CUH

#include "server/store/cuda/kernels/values.cuh"

/* IS_PLAIN: rows and gradients are aligned f32, dim is a multiple of four, and there are no
 * weights. Nearly all pushes are plain; all loads then start before a value is needed. */
static inline bool is_plain(const table_view &t, const push_view &p)
{
    return t.dtype == EMBD_DTYPE_F32 && p.dtype == EMBD_DTYPE_F32 && p.is_aligned &&
           p.in.weights == nullptr && t.dim == lanes_for(t.dim) * 4;
}

__device__ static inline uint32_t gradient_row(const push_view &p, uint32_t k)
{
    return p.in.row_of ? p.in.row_of[k] : k;
}

template <bool IS_PLAIN>
__device__ static inline four gradient_at(const table_view &t, const push_view &p, uint64_t row,
                                          uint32_t column)
{
    if (IS_PLAIN)
        return four_load(p.grads, EMBD_DTYPE_F32, row * t.dim + column);
    return packed_load(p.grads, p.dtype, row * t.dim, column, t.dim, p.is_aligned);
}

#endif
