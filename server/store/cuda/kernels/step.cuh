/* step.cuh - one optimizer step of four columns of a row: for rows that a push names (apply.cu) and
 * for all others (sweep.cu). */
#ifndef EMBD_CUDA_STEP_CUH
#define EMBD_CUDA_STEP_CUH

#include "proto/stamp.h"
#include "server/store/cuda/kernels/values.cuh"

/* The rule is a template parameter of kernels: an optimizer's kind, or this value: adam with
 * lazy_global. */
#define RULE_LAZY_ADAM ((int)EMBD_OPTIMIZER_FTRL + 1)

/* Four columns of a row and of its state. */
struct row_four {
    four w, s0, s1;
};

/* Values that all columns of a row's step share. */
struct row_shared {
    float v; /* v of rowwise_adagrad, already updated */
    optimizer_lazy lazy;
};

template <int RULE> struct states_of {
    static constexpr bool HAS_0 =
        RULE != EMBD_OPTIMIZER_SGD && RULE != EMBD_OPTIMIZER_ROWWISE_ADAGRAD;
    static constexpr bool HAS_1 =
        RULE == EMBD_OPTIMIZER_ADAM || RULE == RULE_LAZY_ADAM || RULE == EMBD_OPTIMIZER_FTRL;
};

__device__ static inline uint64_t state_at(const table_view &t, uint32_t ref)
{
    return (uint64_t)(ref - 1) * t.state_stride;
}

/* The step that a row was last brought up to: adam with lazy_global. */
__device__ static inline float *lazy_stamp(const table_view &t, uint32_t ref)
{
    return t.states + state_at(t, ref) + 2 * t.dim;
}

template <int RULE, bool IS_PLAIN>
__device__ static inline row_four row_load(const table_view &t, uint32_t ref, uint32_t column)
{
    uint64_t state = state_at(t, ref);
    bool is_aligned = IS_PLAIN || t.dim % 4 == 0;
    row_four r;
    if (!IS_PLAIN && t.has_master)
        r.w = master_load(t, ref, column);
    else
        r.w = four_load(row_of_ref(t, ref), IS_PLAIN ? EMBD_DTYPE_F32 : t.dtype, column);
    if (states_of<RULE>::HAS_0)
        r.s0 = packed_load(t.states, EMBD_DTYPE_F32, state, column, t.dim, is_aligned);
    if (states_of<RULE>::HAS_1)
        r.s1 = packed_load(t.states, EMBD_DTYPE_F32, state + t.dim, column, t.dim, is_aligned);
    return r;
}

template <int RULE>
__device__ static inline void column_step(const optimizer_step &step, row_four &r, uint32_t i,
                                          float g, row_shared &shared)
{
    if constexpr (RULE == RULE_LAZY_ADAM)
        optimizer_lazy_column(&step, &shared.lazy, &r.w.c[i], &r.s0.c[i], &r.s1.c[i], g);
    else
        optimizer_column((embd_optimizer_kind)RULE, &step, &r.w.c[i],
                         states_of<RULE>::HAS_0 ? &r.s0.c[i] : &shared.v,
                         states_of<RULE>::HAS_1 ? &r.s1.c[i] : nullptr, g);
}

template <int RULE, bool IS_PLAIN>
__device__ static inline void row_store(const table_view &t, uint32_t ref, uint32_t column,
                                        const row_four &r)
{
    uint64_t state = state_at(t, ref);
    bool is_aligned = IS_PLAIN || t.dim % 4 == 0;
    four_store(row_of_ref(t, ref), IS_PLAIN ? EMBD_DTYPE_F32 : t.dtype, column, r.w);
    if (!IS_PLAIN && t.has_master)
        master_store(t, ref, column, r.w);
    if (states_of<RULE>::HAS_0)
        packed_store(t.states, EMBD_DTYPE_F32, state, column, t.dim, is_aligned, r.s0);
    if (states_of<RULE>::HAS_1)
        packed_store(t.states, EMBD_DTYPE_F32, state + t.dim, column, t.dim, is_aligned, r.s1);
}

template <int RULE, bool IS_PLAIN>
__device__ static inline void row_step(const table_view &t, const optimizer_step &step,
                                       uint32_t ref, uint32_t column, row_four r, four g,
                                       row_shared shared)
{
#pragma unroll
    for (uint32_t i = 0; i < 4; i++)
        column_step<RULE>(step, r, i, g.c[i], shared);
    if (!IS_PLAIN && t.is_stochastic)
        round_by_chance(t, t.row_keys[ref - 1], t.row_slots ? t.row_slots[ref - 1] : 0, step.t,
                        column, &r.w);
    row_store<RULE, IS_PLAIN>(t, ref, column, r);
}

#endif
