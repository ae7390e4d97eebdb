/* pool.cu - every pull that is not a plain copy: pooled rows, weights, other dtypes, odd widths. A
 * lane makes four columns of one output row, from the first key to the last: the sum has the order
 * of the CSR (combine.h) and no reduction between lanes is needed. */
#include "server/store/cuda/kernels/own.cuh"
#include "server/store/cuda/kernels/pool.cuh"

/* Own: key_set where refs may be REF_OUTSIDE; keys are single ones then. */
template <bool IS_CODED, class Own>
static __global__ void __launch_bounds__(256) pool(table_view t, pull_view p, const uint32_t *refs)
{
    uint32_t fours = fours_of(t.dim);
    uint64_t n = (uint64_t)(p.in.n_rows - p.first_row) * fours;
    for (uint64_t i = lane_index(); i < n; i += lane_count()) {
        uint64_t row = p.first_row + i / fours;
        if (!std::is_same<Own, own_all>::value && is_outside<Own>(refs[row]))
            continue;
        uint32_t column = (uint32_t)(i % fours) * 4;
        four sum = pooled_columns<IS_CODED>(t, p, refs, row, column);
        packed_store(p.values, p.dtype, row * t.dim, column, t.dim, p.is_aligned, sum);
    }
}

int launch_pool(struct table_view t, struct pull_view pull, const uint32_t *refs, void *stream)
{
    uint64_t n_rows = pull.in.n_rows - pull.first_row;
    struct shape s = shape_of(n_rows * ((t.dim + 3) / 4));
    bool is_coded = embd__dtype_is_coded(t.dtype);
    if (pull.in.own)
        return is_coded ? LAUNCH((pool<true, key_set>), s.grid, s.block, stream, t, pull, refs)
                        : LAUNCH((pool<false, key_set>), s.grid, s.block, stream, t, pull, refs);
    return is_coded ? LAUNCH((pool<true, own_all>), s.grid, s.block, stream, t, pull, refs)
                    : LAUNCH((pool<false, own_all>), s.grid, s.block, stream, t, pull, refs);
}
