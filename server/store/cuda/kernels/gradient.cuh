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

__device__ static inline uint32_t ref_at(const push_view &p, uint64_t i)
{
    return item_ref(p.items[i]);
}

__device__ static inline uint32_t position_at(const push_view &p, uint64_t i)
{
    return (uint32_t)p.items[i];
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

/* The first gradient of a sum is read apart from the others: its load starts early. */
template <bool IS_PLAIN>
__device__ static inline four sum_run(const table_view &t, const push_view &p, four first,
                                      uint32_t begin, uint32_t end, uint32_t column)
{
    four sum = first;
    if (!IS_PLAIN && p.in.weights)
        embd__combine_first_weighted(sum.c, first.c, p.in.weights[position_at(p, begin)], 4);
    for (uint32_t i = begin + 1; i < end; i++) {
        uint32_t k = position_at(p, i);
        four g = gradient_at<IS_PLAIN>(t, p, gradient_row(p, k), column);
        if (!IS_PLAIN && p.in.weights)
            embd__combine_add_weighted(sum.c, g.c, p.in.weights[k], 4);
        else
            embd__combine_add(sum.c, g.c, 4);
    }
    return sum;
}

#endif
