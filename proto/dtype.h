/* dtype.h - f32 <-> f16 and bf16, rounding to nearest even: the same bits from gcc and nvcc, no
 * intrinsics that decide a bit. NaN stays NaN (quiet, sign kept); overflow gives infinity;
 * subnormals are kept. Also compiled as CUDA C++. */
#ifndef EMBD_PROTO_DTYPE_H
#define EMBD_PROTO_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "embd/embd.h"

#ifdef __CUDACC__
#define EMBD_INLINE static __host__ __device__ inline
#else
#define EMBD_INLINE static inline
#endif

/* Of one value, of a code where rows are coded. */
EMBD_INLINE size_t embd__dtype_bytes(embd_dtype dtype)
{
    return dtype == EMBD_DTYPE_F32 ? 4 : dtype <= EMBD_DTYPE_BF16 ? 2 : 1;
}

/* Whether stored rows are codes with a scale: rowcode.h. */
EMBD_INLINE bool embd__dtype_is_coded(embd_dtype dtype)
{
    return dtype == EMBD_DTYPE_I8 || dtype == EMBD_DTYPE_E4M3;
}

/* Of the values of a stored row. */
EMBD_INLINE size_t embd__value_bytes(embd_dtype dtype, uint32_t dim)
{
    if (embd__dtype_is_coded(dtype))
        return 4 + ((size_t)dim + 3) / 4 * 4;
    return dim * embd__dtype_bytes(dtype);
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
    uint32_t nan = (u >> 16) | 0x40u, number = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? nan : number);
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

/* Selections instead of branches, so that loops of it become vector code. */
EMBD_INLINE float embd__f32_from_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = h & 0x7c00u, mantissa = h & 0x3ffu;
    uint32_t normal = ((uint32_t)(h & 0x7fffu) << 13) + 0x38000000u;          /* bias 15 to 127 */
    uint32_t subnormal = embd__f32_bits((float)(int32_t)mantissa * 0x1p-24f); /* exact in f32 */
    uint32_t special = 0x7f800000u | (mantissa << 13) | (mantissa ? 0x400000u : 0u);
    uint32_t finite = exponent ? normal : subnormal;
    return embd__f32_from_bits(sign | (exponent == 0x7c00u ? special : finite));
}

/* A value of either 16-bit dtype. Arrays are converted by proto/convert.h. */
EMBD_INLINE float embd__f32_from_half(uint16_t h, embd_dtype dtype)
{
    return dtype == EMBD_DTYPE_F16 ? embd__f32_from_f16(h) : embd__f32_from_bf16(h);
}

EMBD_INLINE uint16_t embd__half_from_f32(float x, embd_dtype dtype)
{
    return dtype == EMBD_DTYPE_F16 ? embd__f16_from_f32(x) : embd__bf16_from_f32(x);
}

#endif
