/* finite.cuh - gradients that are not finite. */
#ifndef EMBD_CUDA_FINITE_CUH
#define EMBD_CUDA_FINITE_CUH

#include "server/store/cuda/kernels/launch.cuh"

/* The bits of an infinite or not-a-number exponent, in a word's upper and lower half; f32 has the
 * upper one alone. */
struct exponents {
    uint32_t high, low;
};

static inline exponents exponents_of(embd_dtype dtype)
{
    if (dtype == EMBD_DTYPE_F32)
        return {0x7f800000u, 0};
    return dtype == EMBD_DTYPE_F16 ? exponents{0x7c000000u, 0x7c00u}
                                   : exponents{0x7f800000u, 0x7f80u};
}

__device__ static inline bool is_bad(exponents e, uint32_t word)
{
    return (word & e.high) == e.high || (e.low != 0 && (word & e.low) == e.low);
}

__device__ static inline void note_bad(const taken &t, uint64_t at)
{
    *t.bad = (uint32_t)(at + 1);
    if (t.stop)
        *t.stop = 1;
}

#endif
