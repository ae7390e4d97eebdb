/* pool.cuh - four columns of a pooled row, summed from its first key to its last. */
#ifndef EMBD_CUDA_POOL_CUH
#define EMBD_CUDA_POOL_CUH

#include "server/store/cuda/kernels/keytable.cuh"
#include "server/store/cuda/kernels/values.cuh"

#define POOL_AT_ONCE 4u /* rows that a lane loads at once */

struct place {
    uint32_t begin, end, column;
    uint32_t slot;
};

template <bool IS_CODED>
__device__ static inline four term(const table_view &t, const pull_view &p, const place &at,
                                   uint32_t k, uint32_t ref)
{
    if (is_row(ref) && IS_CODED)
        return coded_load(row_of_ref(t, ref), t.dtype, at.column);
    if (is_row(ref))
        return four_load(row_of_ref(t, ref), t.dtype, at.column);
    if (p.zero_missing)
        return four{{0.0f, 0.0f, 0.0f, 0.0f}};
    if (IS_CODED)
        return first_coded(t, p.in.keys[k], at.slot, at.column);
    return first_value(t, p.in.keys[k], at.slot, at.column);
}

__device__ static inline void add_term(four *sum, four v, const float *weights, uint32_t k,
                                       bool is_first)
{
    if (weights && is_first)
        embd__combine_first_weighted(sum->c, v.c, weights[k], 4);
    else if (weights)
        embd__combine_add_weighted(sum->c, v.c, weights[k], 4);
    else if (is_first)
        embd__combine_first(sum->c, v.c, 4);
    else
        embd__combine_add(sum->c, v.c, 4);
}

template <bool IS_CODED>
__device__ static inline four pool_row(const table_view &t, const pull_view &p,
                                       const uint32_t *refs, const place &at)
{
    four sum = {{0.0f, 0.0f, 0.0f, 0.0f}};
    for (uint32_t k = at.begin; k < at.end; k += POOL_AT_ONCE) {
        four v[POOL_AT_ONCE];
#pragma unroll
        for (uint32_t i = 0; i < POOL_AT_ONCE; i++)
            if (k + i < at.end)
                v[i] = term<IS_CODED>(t, p, at, k + i, refs[k + i]);
#pragma unroll
        for (uint32_t i = 0; i < POOL_AT_ONCE; i++)
            if (k + i < at.end)
                add_term(&sum, v[i], p.in.weights, k + i, k + i == at.begin);
    }
    return sum;
}

/* Divides the sum if the combiner asks for it. IS_CODED: rows are (rowcode.h). */
template <bool IS_CODED>
__device__ static inline four pooled_columns(const table_view &t, const pull_view &p,
                                             const uint32_t *refs, uint64_t row, uint32_t column)
{
    place at;
    at.column = column;
    at.begin = p.in.offsets ? p.in.offsets[row] - p.in.first : (uint32_t)row;
    at.end = p.in.offsets ? p.in.offsets[row + 1] - p.in.first : (uint32_t)row + 1;
    at.slot = t.row_slots ? p.in.slots[row] : 0;
    four sum = pool_row<IS_CODED>(t, p, refs, at);
    const float *weights = p.in.weights ? p.in.weights + at.begin : nullptr;
    embd__combine_divide(sum.c, embd__divisor(p.divide, at.end - at.begin, weights), 4);
    return sum;
}

#endif
