/* sweep.cu - update = global: rows that a push does not name step with a gradient of 0. Each push
 * reads and writes the whole table, at memory bandwidth. */
#include "server/store/cuda/kernels/keytable.cuh"
#include "server/store/cuda/kernels/step.cuh"

static __global__ void __launch_bounds__(256)
    mark(const uint32_t *refs, uint32_t n, uint32_t *marks)
{
    for (uint64_t i = lane_index(); i < n; i += lane_count())
        if (is_row(refs[i]))
            atomicOr(&marks[(refs[i] - 1) / 32], 1u << (refs[i] - 1) % 32);
}

int launch_mark(const uint32_t *refs, uint32_t n, uint32_t *marks, void *stream)
{
    struct shape s = shape_of(n);
    return LAUNCH(mark, s.grid, s.block, stream, refs, n, marks);
}

/* `lanes` lanes, a power of two, work on a row. */
template <int RULE, bool IS_PLAIN>
static __global__ void __launch_bounds__(256)
    sweep(table_view t, uint64_t n_rows, const uint32_t *marks, optimizer_step step, uint32_t lanes)
{
    uint64_t stride = lane_count() / lanes;
    four none = {{0.0f, 0.0f, 0.0f, 0.0f}};
    for (uint64_t row = lane_index() / lanes; row < n_rows; row += stride) {
        if (marks != nullptr && (marks[row / 32] >> row % 32 & 1))
            continue;
        uint32_t ref = (uint32_t)row + 1;
        for (uint32_t column = threadIdx.x % lanes * 4; column < t.dim; column += lanes * 4)
            row_step<RULE, IS_PLAIN>(t, step, ref, column, row_load<RULE, IS_PLAIN>(t, ref, column),
                                     none, row_shared{});
    }
}

template <int RULE>
static int launch(const table_view &t, uint64_t n_rows, const uint32_t *marks,
                  const optimizer_step &step, void *stream)
{
    uint32_t lanes = lanes_for(t.dim);
    struct shape s = shape_of(n_rows * lanes);
    if (t.dtype == EMBD_DTYPE_F32 && t.dim % 4 == 0)
        return LAUNCH((sweep<RULE, true>), s.grid, s.block, stream, t, n_rows, marks, step, lanes);
    return LAUNCH((sweep<RULE, false>), s.grid, s.block, stream, t, n_rows, marks, step, lanes);
}

int launch_sweep(struct table_view t, uint64_t n_rows, const uint32_t *marks,
                 embd_optimizer_kind kind, struct optimizer_step step, void *stream)
{
    switch (kind) {
    case EMBD_OPTIMIZER_MOMENTUM:
        return launch<EMBD_OPTIMIZER_MOMENTUM>(t, n_rows, marks, step, stream);
    case EMBD_OPTIMIZER_NESTEROV:
        return launch<EMBD_OPTIMIZER_NESTEROV>(t, n_rows, marks, step, stream);
    case EMBD_OPTIMIZER_ADAM:
        return launch<EMBD_OPTIMIZER_ADAM>(t, n_rows, marks, step, stream);
    default:
        return launch<EMBD_OPTIMIZER_RMSPROP>(t, n_rows, marks, step, stream);
    }
}
