/* stamp.h - a count among floats: counts in a row's state, so that they go where the state goes:
 * into records, dumps, snapshots, and through tools that know floats only.
 *
 * Two floats hold 24 bits each, low ones first; both are whole numbers that f32 has exactly. Counts
 * go up to 2^48 - 1. Also compiled as CUDA C++. */
#ifndef EMBD_PROTO_STAMP_H
#define EMBD_PROTO_STAMP_H

#include <stdint.h>

#include "proto/dtype.h"

#define EMBD_STAMP_FLOATS 2u

EMBD_INLINE void embd__stamp_put(float *at, uint64_t count)
{
    at[0] = (float)(count & 0xffffff);
    at[1] = (float)(count >> 24 & 0xffffff);
}

/* One half. What no embd wrote counts 0. */
EMBD_INLINE uint64_t embd__stamp_half(float half)
{
    return half >= 0.0f && half < 16777216.0f ? (uint64_t)half : 0;
}

EMBD_INLINE uint64_t embd__stamp_get(const float *at)
{
    return embd__stamp_half(at[0]) | embd__stamp_half(at[1]) << 24;
}

#endif
