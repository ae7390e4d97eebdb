/* batch_apply.cu - the second half of a batch of small pushes: each row's steps, one for every push
 * that names it.
 *
 * `lanes_for(dim)` lanes take the row whose first place in the order is theirs, and keep it from
 * its first step to its last. Every step has its own sum and its own numbers. Between two steps a
 * value is rounded as it would be in memory, so the bits are those of one push after the other. New
 * rows are made here and never read. Rows are few, so latency counts: each row has lanes of its
 * own, and none waits for another. */
#include "server/store/cuda/kernels/batch_push.h"
#include "server/store/cuda/kernels/keytable.cuh"
#include "server/store/cuda/kernels/squares.cuh"
#include "server/store/cuda/kernels/step.cuh"
#include "server/store/use.h"

#define BLOCK      128u
#define PLACE_BITS 16
#define PLACE_MASK 0xffffu
#define SUM_AHEAD  4u /* gradients that a lane loads at once */

/* One push's gradients of a row: places begin .. end of the order. Empty: the row has no more. */
struct segment {
    uint32_t push, begin, end;
};

__device__ static inline segment segment_at(const batch_view &j, uint32_t ref, uint32_t begin)
{
    segment s = {0, begin, begin};
    if (ref == 0 || begin >= j.n_keys || j.sorted[begin] >> 2 * PLACE_BITS != ref)
        return s;
    uint64_t own = j.sorted[begin] >> PLACE_BITS;
    s.push = (uint32_t)own & PLACE_MASK;
    while (s.end < j.n_keys && j.sorted[s.end] >> PLACE_BITS == own)
        s.end++;
    return s;
}

/* ---- sums ---- */

struct term {
    four g;
    float weight;
};

__device__ static inline term term_at(const table_view &t, const batch_view &j, uint32_t push,
                                      uint32_t at, uint32_t column)
{
    uint32_t k = (uint32_t)j.sorted[at] & PLACE_MASK;
    uint64_t row = j.row_of ? j.row_of[k] : k - j.first_key[push];
    term x;
    x.g = packed_load(j.block + j.fetch[push].at, j.dtype, row * t.dim, column, t.dim,
                      t.dim % 4 == 0);
    x.weight = j.weights ? j.weights[k] : 1.0f;
    return x;
}

__device__ static inline void add(const batch_view &j, four *sum, const term &x)
{
    if (j.weights)
        embd__combine_add_weighted(sum->c, x.g.c, x.weight, 4);
    else
        embd__combine_add(sum->c, x.g.c, 4);
}

/* Sums at most EMBD_SUM_RUN gradients, left to right. */
__device__ static inline four sum_run(const table_view &t, const batch_view &j, uint32_t push,
                                      uint32_t begin, uint32_t end, uint32_t column)
{
    term first = term_at(t, j, push, begin, column);
    four sum = first.g;
    if (j.weights)
        embd__combine_first_weighted(sum.c, first.g.c, first.weight, 4);
    for (uint32_t i = begin + 1; i < end; i += SUM_AHEAD) {
        term x[SUM_AHEAD];
#pragma unroll
        for (uint32_t u = 0; u < SUM_AHEAD; u++)
            if (i + u < end)
                x[u] = term_at(t, j, push, i + u, column);
#pragma unroll
        for (uint32_t u = 0; u < SUM_AHEAD; u++)
            if (i + u < end)
                add(j, &sum, x[u]);
    }
    return sum;
}

/* The gradient of a row's step: sums of runs, then the sum of these (combine.h). 0 for columns
 * beyond dim. */
__device__ static inline four gradient(const table_view &t, const batch_view &j, const segment &s,
                                       uint32_t column, float scaler)
{
    four sum = {{0.0f, 0.0f, 0.0f, 0.0f}};
    if (s.begin == s.end || column >= t.dim)
        return sum;
    for (uint32_t begin = s.begin; begin < s.end; begin += EMBD_SUM_RUN) {
        uint32_t end = s.end - begin < EMBD_SUM_RUN ? s.end : begin + EMBD_SUM_RUN;
        four run = sum_run(t, j, s.push, begin, end, column);
        if (begin == s.begin)
            sum = run;
        else
            embd__combine_add(sum.c, run.c, 4);
    }
    embd__combine_divide(sum.c, scaler, 4);
    return sum;
}

/* S of rowwise_adagrad; `sum` is the gradient of each lane's first columns. All lanes of the warp
 * call it. */
__device__ static inline float squares_of(const table_view &t, const batch_view &j,
                                          const segment &s, four sum, float scaler, uint32_t lanes)
{
    uint32_t lane = threadIdx.x & (lanes - 1);
    if (lanes < 32)
        return squares_narrow(sum, lane * 4, t.dim, lanes);
    float squares[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    squares_add(squares, sum, lane * 4, t.dim);
    for (uint32_t column = 128 + lane * 4; column - lane * 4 < t.dim; column += 128)
        squares_add(squares, gradient(t, j, s, column, scaler), column, t.dim);
    return squares_finish(squares);
}

/* ---- a row ---- */

struct target {
    uint32_t ref; /* 0: these lanes have no row but take part */
    uint32_t at;  /* its first place in the order */
    bool is_new;
    uint64_t key;
    uint32_t slot;
};

__device__ static inline target target_at(const table_view &t, const batch_view &j, uint32_t at)
{
    target r = {at < j.n_keys ? (uint32_t)(j.sorted[at] >> 2 * PLACE_BITS) : 0, at, false, 0, 0};
    if (r.ref == 0 || (at > 0 && j.sorted[at - 1] >> 2 * PLACE_BITS == r.ref))
        return target{0, at, false, 0, 0};
    r.is_new = r.ref - 1 >= j.first_row;
    if (r.is_new || t.is_stochastic) {
        uint32_t k = (uint32_t)j.sorted[at] & PLACE_MASK;
        r.key = j.d_keys[k];
        r.slot = j.slots ? j.d_slots[k] : 0;
    }
    return r;
}

/* To what the next step reads: master values stay. */
__device__ static inline void round_to_nearest(const table_view &t, four *w)
{
    if (!t.has_master && t.dtype != EMBD_DTYPE_F32)
        for (uint32_t i = 0; i < 4; i++)
            w->c[i] = half_load(half_store(w->c[i], t.dtype), t.dtype);
}

template <int RULE>
__device__ static inline row_four columns_of(const table_view &t, const target &r, uint32_t column)
{
    row_four row;
    if (!r.is_new)
        return row_load<RULE, false>(t, r.ref, column);
    row.w = first_exact(t, r.key, r.slot, column);
    round_to_nearest(t, &row.w);
    for (uint32_t i = 0; i < 4; i++)
        row.s0.c[i] = row.s1.c[i] = t.first_state;
    return row;
}

__device__ static inline void round_columns(const table_view &t, const target &r, uint64_t step,
                                            uint32_t column, four *w)
{
    if (t.is_stochastic)
        round_by_chance(t, r.key, r.slot, step, column, w);
    else
        round_to_nearest(t, w);
}

/* Sets the key, slot, entry and shared state of a new row, whose columns are stored. One lane calls
 * it. */
__device__ static inline void enter(const table_view &t, const target &r, uint32_t columns)
{
    float *states = t.states + state_at(t, r.ref);
    for (uint32_t i = columns; i < t.state_stride; i++)
        if (!is_master(t, i))
            states[i] = i < t.optimizer_floats ? t.first_state : 0.0f;
    t.row_keys[r.ref - 1] = r.key;
    if (t.row_slots)
        t.row_slots[r.ref - 1] = (uint16_t)r.slot;
    entry_place(t, r.key, r.slot, r.ref);
}

/* State of a row that all its columns share, after its steps: rowwise_adagrad's v, and the last
 * step. */
struct progress {
    float v;
    uint64_t t;
};

/* Applies all steps to columns first .. first + 4 * lanes of a row. `kept` carries v of each step,
 * in the lane of the step's number, from the first columns to the others. All lanes of the warp
 * call it. */
template <int RULE>
__device__ static inline progress step_columns(const table_view &t, const batch_view &j,
                                               const batch_steps &steps, const target &r,
                                               progress begun, uint32_t first, float *kept)
{
    constexpr bool IS_ROWWISE = RULE == EMBD_OPTIMIZER_ROWWISE_ADAGRAD,
                   IS_LAZY = RULE == RULE_LAZY_ADAM;
    uint32_t lanes = lanes_for(t.dim), column = first + (threadIdx.x & (lanes - 1)) * 4;
    bool is_mine = r.ref && column < t.dim;
    progress p = begun;
    row_four row;
    if (is_mine)
        row = columns_of<RULE>(t, r, column);
    segment s = segment_at(j, r.ref, r.at);
    for (uint32_t number = 0; __ballot_sync(ALL_LANES, s.end > s.begin); number++) {
        const optimizer_step &step = steps.at[s.push];
        bool has_step = s.end > s.begin;
        row_shared shared = {};
        four sum = gradient(t, j, s, column, step.scaler);
        if (IS_ROWWISE && first == 0) {
            float squares = squares_of(t, j, s, sum, step.scaler, lanes);
            p.v = has_step ? optimizer_rowwise(p.v, squares, t.dim) : p.v;
            *kept = threadIdx.x % 32 == number ? p.v : *kept;
        } else if (IS_ROWWISE) {
            p.v = __shfl_sync(ALL_LANES, *kept, (int)number);
        }
        shared.v = p.v;
        if (IS_LAZY && has_step)
            shared.lazy = optimizer_lazy_begin(&step, p.t);
        if (has_step && is_mine) {
#pragma unroll
            for (uint32_t i = 0; i < 4; i++)
                column_step<RULE>(step, row, i, sum.c[i], shared);
            round_columns(t, r, step.t, column, &row.w);
        }
        p.t = has_step ? step.t : p.t;
        s = segment_at(j, r.ref, s.end);
    }
    if (is_mine)
        row_store<RULE, false>(t, r.ref, column, row);
    return p;
}

template <int RULE> __device__ static inline uint32_t floats_of_columns(const table_view &t)
{
    return states_of<RULE>::HAS_1 ? 2 * t.dim : states_of<RULE>::HAS_0 ? t.dim : 0;
}

/* Records the use of a row by each push that has gradients of it. */
__device__ static inline void note_steps(const batch_view &j, const batch_steps &steps,
                                         const target &r, const use_view &use, float *at)
{
    for (segment s = segment_at(j, r.ref, r.at); s.end > s.begin; s = segment_at(j, r.ref, s.end))
        use_note(at, steps.at[s.push].t, &use.rule, s.end - s.begin);
}

/* Stores the shared state and the use of a row after its steps. One lane calls it. */
template <int RULE>
__device__ static inline void note(const table_view &t, const batch_view &j, const target &r,
                                   const progress &p, const batch_steps &steps, const use_view &use,
                                   bool has_use)
{
    float *states = t.states + state_at(t, r.ref);
    if (r.is_new)
        enter(t, r, floats_of_columns<RULE>(t));
    if (RULE == EMBD_OPTIMIZER_ROWWISE_ADAGRAD)
        states[0] = p.v;
    if (RULE == RULE_LAZY_ADAM)
        embd__stamp_put(lazy_stamp(t, r.ref), p.t);
    if (has_use)
        note_steps(j, steps, r, use, states + use.at);
    if (t.row_sets)
        t.row_sets[r.ref - 1] = j.set;
}

template <int RULE>
static __global__ void __launch_bounds__(BLOCK)
    batch_apply(table_view t, batch_view j, batch_steps steps, use_view use, bool has_use)
{
    uint32_t lanes = lanes_for(t.dim);
    if (!j.state->is_done)
        return;
    target r = target_at(t, j, (uint32_t)(lane_index() / lanes));
    if (!__ballot_sync(ALL_LANES, r.ref != 0))
        return;
    progress begun = {t.first_state, 0}, p = begun;
    if (RULE == EMBD_OPTIMIZER_ROWWISE_ADAGRAD && r.ref && !r.is_new)
        begun.v = t.states[state_at(t, r.ref)];
    if (RULE == RULE_LAZY_ADAM && r.ref && !r.is_new)
        begun.t = embd__stamp_get(lazy_stamp(t, r.ref));
    __syncwarp(); /* every lane has read the old value before one stores the new one */
    float kept = 0.0f;
    for (uint32_t first = 0; first < t.dim; first += lanes * 4) {
        progress after = step_columns<RULE>(t, j, steps, r, begun, first, &kept);
        p = first == 0 ? after : p;
    }
    if (r.ref && (threadIdx.x & (lanes - 1)) == 0)
        note<RULE>(t, j, r, p, steps, use, has_use);
}

template <int RULE>
static int launch(const table_view &t, const batch_view &j, const batch_steps &steps,
                  const use_view &use, bool has_use, void *stream)
{
    unsigned grid = (j.n_keys * lanes_for(t.dim) + BLOCK - 1) / BLOCK;
    return LAUNCH(batch_apply<RULE>, grid, BLOCK, stream, t, j, steps, use, has_use);
}

int launch_batch_apply(struct table_view t, struct batch_view j, embd_optimizer_kind kind,
                       struct batch_steps steps, struct use_view use, bool has_use, void *stream)
{
    switch (kind) {
    case EMBD_OPTIMIZER_SGD:
        return launch<EMBD_OPTIMIZER_SGD>(t, j, steps, use, has_use, stream);
    case EMBD_OPTIMIZER_MOMENTUM:
        return launch<EMBD_OPTIMIZER_MOMENTUM>(t, j, steps, use, has_use, stream);
    case EMBD_OPTIMIZER_NESTEROV:
        return launch<EMBD_OPTIMIZER_NESTEROV>(t, j, steps, use, has_use, stream);
    case EMBD_OPTIMIZER_ADAGRAD:
        return launch<EMBD_OPTIMIZER_ADAGRAD>(t, j, steps, use, has_use, stream);
    case EMBD_OPTIMIZER_ROWWISE_ADAGRAD:
        return launch<EMBD_OPTIMIZER_ROWWISE_ADAGRAD>(t, j, steps, use, has_use, stream);
    case EMBD_OPTIMIZER_ADAM:
        return steps.at[0].is_lazy ? launch<RULE_LAZY_ADAM>(t, j, steps, use, has_use, stream)
                                   : launch<EMBD_OPTIMIZER_ADAM>(t, j, steps, use, has_use, stream);
    case EMBD_OPTIMIZER_RMSPROP:
        return launch<EMBD_OPTIMIZER_RMSPROP>(t, j, steps, use, has_use, stream);
    default:
        return launch<EMBD_OPTIMIZER_FTRL>(t, j, steps, use, has_use, stream);
    }
}
