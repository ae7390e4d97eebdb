/* parts.cu - adds the partial sums of a hash or modulo table's row, in the order of the owners: the
 * order fixes the bits for a given number of devices. Owners without a key of the row are skipped,
 * so a row whose keys lie on one device has the bits of one device. */
#include "server/store/cuda/kernels/launch.cuh"
#include "server/store/nccl/kernels/move.h"
#include "server/store/cuda/kernels/values.cuh"

__device__ static inline four sum_of_parts(const parts_view &p, uint32_t n_rows, uint64_t row,
                                           uint32_t column, uint32_t dim)
{
    four sum = {{0.0f, 0.0f, 0.0f, 0.0f}};
    bool is_first = true;
    for (uint32_t device = 0; device < p.n_devices; device++) {
        uint64_t part = (uint64_t)device * n_rows + row;
        if (p.grouped[part] == p.grouped[part + 1])
            continue;
        four v = packed_load(p.parts, EMBD_DTYPE_F32, part * dim, column, dim, dim % 4 == 0);
        if (is_first)
            embd__combine_first(sum.c, v.c, 4);
        else
            embd__combine_add(sum.c, v.c, 4);
        is_first = false;
    }
    return sum;
}

static __global__ void __launch_bounds__(256) add_parts(uint32_t dim, pull_view view, parts_view p)
{
    uint32_t fours = fours_of(dim);
    uint64_t n = (uint64_t)view.in.n_rows * fours;
    for (uint64_t i = lane_index(); i < n; i += lane_count()) {
        uint64_t row = i / fours;
        uint32_t column = (uint32_t)(i % fours) * 4, begin = view.in.offsets[row] - view.in.first,
                 end = view.in.offsets[row + 1] - view.in.first;
        four sum = sum_of_parts(p, view.in.n_rows, row, column, dim);
        const float *weights = view.in.weights ? view.in.weights + begin : nullptr;
        embd__combine_divide(sum.c, embd__divisor(view.divide, end - begin, weights), 4);
        packed_store(view.values, view.dtype, row * dim, column, dim, view.is_aligned, sum);
    }
}

int launch_add_parts(uint32_t dim, struct pull_view view, struct parts_view p, void *stream)
{
    struct shape s = shape_of((uint64_t)view.in.n_rows * ((dim + 3) / 4));
    return LAUNCH(add_parts, s.grid, s.block, stream, dim, view, p);
}
