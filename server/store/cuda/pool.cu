/* pool.cu - every pull that is no plain copy: pooled rows, weights, other dtypes, odd widths. A
 * lane makes four columns of one output row, from the first key to the last, so that a sum has the
 * order of the CSR (combine.h) and lanes never have to meet. */
#include "keytable.cuh"
#include "values.cuh"

#define AT_ONCE 4u /* rows on their way to a lane */

struct place {
    uint32_t begin, end, column;
    uint32_t slot;
};

__device__ static inline four term(const table_view &t, const pull_view &p, const place &at,
                                   uint32_t k, uint32_t ref)
{
    if (is_row(ref))
        return four_load(row_of_ref(t, ref), t.dtype, at.column);
    if (p.zero_missing)
        return four{{0.0f, 0.0f, 0.0f, 0.0f}};
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

__device__ static inline four pool_row(const table_view &t, const pull_view &p,
                                       const uint32_t *refs, const place &at)
{
    four sum = {{0.0f, 0.0f, 0.0f, 0.0f}};
    for (uint32_t k = at.begin; k < at.end; k += AT_ONCE) {
        four v[AT_ONCE];
#pragma unroll
        for (uint32_t i = 0; i < AT_ONCE; i++)
            if (k + i < at.end)
                v[i] = term(t, p, at, k + i, refs[k + i]);
#pragma unroll
        for (uint32_t i = 0; i < AT_ONCE; i++)
            if (k + i < at.end)
                add_term(&sum, v[i], p.in.weights, k + i, k + i == at.begin);
    }
    return sum;
}

static __global__ void __launch_bounds__(256) pool(table_view t, pull_view p, const uint32_t *refs)
{
    uint32_t fours = fours_of(t.dim);
    uint64_t n = (uint64_t)p.in.n_rows * fours;
    for (uint64_t i = lane_index(); i < n; i += lane_count()) {
        uint64_t row = i / fours;
        place at;
        at.column = (uint32_t)(i % fours) * 4;
        at.begin = p.in.offsets ? p.in.offsets[row] - p.in.first : (uint32_t)row;
        at.end = p.in.offsets ? p.in.offsets[row + 1] - p.in.first : (uint32_t)row + 1;
        at.slot = t.row_slots ? p.in.slots[row] : 0;
        four sum = pool_row(t, p, refs, at);
        const float *weights = p.in.weights ? p.in.weights + at.begin : nullptr;
        embd__combine_divide(sum.c, embd__divisor(p.divide, at.end - at.begin, weights), 4);
        packed_store(p.values, p.dtype, row * t.dim, at.column, t.dim, p.is_aligned, sum);
    }
}

int launch_pool(struct table_view t, struct pull_view pull, const uint32_t *refs, void *stream)
{
    struct shape s = shape_of((uint64_t)pull.in.n_rows * ((t.dim + 3) / 4));
    return LAUNCH(pool, s.grid, s.block, stream, t, pull, refs);
}
