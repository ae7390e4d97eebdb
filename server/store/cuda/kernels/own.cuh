/* own.cuh - which keys take part in a call of some keys (keys_view.own). A lane of a warp has one
 * word of the set, and gets those of other lanes from there. */
#ifndef EMBD_CUDA_OWN_CUH
#define EMBD_CUDA_OWN_CUH

#include <type_traits>

#include "server/store/cuda/kernels/launch.cuh"

struct own_lane {
    uint32_t word, n_residues;
};

__device__ static inline own_lane own_begin(const key_set &set)
{
    return {set.words[threadIdx.x % 32], set.n_residues};
}

/* All lanes of the warp call it. */
__device__ static inline bool own_has(const own_lane &own, uint64_t key)
{
    uint32_t place = embd__key_place(own.n_residues, key);
    return __shfl_sync(ALL_LANES, own.word, (int)(place / 32)) >> place % 32 & 1;
}

/* Of a kernel that all keys take part in. */
struct own_all {
};

__device__ static inline own_all own_begin(const own_all &)
{
    return {};
}

__device__ static inline bool own_has(const own_all &, uint64_t)
{
    return true;
}

/* In the refs of a request's keys. */
template <class Own> __device__ static inline bool is_outside(uint32_t ref)
{
    return ref == REF_OUTSIDE;
}

template <> __device__ inline bool is_outside<own_all>(uint32_t)
{
    return false;
}

/* In a plan, whose refs have 0 there. */
__device__ static inline bool is_outside(const keys_view &in, const plan_view &p, uint64_t i)
{
    return in.own && p.group[i] == GROUP_OUTSIDE;
}

#endif
