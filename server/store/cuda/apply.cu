/* apply.cu - gradients become one optimizer step of each row, sum and step in one kernel.
 *
 * refs come sorted, so the occurrences of a row are a run. `lanes_for(dim)` lanes work on the first
 * of each run and nobody on the others. A run longer than EMBD_SUM_RUN is queued: its pieces are
 * summed by as many groups of lanes, then added left to right (combine.h). The order in which runs
 * are queued is a matter of chance and changes no sum. */
#include "keytable.cuh"
#include "values.cuh"

__device__ static inline four gradient_of(const table_view &t, const push_view &p, uint32_t k,
                                          uint32_t column)
{
    uint64_t row = p.in.row_of ? p.in.row_of[k] : k;
    return packed_load(p.grads, p.dtype, row * t.dim, column, t.dim, p.is_aligned);
}

__device__ static inline void add_gradient(four *sum, four g, const float *weights, uint32_t k,
                                           bool is_first)
{
    if (weights && is_first)
        embd__combine_first_weighted(sum->c, g.c, weights[k], 4);
    else if (weights)
        embd__combine_add_weighted(sum->c, g.c, weights[k], 4);
    else if (is_first)
        embd__combine_first(sum->c, g.c, 4);
    else
        embd__combine_add(sum->c, g.c, 4);
}

/* Occurrences begin .. end, at most EMBD_SUM_RUN of them, left to right. */
__device__ static inline four sum_run(const table_view &t, const push_view &p, uint32_t begin,
                                      uint32_t end, uint32_t column)
{
    four sum;
    uint32_t k = p.positions[begin];
    add_gradient(&sum, gradient_of(t, p, k, column), p.in.weights, k, true);
    for (uint32_t i = begin + 1; i < end; i++) {
        k = p.positions[i];
        add_gradient(&sum, gradient_of(t, p, k, column), p.in.weights, k, false);
    }
    return sum;
}

/* The gradient of one row: a run, or the sums of a long run's pieces. */
struct gradient {
    uint32_t begin, end; /* of positions; long runs: of partials */
};

template <bool IS_LONG>
__device__ static inline four gradient_sum(const table_view &t, const push_view &p,
                                           const gradient &g, uint32_t column, float scaler)
{
    four sum;
    if (IS_LONG) {
        uint64_t width = fours_of(t.dim) * 4;
        sum = four_load(p.partials, EMBD_F32, g.begin * width + column);
        for (uint32_t i = g.begin + 1; i < g.end; i++)
            embd__combine_add(sum.c, four_load(p.partials, EMBD_F32, i * width + column).c, 4);
    } else {
        sum = sum_run(t, p, g.begin, g.end, column);
    }
    embd__combine_divide(sum.c, scaler, 4);
    return sum;
}

/* Adds these 128 columns to S of rowwise_adagrad in the shape of optimizer_squares: there, column c
 * belongs to lane c % 32; here, such a lane's columns are those of lanes m, m + 8, m + 16, m + 24,
 * and lane m of eight adds them. */
__device__ static inline void add_squares(float s[4], four g, uint32_t column, uint32_t dim,
                                          uint32_t lanes)
{
    uint32_t lane = threadIdx.x & (lanes - 1);
    float q[4];
    for (uint32_t i = 0; i < 4; i++)
        q[i] = column + i < dim ? g.c[i] * g.c[i] : 0.0f;
    for (uint32_t from = lane % 8; from < (lanes < 8 ? 8 : lanes); from += 8)
        for (uint32_t i = 0; i < 4; i++) {
            float other = __shfl_sync(ALL_LANES, q[i], (int)(from & (lanes - 1)), (int)lanes);
            s[i] = s[i] + (from < lanes ? other : 0.0f);
        }
}

/* The tree of optimizer_squares over what add_squares left: lane l takes l + 16, l + 8, l + 4, then
 * within a lane. Lanes that a narrow row does not have would add +0 to what is not negative. The
 * result is every lane's. */
__device__ static inline float finish_squares(float s[4], uint32_t lanes)
{
    uint32_t lane = threadIdx.x & (lanes - 1);
#pragma unroll
    for (uint32_t half = 4; half; half /= 2)
        for (uint32_t i = 0; i < 4; i++) {
            float other =
                __shfl_sync(ALL_LANES, s[i], (int)((lane + half) & (lanes - 1)), (int)lanes);
            s[i] = half < lanes ? s[i] + other : s[i];
        }
    float sum = (s[0] + s[2]) + (s[1] + s[3]);
    return __shfl_sync(ALL_LANES, sum, 0, (int)lanes);
}

/* Four columns of a row and of its state. */
struct row_four {
    four w, s0, s1;
};

template <embd_optimizer_kind KIND> struct states_of {
    static constexpr bool HAS_0 = KIND != EMBD_SGD && KIND != EMBD_ROWWISE_ADAGRAD;
    static constexpr bool HAS_1 = KIND == EMBD_ADAM || KIND == EMBD_FTRL;
};

template <embd_optimizer_kind KIND>
__device__ static inline row_four row_load(const table_view &t, uint32_t ref, uint32_t column)
{
    uint64_t state = (uint64_t)(ref - 1) * t.state_floats;
    bool is_aligned = t.dim % 4 == 0;
    row_four r;
    r.w = four_load(row_of_ref(t, ref), t.dtype, column);
    if (states_of<KIND>::HAS_0)
        r.s0 = packed_load(t.states, EMBD_F32, state, column, t.dim, is_aligned);
    if (states_of<KIND>::HAS_1)
        r.s1 = packed_load(t.states, EMBD_F32, state + t.dim, column, t.dim, is_aligned);
    return r;
}

/* `v`: of rowwise_adagrad, already brought forward. */
template <embd_optimizer_kind KIND>
__device__ static inline void row_step(const table_view &t, const optimizer_step &step,
                                       uint32_t ref, uint32_t column, row_four r, four g, float v)
{
    uint64_t state = (uint64_t)(ref - 1) * t.state_floats;
    bool is_aligned = t.dim % 4 == 0;
#pragma unroll
    for (uint32_t i = 0; i < 4; i++)
        optimizer_column(KIND, &step, &r.w.c[i], states_of<KIND>::HAS_0 ? &r.s0.c[i] : &v,
                         states_of<KIND>::HAS_1 ? &r.s1.c[i] : nullptr, g.c[i]);
    four_store(row_of_ref(t, ref), t.dtype, column, r.w);
    if (states_of<KIND>::HAS_0)
        packed_store(t.states, EMBD_F32, state, column, t.dim, is_aligned, r.s0);
    if (states_of<KIND>::HAS_1)
        packed_store(t.states, EMBD_F32, state + t.dim, column, t.dim, is_aligned, r.s1);
}

/* A row's v with this step, in all its lanes; lane 0 stores it. `sum` is the gradient of each
 * lane's first columns. All lanes of the warp call it. */
template <bool IS_LONG>
__device__ static inline float step_rowwise(const table_view &t, const push_view &p,
                                            const gradient &g, four sum, const optimizer_step &step,
                                            uint32_t ref, uint32_t lanes)
{
    uint32_t lane = threadIdx.x & (lanes - 1);
    float s[4] = {0.0f, 0.0f, 0.0f, 0.0f}, before = ref ? t.states[ref - 1] : 0.0f;
    add_squares(s, sum, lane * 4, t.dim, lanes);
    for (uint32_t first = 128; first < t.dim; first += 128) {
        uint32_t column = first + lane * 4;
        four further = {{0.0f, 0.0f, 0.0f, 0.0f}};
        if (ref && column < t.dim)
            further = gradient_sum<IS_LONG>(t, p, g, column, step.scaler);
        add_squares(s, further, column, t.dim, lanes);
    }
    float v = optimizer_rowwise(before, finish_squares(s, lanes), t.dim);
    __syncwarp();
    if (ref && lane == 0)
        t.states[ref - 1] = v;
    return v;
}

/* ref 0: these lanes have no row, but go along. What a row needs from memory is asked for before
 * the sum is made. */
template <embd_optimizer_kind KIND, bool IS_LONG>
__device__ static inline void step_row(const table_view &t, const push_view &p, const gradient &g,
                                       const optimizer_step &step, uint32_t ref, uint32_t lanes)
{
    uint32_t column = (threadIdx.x & (lanes - 1)) * 4;
    bool has_first = ref && column < t.dim;
    float v = 0.0f;
    row_four r;
    four sum = {{0.0f, 0.0f, 0.0f, 0.0f}};
    if (has_first) {
        r = row_load<KIND>(t, ref, column);
        sum = gradient_sum<IS_LONG>(t, p, g, column, step.scaler);
    }
    if (KIND == EMBD_ROWWISE_ADAGRAD)
        v = step_rowwise<IS_LONG>(t, p, g, sum, step, ref, lanes);
    if (has_first)
        row_step<KIND>(t, step, ref, column, r, sum, v);
    for (column += 128; ref && column < t.dim; column += 128) {
        r = row_load<KIND>(t, ref, column);
        row_step<KIND>(t, step, ref, column, r, gradient_sum<IS_LONG>(t, p, g, column, step.scaler),
                       v);
    }
}

/* Where the run that begins at `at` ends, looking at EMBD_SUM_RUN + 1 refs at most. */
__device__ static inline uint32_t run_end(const push_view &p, uint32_t at, uint32_t ref)
{
    uint32_t end = at + 1;
    while (end < p.in.n && end - at <= EMBD_SUM_RUN && p.refs[end] == ref)
        end++;
    return end;
}

__device__ static inline uint32_t long_run_end(const push_view &p, uint32_t at, uint32_t ref)
{
    uint32_t low = at, high = p.in.n;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (p.refs[middle] == ref)
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

template <embd_optimizer_kind KIND>
static __global__ void __launch_bounds__(256) apply(table_view t, push_view p, optimizer_step step)
{
    uint32_t lanes = lanes_for(t.dim), in_warp = threadIdx.x % 32 / lanes;
    uint64_t stride = lane_count() / lanes;
    for (uint64_t base = (lane_index() - threadIdx.x % 32) / lanes; base < p.in.n; base += stride) {
        uint32_t at = (uint32_t)base + in_warp;
        uint32_t ref = at < p.in.n ? p.refs[at] : 0;
        if (ref && at > 0 && p.refs[at - 1] == ref)
            ref = 0;
        gradient g = {at, at + 1};
        if (ref)
            g.end = run_end(p, at, ref);
        if (g.end - at > EMBD_SUM_RUN) {
            if ((threadIdx.x & (lanes - 1)) == 0)
                queue_run(p, at, ref);
            ref = 0;
        }
        step_row<KIND, false>(t, p, g, step, ref, lanes);
    }
}

static __global__ void __launch_bounds__(256) sum_chunks(table_view t, push_view p)
{
    uint64_t fours = fours_of(t.dim), n = p.counts->n_chunks * fours;
    for (uint64_t i = lane_index(); i < n; i += lane_count()) {
        run_chunk c = p.chunks[i / fours];
        uint32_t column = (uint32_t)(i % fours) * 4;
        four_store(p.partials, EMBD_F32, i / fours * fours * 4 + column,
                   sum_run(t, p, c.begin, c.end, column));
    }
}

template <embd_optimizer_kind KIND>
static __global__ void __launch_bounds__(256)
    apply_long(table_view t, push_view p, optimizer_step step)
{
    uint32_t lanes = lanes_for(t.dim), in_warp = threadIdx.x % 32 / lanes, n = p.counts->n_long;
    uint64_t stride = lane_count() / lanes;
    for (uint64_t base = (lane_index() - threadIdx.x % 32) / lanes; base < n; base += stride) {
        uint32_t i = (uint32_t)base + in_warp, ref = 0;
        gradient g = {0, 1};
        if (i < n) {
            long_run run = p.longs[i];
            ref = p.refs[run.at];
            g.begin = run.first_chunk;
            g.end = run.first_chunk + run.n_chunks;
        }
        step_row<KIND, true>(t, p, g, step, ref, lanes);
    }
}

template <embd_optimizer_kind KIND>
static int launch(const table_view &t, const push_view &p, const optimizer_step &step, void *stream)
{
    struct shape s = shape_of((uint64_t)p.in.n * lanes_for(t.dim));
    int status = LAUNCH(apply<KIND>, s.grid, s.block, stream, t, p, step);
    if (status || p.in.n <= EMBD_SUM_RUN)
        return status;
    struct shape chunks = shape_of((uint64_t)p.in.n / 32 * ((t.dim + 3) / 4));
    status = LAUNCH(sum_chunks, chunks.grid, chunks.block, stream, t, p);
    if (status)
        return status;
    struct shape longs = shape_of((uint64_t)p.in.n / EMBD_SUM_RUN * lanes_for(t.dim));
    return LAUNCH(apply_long<KIND>, longs.grid, longs.block, stream, t, p, step);
}

int launch_apply(struct table_view t, struct push_view push, embd_optimizer_kind kind,
                 struct optimizer_step step, void *stream)
{
    switch (kind) {
    case EMBD_SGD:
        return launch<EMBD_SGD>(t, push, step, stream);
    case EMBD_MOMENTUM:
        return launch<EMBD_MOMENTUM>(t, push, step, stream);
    case EMBD_NESTEROV:
        return launch<EMBD_NESTEROV>(t, push, step, stream);
    case EMBD_ADAGRAD:
        return launch<EMBD_ADAGRAD>(t, push, step, stream);
    case EMBD_ROWWISE_ADAGRAD:
        return launch<EMBD_ROWWISE_ADAGRAD>(t, push, step, stream);
    case EMBD_ADAM:
        return launch<EMBD_ADAM>(t, push, step, stream);
    case EMBD_RMSPROP:
        return launch<EMBD_RMSPROP>(t, push, step, stream);
    default:
        return launch<EMBD_FTRL>(t, push, step, stream);
    }
}
