/* dtype.h - f32 <-> f16 and bf16, rounding to nearest even: the same bits from gcc and nvcc, no
 * intrinsics that decide a bit. NaN stays NaN (quiet, sign kept); overflow gives infinity;
 * subnormals are kept. Also compiled as CUDA C++. */
#ifndef EMBD_PROTO_DTYPE_H
#define EMBD_PROTO_DTYPE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "embd/embd.h"

#ifdef __CUDACC__
#define EMBD_INLINE static __host__ __device__ inline
#else
#define EMBD_INLINE static inline
#endif

EMBD_INLINE size_t embd__dtype_bytes(embd_dtype dtype)
{
    return dtype == EMBD_DTYPE_F32 ? 4 : 2;
}

EMBD_INLINE uint32_t embd__f32_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

EMBD_INLINE float embd__f32_from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

EMBD_INLINE uint16_t embd__bf16_from_f32(float x)
{
    uint32_t u = embd__f32_bits(x);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((u >> 16) | 0x40u);
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

EMBD_INLINE float embd__f32_from_bf16(uint16_t h)
{
    return embd__f32_from_bits((uint32_t)h << 16);
}

EMBD_INLINE uint16_t embd__f16_from_f32(float x)
{
    uint32_t u = embd__f32_bits(x);
    uint32_t sign = (u >> 16) & 0x8000u;
    u &= 0x7fffffffu;
    if (u > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u);
    if (u >= 0x477ff000u) /* rounds to 2^16 or more */
        return (uint16_t)(sign | 0x7c00u);
    if (u < 0x38800000u) {   /* below 2^-14: subnormal or zero */
        if (u < 0x33000000u) /* below 2^-25; the tie at 2^-25 rounds to even zero */
            return (uint16_t)sign;
        uint32_t shift = 126u - (u >> 23); /* 14..24 */
        uint32_t mantissa = (u & 0x7fffffu) | 0x800000u;
        uint32_t half = mantissa >> shift;
        uint32_t rest = mantissa & ((1u << shift) - 1u), tie = 1u << (shift - 1u);
        half += rest > tie || (rest == tie && (half & 1u));
        return (uint16_t)(sign | half);
    }
    u += 0xc8000fffu + ((u >> 13) & 1u); /* exponent from bias 127 to 15, round half to even */
    return (uint16_t)(sign | (u >> 13));
}

EMBD_INLINE float embd__f32_from_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = (h >> 10) & 31u,
             mantissa = h & 0x3ffu;
    if (exponent == 31u)
        return embd__f32_from_bits(sign | 0x7f800000u | (mantissa << 13) |
                                   (mantissa ? 0x400000u : 0u));
    if (exponent)
        return embd__f32_from_bits(sign | ((exponent + 112u) << 23) | (mantissa << 13));
    /* subnormal: mantissa * 2^-24, exact in f32 */
    float x = (float)mantissa * 0x1p-24f;
    return embd__f32_from_bits(sign | embd__f32_bits(x));
}

/* n values from memory of `dtype` to f32, and back. Elementwise; buffers do not overlap. */
EMBD_INLINE void embd__to_f32(float *to, const void *from, embd_dtype dtype, size_t n)
{
    const uint16_t *half = (const uint16_t *)from;
    if (dtype == EMBD_DTYPE_F32)
        memcpy(to, from, n * sizeof *to);
    else if (dtype == EMBD_DTYPE_F16)
        for (size_t i = 0; i < n; i++)
            to[i] = embd__f32_from_f16(half[i]);
    else
        for (size_t i = 0; i < n; i++)
            to[i] = embd__f32_from_bf16(half[i]);
}

EMBD_INLINE void embd__from_f32(void *to, embd_dtype dtype, const float *from, size_t n)
{
    uint16_t *half = (uint16_t *)to;
    if (dtype == EMBD_DTYPE_F32)
        memcpy(to, from, n * sizeof *from);
    else if (dtype == EMBD_DTYPE_F16)
        for (size_t i = 0; i < n; i++)
            half[i] = embd__f16_from_f32(from[i]);
    else
        for (size_t i = 0; i < n; i++)
            half[i] = embd__bf16_from_f32(from[i]);
}

#endif
