/* checked_copy.cu - takes gradients out of memory that others may write to: each value is read
 * once, looked at, and written where the step will find it. */
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

/* `bad`: one more than the number of a piece of 16 bytes that has a bad value; of several any. */
static __global__ void __launch_bounds__(256)
    checked_copy(uint4 *to, const uint4 *from, uint64_t n, exponents e, uint32_t *bad)
{
    for (uint64_t i = lane_index(); i < n; i += lane_count()) {
        uint4 v = __ldcs(from + i);
        __stcs(to + i, v);
        if (is_bad(e, v.x) || is_bad(e, v.y) || is_bad(e, v.z) || is_bad(e, v.w))
            *bad = (uint32_t)(i + 1);
    }
}

/* The last bytes, fewer than 16, which are values of 2 or 4 bytes. */
static __global__ void __launch_bounds__(32)
    copy_rest(uint16_t *to, const uint16_t *from, uint32_t n, exponents e, uint32_t number,
              uint32_t *bad)
{
    uint32_t word = 0;
    for (uint32_t i = 0; i < n && lane_index() == 0; i++) {
        uint16_t half = from[i];
        to[i] = half;
        word = i % 2 == 0 ? half : word | (uint32_t)half << 16;
        if (is_bad(e, word))
            *bad = number;
    }
}

int launch_checked_copy(void *to, const void *from, uint64_t bytes, embd_dtype dtype, uint32_t *bad,
                        void *stream)
{
    exponents e = exponents_of(dtype);
    uint64_t n = bytes / 16;
    struct shape s = shape_of(n);
    int status = n ? LAUNCH(checked_copy, s.grid, s.block, stream, (uint4 *)to, (const uint4 *)from,
                            n, e, bad)
                   : 0;
    if (status != 0 || bytes % 16 == 0)
        return status;
    return LAUNCH(copy_rest, 1, 32, stream, (uint16_t *)to + n * 8, (const uint16_t *)from + n * 8,
                  (uint32_t)(bytes % 16 / 2), e, (uint32_t)(n + 1), bad);
}
