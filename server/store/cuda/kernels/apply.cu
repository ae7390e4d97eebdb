/* apply.cu - one optimizer step of each row that a push names: one kernel sums its gradients and
 * applies the step.
 *
 * Items are sorted, so the occurrences of a row are a run, and neighbouring rows step together. A
 * warp takes 32 places: each lane checks whether a run begins at its own, then `lanes_for(dim)`
 * lanes work on each run. The rows and first gradients of several turns are loaded at once. A run
 * longer than EMBD_SUM_RUN is queued: as many groups of lanes sum its pieces, which are then added
 * left to right (combine.h). The order of the queue varies from run to run and changes no sum. */
#include "server/store/cuda/kernels/gradient.cuh"
#include "server/store/cuda/kernels/keytable.cuh"
#include "server/store/cuda/kernels/squares.cuh"
#include "server/store/cuda/kernels/step.cuh"

#define BLOCK 128u

/* The addends of a row's gradient: occurrences begin .. end, or the sums of a long run's pieces. */
struct run {
    uint32_t ref; /* 0: none */
    uint32_t begin, end;
    uint32_t first; /* row of the first occurrence's gradient; unused in long runs */
};

__device__ static inline four partial_at(const table_view &t, const push_view &p, uint32_t i,
                                         uint32_t column)
{
    return four_load(p.partials, EMBD_DTYPE_F32, (uint64_t)i * (fours_of(t.dim) * 4) + column);
}

template <bool IS_LONG, bool IS_PLAIN>
__device__ static inline four first_gradient(const table_view &t, const push_view &p, const run &r,
                                             uint32_t column)
{
    return IS_LONG ? partial_at(t, p, r.begin, column)
                   : gradient_at<IS_PLAIN>(t, p, r.first, column);
}

template <bool IS_LONG, bool IS_PLAIN>
__device__ static inline four gradient_sum(const table_view &t, const push_view &p, const run &r,
                                           four first, uint32_t column, float scaler)
{
    four sum = first;
    if (IS_LONG)
        for (uint32_t i = r.begin + 1; i < r.end; i++)
            embd__combine_add(sum.c, partial_at(t, p, i, column).c, 4);
    else
        sum = sum_run<IS_PLAIN>(t, p, first, r.begin, r.end, column);
    embd__combine_divide(sum.c, scaler, 4);
    return sum;
}

/* Updates a row's v with this step, in all its lanes; lane 0 stores it. `sum` is the gradient of
 * each lane's first columns. All lanes of the warp call it. */
template <bool IS_LONG, bool IS_PLAIN>
__device__ static inline float step_rowwise(const table_view &t, const push_view &p, const run &r,
                                            four sum, const optimizer_step &step, float before,
                                            uint32_t lanes)
{
    uint32_t lane = threadIdx.x & (lanes - 1);
    float squares;
    if (lanes < 32) {
        squares = squares_narrow(sum, lane * 4, t.dim, lanes);
    } else {
        float s[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        squares_add(s, sum, lane * 4, t.dim);
        for (uint32_t first = 128; !IS_PLAIN && first < t.dim; first += 128) {
            uint32_t column = first + lane * 4;
            four further = {{0.0f, 0.0f, 0.0f, 0.0f}};
            if (r.ref && column < t.dim)
                further = gradient_sum<IS_LONG, IS_PLAIN>(
                    t, p, r, first_gradient<IS_LONG, IS_PLAIN>(t, p, r, column), column,
                    step.scaler);
            squares_add(s, further, column, t.dim);
        }
        squares = squares_finish(s);
    }
    float v = optimizer_rowwise(before, squares, t.dim);
    if (r.ref && lane == 0)
        t.states[state_at(t, r.ref)] = v;
    return v;
}

/* Steps up to AT_ONCE turns of rows, in as many groups of lanes. Lanes with run 0 have no row but
 * take part. All loads of the rows start before any sum is made. */
template <int RULE, bool IS_LONG, bool IS_PLAIN, uint32_t AT_ONCE>
__device__ static inline void step_rows(const table_view &t, const push_view &p, const run *runs,
                                        const optimizer_step &step, uint32_t lanes)
{
    constexpr bool IS_ROWWISE = RULE == EMBD_OPTIMIZER_ROWWISE_ADAGRAD,
                   IS_LAZY = RULE == RULE_LAZY_ADAM;
    uint32_t column = (threadIdx.x & (lanes - 1)) * 4;
    row_four row[AT_ONCE];
    four sum[AT_ONCE];
    row_shared shared[AT_ONCE];
#pragma unroll
    for (uint32_t u = 0; u < AT_ONCE; u++) {
        sum[u] = four{{0.0f, 0.0f, 0.0f, 0.0f}};
        shared[u].v = IS_ROWWISE && runs[u].ref ? t.states[state_at(t, runs[u].ref)] : 0.0f;
        if (runs[u].ref && (IS_PLAIN || column < t.dim)) {
            row[u] = row_load<RULE, IS_PLAIN>(t, runs[u].ref, column);
            sum[u] = first_gradient<IS_LONG, IS_PLAIN>(t, p, runs[u], column);
        }
        if (IS_LAZY && runs[u].ref)
            shared[u].lazy =
                optimizer_lazy_begin(&step, embd__stamp_get(lazy_stamp(t, runs[u].ref)));
    }
    if (IS_ROWWISE || IS_LAZY)
        __syncwarp(); /* every lane has read the old value before lane 0 stores the new one */
#pragma unroll
    for (uint32_t u = 0; u < AT_ONCE; u++) {
        const run &r = runs[u];
        if (r.ref && (IS_PLAIN || column < t.dim))
            sum[u] = gradient_sum<IS_LONG, IS_PLAIN>(t, p, r, sum[u], column, step.scaler);
        if (IS_ROWWISE)
            shared[u].v =
                step_rowwise<IS_LONG, IS_PLAIN>(t, p, r, sum[u], step, shared[u].v, lanes);
        if (r.ref && (IS_PLAIN || column < t.dim))
            row_step<RULE, IS_PLAIN>(t, step, r.ref, column, row[u], sum[u], shared[u]);
        for (uint32_t c = column + 128; !IS_PLAIN && r.ref && c < t.dim; c += 128)
            row_step<RULE, IS_PLAIN>(
                t, step, r.ref, c, row_load<RULE, IS_PLAIN>(t, r.ref, c),
                gradient_sum<IS_LONG, IS_PLAIN>(
                    t, p, r, first_gradient<IS_LONG, IS_PLAIN>(t, p, r, c), c, step.scaler),
                shared[u]);
        if (IS_LAZY && r.ref && column == 0)
            embd__stamp_put(lazy_stamp(t, r.ref), step.t);
    }
}

__device__ static inline uint32_t long_run_end(const push_view &p, uint32_t at, uint32_t ref)
{
    uint32_t low = at, high = p.in.n;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (ref_at(p, middle) == ref)
            low = middle;
        else
            high = middle;
    }
    return high;
}

__device__ static inline void queue_run(const push_view &p, uint32_t at, uint32_t ref)
{
    uint32_t end = long_run_end(p, at, ref), n = (end - at + EMBD_SUM_RUN - 1) / EMBD_SUM_RUN;
    uint32_t first = atomicAdd(&p.counts->n_chunks, n);
    p.longs[atomicAdd(&p.counts->n_long, 1u)] = {at, n, first};
    for (uint32_t i = 0; i < n; i++) {
        uint32_t begin = at + i * EMBD_SUM_RUN;
        p.chunks[first + i] = {begin, i + 1 == n ? end : begin + EMBD_SUM_RUN};
    }
}

/* The run that begins at this lane's place, or none. Long runs are queued instead. */
__device__ static inline run run_at(const push_view &p, uint32_t at)
{
    uint64_t item = at < p.in.n ? p.items[at] : 0;
    run r = {item_ref(item), at, at + 1, 0};
    if (r.ref == 0 || (at > 0 && ref_at(p, at - 1) == r.ref))
        return run{0, at, at + 1, 0};
    r.first = gradient_row(p, (uint32_t)item);
    while (r.end < p.in.n && r.end - at <= EMBD_SUM_RUN && ref_at(p, r.end) == r.ref)
        r.end++;
    if (r.end - at > EMBD_SUM_RUN) {
        queue_run(p, at, r.ref);
        r.ref = 0;
    }
    return r;
}

/* Turns of a warp that are loaded at once, and the least blocks of a multiprocessor, which bounds
 * the registers. Rows without states have short turns and gain from more warps. */
template <int RULE> struct width_of {
    static constexpr bool IS_SHORT = !states_of<RULE>::HAS_0;
    static constexpr uint32_t AT_ONCE = IS_SHORT || states_of<RULE>::HAS_1 ? 2 : 4;
    static constexpr uint32_t BLOCKS = IS_SHORT ? 8 : 1;
};

template <int RULE, bool IS_PLAIN, uint32_t AT_ONCE>
static __global__ void __launch_bounds__(BLOCK, IS_PLAIN ? width_of<RULE>::BLOCKS : 1)
    apply(table_view t, push_view p, optimizer_step step)
{
    uint32_t lanes = lanes_for(t.dim), lane = threadIdx.x % 32, rows = 32 / lanes;
    if (p.counts->stop) /* no run is queued then, either */
        return;
    for (uint64_t base = lane_index() - lane; base < p.in.n; base += lane_count()) {
        run mine = run_at(p, (uint32_t)base + lane), runs[AT_ONCE];
        for (uint32_t turn = 0; turn < lanes; turn += AT_ONCE) {
#pragma unroll
            for (uint32_t u = 0; u < AT_ONCE; u++) {
                uint32_t from = (turn + u) * rows + lane / lanes;
                runs[u].ref = __shfl_sync(ALL_LANES, mine.ref, (int)(from % 32));
                runs[u].begin = (uint32_t)base + from;
                runs[u].end = __shfl_sync(ALL_LANES, mine.end, (int)(from % 32));
                runs[u].first = __shfl_sync(ALL_LANES, mine.first, (int)(from % 32));
                if (turn + u >= lanes)
                    runs[u].ref = 0;
            }
            step_rows<RULE, false, IS_PLAIN, AT_ONCE>(t, p, runs, step, lanes);
        }
    }
}

static __global__ void __launch_bounds__(256) sum_chunks(table_view t, push_view p)
{
    uint64_t fours = fours_of(t.dim), n = p.counts->n_chunks * fours;
    for (uint64_t i = lane_index(); i < n; i += lane_count()) {
        run_chunk c = p.chunks[i / fours];
        uint32_t column = (uint32_t)(i % fours) * 4;
        four first = gradient_at<false>(t, p, gradient_row(p, position_at(p, c.begin)), column);
        four_store(p.partials, EMBD_DTYPE_F32, i / fours * fours * 4 + column,
                   sum_run<false>(t, p, first, c.begin, c.end, column));
    }
}

template <int RULE>
static __global__ void __launch_bounds__(BLOCK)
    apply_long(table_view t, push_view p, optimizer_step step)
{
    uint32_t lanes = lanes_for(t.dim), in_warp = threadIdx.x % 32 / lanes, n = p.counts->n_long;
    uint64_t stride = lane_count() / lanes;
    for (uint64_t base = (lane_index() - threadIdx.x % 32) / lanes; base < n; base += stride) {
        uint32_t i = (uint32_t)base + in_warp;
        run r = {0, 0, 1, 0};
        if (i < n) {
            long_run queued = p.longs[i];
            r = run{ref_at(p, queued.at), queued.first_chunk, queued.first_chunk + queued.n_chunks,
                    0};
        }
        step_rows<RULE, true, false, 1>(t, p, &r, step, lanes);
    }
}

template <int RULE>
static int launch(const table_view &t, const push_view &p, const optimizer_step &step, void *stream)
{
    constexpr uint32_t AT_ONCE = width_of<RULE>::AT_ONCE;
    unsigned grid = (p.in.n + BLOCK - 1) / BLOCK;
    int status = 0;
    if (p.in.n && is_plain(t, p))
        status = LAUNCH((apply<RULE, true, AT_ONCE>), grid, BLOCK, stream, t, p, step);
    else if (p.in.n)
        status = LAUNCH((apply<RULE, false, 1>), grid, BLOCK, stream, t, p, step);
    if (status || p.in.n <= EMBD_SUM_RUN)
        return status;
    struct shape chunks = shape_few((uint64_t)p.in.n / 32 * ((t.dim + 3) / 4));
    status = LAUNCH(sum_chunks, chunks.grid, chunks.block, stream, t, p);
    if (status)
        return status;
    struct shape longs = shape_few((uint64_t)p.in.n / EMBD_SUM_RUN * lanes_for(t.dim));
    return LAUNCH(apply_long<RULE>, longs.grid, longs.block < BLOCK ? longs.block : BLOCK, stream,
                  t, p, step);
}

int launch_apply(struct table_view t, struct push_view push, embd_optimizer_kind kind,
                 struct optimizer_step step, void *stream)
{
    switch (kind) {
    case EMBD_OPTIMIZER_SGD:
        return launch<EMBD_OPTIMIZER_SGD>(t, push, step, stream);
    case EMBD_OPTIMIZER_MOMENTUM:
        return launch<EMBD_OPTIMIZER_MOMENTUM>(t, push, step, stream);
    case EMBD_OPTIMIZER_NESTEROV:
        return launch<EMBD_OPTIMIZER_NESTEROV>(t, push, step, stream);
    case EMBD_OPTIMIZER_ADAGRAD:
        return launch<EMBD_OPTIMIZER_ADAGRAD>(t, push, step, stream);
    case EMBD_OPTIMIZER_ROWWISE_ADAGRAD:
        return launch<EMBD_OPTIMIZER_ROWWISE_ADAGRAD>(t, push, step, stream);
    case EMBD_OPTIMIZER_ADAM:
        return step.is_lazy ? launch<RULE_LAZY_ADAM>(t, push, step, stream)
                            : launch<EMBD_OPTIMIZER_ADAM>(t, push, step, stream);
    case EMBD_OPTIMIZER_RMSPROP:
        return launch<EMBD_OPTIMIZER_RMSPROP>(t, push, step, stream);
    default:
        return launch<EMBD_OPTIMIZER_FTRL>(t, push, step, stream);
    }
}
