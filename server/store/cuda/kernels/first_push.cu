/* first_push.cu - a push of new keys only, each once: a row is initialized and stepped in registers
 * and written once. The gradients come in the order of the rows, so nothing is sorted or read
 * again. */
#include "server/store/cuda/kernels/gradient.cuh"
#include "server/store/cuda/kernels/place.cuh"
#include "server/store/cuda/kernels/squares.cuh"
#include "server/store/cuda/kernels/step.cuh"

#define BLOCK 128u
/* Turns of a warp whose gradients are loaded at once. */
#define AT_ONCE 4u

template <int RULE>
__device__ static inline void first_step(const table_view &t, const optimizer_step &step,
                                         uint32_t ref, uint32_t column, row_four row, four g,
                                         uint32_t lanes)
{
    row_shared shared = {};
    embd__combine_divide(g.c, step.scaler, 4);
    if (RULE == EMBD_OPTIMIZER_ROWWISE_ADAGRAD) {
        shared.v = optimizer_rowwise(t.first_state, squares_whole(g, column, t.dim, lanes), t.dim);
        if (ref && column == 0)
            t.states[state_at(t, ref)] = shared.v;
    }
    if (ref)
        row_step<RULE, true>(t, step, ref, column, row, g, shared);
}

/* Rows row .. row + n of the warp's new keys; `lanes` lanes, a power of two, make a row. */
template <int RULE>
__device__ static inline void first_rows(const table_view &t, const push_view &p,
                                         const optimizer_step &step, const newcomer &mine,
                                         uint64_t row, uint32_t n, uint32_t lanes)
{
    uint32_t lane = threadIdx.x % 32, rows = 32 / lanes, column = lane % lanes * 4;
    float f = t.first_state;
    for (uint32_t turn = 0; turn * rows < n; turn += AT_ONCE) {
        four g[AT_ONCE];
        uint32_t from[AT_ONCE];
        bool has_row[AT_ONCE];
#pragma unroll
        for (uint32_t u = 0; u < AT_ONCE; u++) {
            from[u] = (turn + u) * rows + lane / lanes;
            has_row[u] = from[u] < n;
            uint32_t k = __shfl_sync(ALL_LANES, mine.position, (int)(from[u] % 32));
            g[u] = four{{0.0f, 0.0f, 0.0f, 0.0f}};
            if (has_row[u])
                g[u] = gradient_at<true>(t, p, gradient_row(p, k), column);
        }
#pragma unroll
        for (uint32_t u = 0; u < AT_ONCE; u++) {
            uint64_t key = __shfl_sync(ALL_LANES, mine.key, (int)(from[u] % 32));
            uint32_t slot = __shfl_sync(ALL_LANES, mine.slot, (int)(from[u] % 32));
            row_four r = {first_value<false>(t, key, slot, column), {{f, f, f, f}}, {{f, f, f, f}}};
            uint32_t ref = has_row[u] ? (uint32_t)(row + from[u]) + 1 : 0;
            first_step<RULE>(t, step, ref, column, r, g[u], lanes);
        }
    }
}

template <int RULE, bool EXPECTS>
static __global__ void __launch_bounds__(BLOCK, 6)
    first(table_view t, plan_view q, push_view p, uint64_t first_row, optimizer_step step)
{
    uint32_t lane = threadIdx.x % 32, n = p.in.n;
    if (EXPECTS && expected_wrongly(q))
        return;
    for (uint64_t base = lane_index() - lane; base < n; base += lane_count()) {
        uint32_t i = (uint32_t)base + lane, row = (uint32_t)first_row + i;
        newcomer mine = {};
        if (i < n) {
            mine = newcomer_place(t, p.in, i, row);
            q.refs[i] = row + 1;
        }
        __syncwarp();
        newcomers_claim<EXPECTS>(t, q, mine, first_row + base, i < n);
        first_rows<RULE>(t, p, step, mine, first_row + base,
                         n - base < 32 ? n - (uint32_t)base : 32, lanes_for(t.dim));
    }
}

bool first_fits(const struct table_view *t, const struct push_view *push)
{
    return is_plain(*t, *push) && t->state_stride == t->optimizer_floats &&
           t->initializer.kind != EMBD_INITIALIZER_NORMAL;
}

template <int RULE>
static int launch(const table_view &t, const plan_view &q, const first_push &f, uint64_t first_row,
                  void *stream)
{
    unsigned grid = (f.push.in.n + BLOCK - 1) / BLOCK;
    if (f.is_expected)
        return LAUNCH((first<RULE, true>), grid, BLOCK, stream, t, q, f.push, first_row, f.step);
    return LAUNCH((first<RULE, false>), grid, BLOCK, stream, t, q, f.push, first_row, f.step);
}

int launch_first(struct table_view t, struct plan_view p, struct first_push f, uint64_t first_row,
                 void *stream)
{
    switch (f.kind) {
    case EMBD_OPTIMIZER_SGD:
        return launch<EMBD_OPTIMIZER_SGD>(t, p, f, first_row, stream);
    case EMBD_OPTIMIZER_MOMENTUM:
        return launch<EMBD_OPTIMIZER_MOMENTUM>(t, p, f, first_row, stream);
    case EMBD_OPTIMIZER_NESTEROV:
        return launch<EMBD_OPTIMIZER_NESTEROV>(t, p, f, first_row, stream);
    case EMBD_OPTIMIZER_ADAGRAD:
        return launch<EMBD_OPTIMIZER_ADAGRAD>(t, p, f, first_row, stream);
    case EMBD_OPTIMIZER_ROWWISE_ADAGRAD:
        return launch<EMBD_OPTIMIZER_ROWWISE_ADAGRAD>(t, p, f, first_row, stream);
    case EMBD_OPTIMIZER_ADAM:
        return launch<EMBD_OPTIMIZER_ADAM>(t, p, f, first_row, stream);
    case EMBD_OPTIMIZER_RMSPROP:
        return launch<EMBD_OPTIMIZER_RMSPROP>(t, p, f, first_row, stream);
    default:
        return launch<EMBD_OPTIMIZER_FTRL>(t, p, f, first_row, stream);
    }
}
