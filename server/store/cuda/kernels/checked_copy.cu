/* checked_copy.cu - takes gradients out of memory that others may write to: each value is read
 * once, looked at, and written where the step will find it. */
#include "server/store/cuda/kernels/finite.cuh"

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
