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

__device__ static inline void note_bad(const taken &t, uint64_t at)
{
    *t.bad = (uint32_t)(at + 1);
    if (t.stop)
        *t.stop = 1;
}

/* Of several bad pieces any is named. */
static __global__ void __launch_bounds__(256) checked_copy(taken t, exponents e)
{
    uint64_t n = t.bytes / 16;
    const uint4 *from = (const uint4 *)t.from;
    uint4 *to = (uint4 *)t.to;
    for (uint64_t i = lane_index(); i < t.n_keys; i += lane_count())
        t.keys_to[i] = t.keys[i];
    for (uint64_t i = lane_index(); i < n; i += lane_count()) {
        uint4 v = __ldcs(from + i);
        __stcs(to + i, v);
        if (is_bad(e, v.x) || is_bad(e, v.y) || is_bad(e, v.z) || is_bad(e, v.w))
            note_bad(t, i);
    }
}

/* The last bytes, fewer than 16, which are values of 2 or 4 bytes. */
static __global__ void __launch_bounds__(32) copy_rest(taken t, exponents e)
{
    uint64_t first = t.bytes / 16;
    const uint16_t *from = (const uint16_t *)t.from + first * 8;
    uint16_t *to = (uint16_t *)t.to + first * 8;
    uint32_t word = 0;
    for (uint32_t i = 0; i < t.bytes % 16 / 2 && lane_index() == 0; i++) {
        uint16_t half = from[i];
        to[i] = half;
        word = i % 2 == 0 ? half : word | (uint32_t)half << 16;
        if (is_bad(e, word))
            note_bad(t, first);
    }
}

int launch_checked_copy(struct taken taken, void *stream)
{
    exponents e = exponents_of(taken.dtype);
    uint64_t n = taken.bytes / 16;
    struct shape s = shape_of(n > taken.n_keys ? n : taken.n_keys);
    int status = LAUNCH(checked_copy, s.grid, s.block, stream, taken, e);
    if (status != 0 || taken.bytes % 16 == 0)
        return status;
    return LAUNCH(copy_rest, 1, 32, stream, taken, e);
}
