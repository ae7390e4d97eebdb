/* rowcode.h - rows of i8 and e4m3: a code of one byte for each column, and one f32 scale for the
 * row. A stored row is the scale, the codes, and zeros up to a multiple of four bytes.
 *
 *   narrow   m = max |w[c]| over the row
 *            scale = m / 127 (i8; at most FLT_MAX / 128), m / 448 (e4m3);
 *            NaN where a column is NaN or infinite
 *            code[c] = nearest(w[c] / scale), ties to even; all 0 where scale is 0 or NaN
 *   widen    w[c] = code[c] * scale
 *
 * i8 codes are -127 .. 127, in two's complement. e4m3 is the E4M3 of the OCP 8-bit floating point
 * specification (Micikevicius and others, "FP8 formats for deep learning", 2022): sign, 4 bits of
 * exponent with bias 7, 3 of mantissa; no infinity, 0x7f is NaN, 448 is the largest number. A
 * quotient that rounding brought beyond the largest code takes that code. One division by a
 * constant makes the scale, one division each code, one multiplication each value: IEEE f32, the
 * same bits from gcc and nvcc. Also compiled as CUDA C++. */
#ifndef EMBD_PROTO_ROWCODE_H
#define EMBD_PROTO_ROWCODE_H

#include "proto/dtype.h"

#define ROWCODE_AT 4u /* codes begin here, behind the scale */

#define ROWCODE_I8_SCALE_MOST 0x1.fffffep+120f /* FLT_MAX / 128: every code gives a finite value */

/* As an integer, so that NaN is above infinity and all numbers, in whatever order they come. */
EMBD_INLINE uint32_t embd__magnitude_bits(float x)
{
    return embd__f32_bits(x) & 0x7fffffffu;
}

EMBD_INLINE float embd__code_most(embd_dtype dtype)
{
    return dtype == EMBD_DTYPE_I8 ? 127.0f : 448.0f;
}

/* `largest`: of embd__magnitude_bits over the row. */
EMBD_INLINE float embd__code_scale(embd_dtype dtype, uint32_t largest)
{
    float scale = embd__f32_from_bits(largest) / embd__code_most(dtype);
    scale = dtype == EMBD_DTYPE_I8 && scale > ROWCODE_I8_SCALE_MOST ? ROWCODE_I8_SCALE_MOST : scale;
    return largest < 0x7f800000u ? scale : embd__f32_from_bits(0x7fc00000u);
}

/* Whether codes mean anything: else all are 0. */
EMBD_INLINE bool embd__code_scales(float scale)
{
    return scale > 0.0f;
}

/* The nearest integer, ties to even, of 0 <= x < 2^23. */
EMBD_INLINE float embd__nearest_integer(float x)
{
    return x + 0x1p23f - 0x1p23f;
}

/* |w / scale|, at most the largest code. */
EMBD_INLINE float embd__code_quotient(float w, embd_dtype dtype, float scale)
{
    float x = embd__f32_from_bits(embd__magnitude_bits(w / scale)), most = embd__code_most(dtype);
    return x > most ? most : x;
}

EMBD_INLINE uint8_t embd__code_signed(uint32_t magnitude, float w, embd_dtype dtype)
{
    uint32_t is_negative = embd__f32_bits(w) >> 31;
    if (dtype == EMBD_DTYPE_I8)
        return (uint8_t)((magnitude ^ (0u - is_negative)) + is_negative);
    return (uint8_t)(magnitude | is_negative << 7);
}

/* To nearest, of a quotient. */
EMBD_INLINE uint32_t embd__code_nearest(float x, embd_dtype dtype)
{
    if (dtype == EMBD_DTYPE_I8)
        return (uint32_t)(int32_t)embd__nearest_integer(x);
    uint32_t u = embd__f32_bits(x);
    uint32_t normal = (u + 0x7ffffu + ((u >> 20) & 1u) - 0x3c000000u) >> 20; /* bias 127 to 7 */
    uint32_t subnormal = (uint32_t)(int32_t)embd__nearest_integer((x < 1.0f ? x : 1.0f) * 512.0f);
    return u >= 0x3c800000u ? normal : subnormal; /* 2^-6 */
}

EMBD_INLINE uint8_t embd__code_from_f32(float w, embd_dtype dtype, float scale)
{
    return embd__code_signed(embd__code_nearest(embd__code_quotient(w, dtype, scale), dtype), w,
                             dtype);
}

EMBD_INLINE float embd__f32_from_e4m3(uint8_t code)
{
    uint32_t magnitude = code & 0x7fu, sign = (uint32_t)(code & 0x80u) << 24;
    uint32_t normal = (magnitude << 20) + 0x3c000000u;
    uint32_t subnormal = embd__f32_bits((float)(int32_t)magnitude * 0x1p-9f);
    uint32_t finite = magnitude < 8 ? subnormal : normal;
    return embd__f32_from_bits(sign | (magnitude == 0x7fu ? 0x7fc00000u : finite));
}

/* One column of a row. */
EMBD_INLINE float embd__f32_from_code(uint8_t code, embd_dtype dtype, float scale)
{
    float unit = dtype == EMBD_DTYPE_I8 ? (float)(int8_t)code : embd__f32_from_e4m3(code);
    float w = unit * scale;
    return w == w ? w : embd__f32_from_bits(0x7fc00000u); /* machines differ in NaNs they make */
}

#endif
