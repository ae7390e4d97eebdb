/* mark.cuh - a filter of keys that may occur more than once among those without a row: two bits of
 * a small array per hash, seen once and seen again. Most keys are seen once, and need no group. */
#ifndef EMBD_CUDA_MARK_CUH
#define EMBD_CUDA_MARK_CUH

#include "server/store/cuda/kernels/keytable.cuh"

/* The place of a hash: uses bits that groups (insert_plan.cu) do not use first. */
__device__ static inline uint32_t mark_at(const plan_view &p, uint64_t hash)
{
    return (uint32_t)(hash >> 5) & (p.n_groups * PLAN_MARKS - 1);
}

__device__ static inline void mark_set(const plan_view &p, uint64_t hash)
{
    uint32_t at = mark_at(p, hash), shift = at % 16 * 2;
    if (atomicOr(&p.marks[at / 16], 1u << shift) >> shift & 1)
        atomicOr(&p.marks[at / 16], 2u << shift);
}

__device__ static inline bool mark_is_alone(const plan_view &p, uint64_t hash)
{
    uint32_t at = mark_at(p, hash);
    return !(__ldcg(&p.marks[at / 16]) >> at % 16 * 2 & 2);
}

#endif
