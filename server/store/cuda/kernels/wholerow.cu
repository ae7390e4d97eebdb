/* wholerow.cu - one optimizer step of each row that a push names, in tables whose steps need the
 * whole row: clipping by norm, weight decay, limits, and optimizers with sums over the row.
 *
 * One kernel sums gradients: `lanes_for(dim)` lanes add the occurrences of a row, or a run of
 * EMBD_SUM_RUN of them, into `sums` at the place of the first. In another a warp takes each row:
 * lane l has columns l, l + 32, ..., so that its sums have the order of optimizer_squares. Between
 * passes over the row its gradient, then its new values, stand in `sums`; a lane reads only what it
 * wrote itself. */
#include "server/store/cuda/kernels/gradient.cuh"
#include "server/store/wholerow.h"

#define BLOCK 128u

/* The first place of the row that place i belongs to. */
__device__ static inline uint32_t run_begin(const push_view &p, uint32_t i)
{
    uint32_t low = 0, high = i;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (ref_at(p, middle) < ref_at(p, i))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static __global__ void __launch_bounds__(BLOCK) sum_gradients(table_view t, push_view p)
{
    uint32_t lanes = lanes_for(t.dim);
    for (uint64_t at = lane_index() / lanes; at < p.in.n; at += lane_count() / lanes) {
        uint32_t i = (uint32_t)at, ref = ref_at(p, i), end = i + 1;
        if (ref == 0 || (i > 0 && ref_at(p, i - 1) == ref && (i - run_begin(p, i)) % EMBD_SUM_RUN))
            continue;
        while (end < p.in.n && end - i < EMBD_SUM_RUN && ref_at(p, end) == ref)
            end++;
        for (uint32_t c = threadIdx.x % lanes * 4; c < t.dim; c += lanes * 4) {
            four first = gradient_at<false>(t, p, gradient_row(p, position_at(p, i)), c);
            packed_store(p.sums, EMBD_DTYPE_F32, at * t.dim, c, t.dim, t.dim % 4 == 0,
                         sum_run<false>(t, p, first, i, end, c));
        }
    }
}

/* The sum of all lanes, in each of them: the end of optimizer_squares. */
__device__ static inline float add_lanes(float sum)
{
    for (int distance = 16; distance; distance /= 2)
        sum = sum + __shfl_xor_sync(ALL_LANES, sum, distance);
    return sum;
}

/* A row as its warp sees it. */
struct own_row {
    void *values;
    float *state, *g;  /* g: the gradient, then the new values */
    float *master;     /* or NULL */
    uint32_t lane, at; /* at: its first place */
    uint32_t ref;
};

__device__ static inline float old_value(const table_view &t, const own_row &r, uint32_t c)
{
    if (r.master != nullptr)
        return r.master[c];
    if (embd__dtype_is_coded(t.dtype))
        return code_load(r.values, t.dtype, c);
    return one_load(r.values, t.dtype, c);
}

/* The chances of column c and its neighbours. */
__device__ static inline void draw(const table_view &t, const own_row &r, const wholerow_step &step,
                                   uint32_t c, uint32_t word[4])
{
    rounding chance = {t.initializer.seed, t.row_keys[r.ref - 1], step.column.t,
                       t.row_slots ? t.row_slots[r.ref - 1] : 0u};
    rounding_draw(&chance, c / ROUNDING_COLUMNS, word);
}

__device__ static inline void store_value(const table_view &t, const own_row &r,
                                          const wholerow_step &step, uint32_t c, float w)
{
    if (t.is_stochastic) {
        uint32_t word[4];
        draw(t, r, step, c, word);
        w = half_load(rounding_half(w, t.dtype, rounding_random(word, c)), t.dtype);
    }
    one_store(r.values, t.dtype, c, w);
    if (r.master != nullptr)
        r.master[c] = w;
}

__device__ static inline uint8_t new_code(const table_view &t, const own_row &r,
                                          const wholerow_step &step, uint32_t c, float scale)
{
    if (!embd__code_scales(scale) || c >= t.dim)
        return 0;
    if (!t.is_stochastic)
        return embd__code_from_f32(r.g[c], t.dtype, scale);
    uint32_t word[4];
    draw(t, r, step, c, word);
    return rounding_code(r.g[c], t.dtype, scale, rounding_random(word, c));
}

/* A coded row. The search for the largest value is where every lane has read the old scale. */
__device__ static inline void store_codes(const table_view &t, const own_row &r,
                                          const wholerow_step &step, float factor)
{
    uint32_t largest = 0;
    for (uint32_t c = r.lane; c < t.dim; c += 32) {
        r.g[c] = wholerow_limit(&step, r.g[c], factor);
        largest = larger(largest, embd__magnitude_bits(r.g[c]));
        if (r.master != nullptr)
            r.master[c] = r.g[c];
    }
    float scale = embd__code_scale(t.dtype, largest_lane(largest));
    for (uint32_t c = r.lane; c < fours_of(t.dim) * 4; c += 32)
        ((uint8_t *)r.values)[ROWCODE_AT + c] = new_code(t, r, step, c, scale);
    if (r.lane == 0)
        *(float *)r.values = scale;
}

__device__ static inline void store_row(const table_view &t, const own_row &r,
                                        const wholerow_step &step, float factor)
{
    if (embd__dtype_is_coded(t.dtype)) {
        store_codes(t, r, step, factor);
        return;
    }
    for (uint32_t c = r.lane; c < t.dim; c += 32)
        store_value(t, r, step, c, wholerow_limit(&step, r.g[c], factor));
}

/* Column c of the gradient, clipped by value. */
__device__ static inline float clipped(const table_view &t, const push_view &p, const own_row &r,
                                       const wholerow_step &step, uint32_t c)
{
    float sum = r.g[c];
    for (uint64_t i = r.at + EMBD_SUM_RUN; i < p.in.n && ref_at(p, i) == ref_at(p, r.at);
         i += EMBD_SUM_RUN)
        sum = sum + p.sums[i * t.dim + c];
    if (step.column.scaler != 1.0f)
        sum = sum / step.column.scaler;
    return wholerow_clip(&step, sum);
}

/* Steps 1 to 3. Returns S, where the optimizer needs it. */
template <int KIND>
__device__ static inline float make_gradient(const table_view &t, const push_view &p,
                                             const own_row &r, const wholerow_step &step)
{
    float squares = 0.0f, factor = 1.0f;
    for (uint32_t c = r.lane; c < t.dim; c += 32) {
        float g = clipped(t, p, r, step, c);
        r.g[c] = g;
        squares += g * g;
    }
    if (step.clip_norm > 0.0f)
        factor = wholerow_factor(step.clip_norm, add_lanes(squares));
    squares = 0.0f;
    for (uint32_t c = r.lane; c < t.dim; c += 32) {
        float g = wholerow_scale(r.g[c], factor);
        float decayed = step.l2 != 0.0f ? wholerow_gradient(&step, old_value(t, r, c), g) : g;
        r.g[c] = wholerow_adds_decay(&step) ? decayed : g;
        squares += decayed * decayed;
    }
    return wholerow_has_squares((embd_optimizer_kind)KIND) ? add_lanes(squares) : 0.0f;
}

/* The second half of lamb's step: r.g has d. Returns the lane's squares of w. */
__device__ static inline float step_lamb(const table_view &t, const own_row &r,
                                         const wholerow_step &step, float of_w, float of_d)
{
    float rate = wholerow_rate(&step, add_lanes(of_w), add_lanes(of_d)), squares = 0.0f;
    for (uint32_t c = r.lane; c < t.dim; c += 32) {
        r.g[c] = old_value(t, r, c) - rate * r.g[c];
        squares += r.g[c] * r.g[c];
    }
    return squares;
}

template <int KIND>
__device__ static inline void step_row(const table_view &t, const push_view &p, const own_row &r,
                                       const wholerow_step &step)
{
    constexpr embd_optimizer_kind kind = (embd_optimizer_kind)KIND;
    float before = 0.0f, after = 0.0f, squares = make_gradient<KIND>(t, p, r, step), factor = 1.0f;
    wholerow_row row = wholerow_enter(kind, &step, r.state, squares);
    __syncwarp(); /* every lane has read what lane 0 stores at the end */
    for (uint32_t c = r.lane; c < t.dim; c += 32) {
        float w = old_value(t, r, c);
        before += w * w;
        r.g[c] = wholerow_column(kind, &step, &row, w, r.state, c, r.g[c]);
        after += r.g[c] * r.g[c];
    }
    if (kind == EMBD_OPTIMIZER_LAMB)
        after = step_lamb(t, r, step, before, after);
    if (step.max_norm > 0.0f)
        factor = wholerow_factor(step.max_norm, add_lanes(after));
    store_row(t, r, step, factor);
    if (r.lane == 0)
        wholerow_leave(kind, &step, &row, r.state);
}

template <int KIND>
static __global__ void __launch_bounds__(BLOCK)
    step_rows(table_view t, push_view p, wholerow_step step)
{
    for (uint64_t at = lane_index() / 32; at < p.in.n; at += lane_count() / 32) {
        uint32_t ref = ref_at(p, at);
        if (ref == 0 || (at > 0 && ref_at(p, at - 1) == ref))
            continue;
        own_row r = {row_of_ref(t, ref),
                     t.states + (uint64_t)(ref - 1) * t.state_stride,
                     p.sums + at * t.dim,
                     t.has_master ? master_of_ref(t, ref) : nullptr,
                     threadIdx.x % 32,
                     (uint32_t)at,
                     ref};
        step_row<KIND>(t, p, r, step);
    }
}

template <int KIND>
static int launch(const table_view &t, const push_view &p, const wholerow_step &step, void *stream)
{
    uint64_t blocks = ((uint64_t)p.in.n + BLOCK / 32 - 1) / (BLOCK / 32);
    unsigned grid = blocks < SHAPE_BLOCKS ? (unsigned)blocks : SHAPE_BLOCKS;
    return LAUNCH(step_rows<KIND>, grid, BLOCK, stream, t, p, step);
}

static int launch_steps(const table_view &t, const push_view &p, const wholerow_step &step,
                        void *stream)
{
    switch (step.kind) {
    case EMBD_OPTIMIZER_SGD:
        return launch<EMBD_OPTIMIZER_SGD>(t, p, step, stream);
    case EMBD_OPTIMIZER_MOMENTUM:
        return launch<EMBD_OPTIMIZER_MOMENTUM>(t, p, step, stream);
    case EMBD_OPTIMIZER_NESTEROV:
        return launch<EMBD_OPTIMIZER_NESTEROV>(t, p, step, stream);
    case EMBD_OPTIMIZER_ADAGRAD:
        return launch<EMBD_OPTIMIZER_ADAGRAD>(t, p, step, stream);
    case EMBD_OPTIMIZER_ROWWISE_ADAGRAD:
        return launch<EMBD_OPTIMIZER_ROWWISE_ADAGRAD>(t, p, step, stream);
    case EMBD_OPTIMIZER_ADAM:
        return launch<EMBD_OPTIMIZER_ADAM>(t, p, step, stream);
    case EMBD_OPTIMIZER_RMSPROP:
        return launch<EMBD_OPTIMIZER_RMSPROP>(t, p, step, stream);
    case EMBD_OPTIMIZER_FTRL:
        return launch<EMBD_OPTIMIZER_FTRL>(t, p, step, stream);
    case EMBD_OPTIMIZER_AMSGRAD:
        return launch<EMBD_OPTIMIZER_AMSGRAD>(t, p, step, stream);
    case EMBD_OPTIMIZER_PARTIAL_ROWWISE_ADAM:
        return launch<EMBD_OPTIMIZER_PARTIAL_ROWWISE_ADAM>(t, p, step, stream);
    case EMBD_OPTIMIZER_LAMB:
        return launch<EMBD_OPTIMIZER_LAMB>(t, p, step, stream);
    default:
        return launch<EMBD_OPTIMIZER_COUNTER_ADAGRAD>(t, p, step, stream);
    }
}

int launch_wholerow(struct table_view t, struct push_view push, struct wholerow_step step,
                    void *stream)
{
    if (push.in.n == 0)
        return 0;
    struct shape s = shape_of((uint64_t)push.in.n * lanes_for(t.dim));
    int status = LAUNCH(sum_gradients, s.grid, s.block < BLOCK ? s.block : BLOCK, stream, t, push);
    return status ? status : launch_steps(t, push, step, stream);
}
