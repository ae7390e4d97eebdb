/* rounding.h - a step's result becomes f16, bf16 or a code (proto/rowcode.h) by chance: of the two
 * values around it the upper
 * one with the probability of the distance to the lower one, in units of 1/65536. So steps that are
 * too small for the dtype still add up, on average.
 *
 * Chance is a pure function of the table's seed, the key, the slot, the column and the table's step
 * (its pushes with this one), the same bits from every store, for any number of shards, and in a
 * replay. It is drawn by Philox4x32-10: the counter is (low word of the key, high word, column / 8
 * + 65536 * slot, low word of the step); the Philox key is the seed, its low word xor
 * ROUNDING_DRAWS, its high word xor the step's. Column c takes half c % 2, the lower one first, of
 * word c % 8 / 2.
 *
 * Also compiled as CUDA C++. */
#ifndef EMBD_STORE_ROUNDING_H
#define EMBD_STORE_ROUNDING_H

#include "proto/philox.h"
#include "proto/rowcode.h"

/* So that the initializer does not draw the same words. */
#define ROUNDING_DRAWS 0x524e4453u

#define ROUNDING_COLUMNS 8u /* of a draw */

/* The inputs that decide, besides the column. */
struct rounding {
    uint64_t seed, key, step;
    uint32_t slot; /* 0 but in slot tables */
};

/* The words of columns 8 * block .. 8 * block + 7. */
EMBD_INLINE void rounding_draw(const struct rounding *r, uint32_t block, uint32_t word[4])
{
    philox4x32_ctr_t counter = {
        {(uint32_t)r->key, (uint32_t)(r->key >> 32), block | r->slot << 16, (uint32_t)r->step}};
    philox4x32_key_t key = {{(uint32_t)r->seed ^ ROUNDING_DRAWS,
                             (uint32_t)(r->seed >> 32) ^ (uint32_t)(r->step >> 32)}};
    philox4x32_ctr_t drawn = philox4x32(counter, key);
    for (int i = 0; i < 4; i++)
        word[i] = drawn.v[i];
}

/* random: 0 .. 65535, in units of 1/65536 of the step between two bf16. */
EMBD_INLINE uint16_t rounding_bf16(float x, uint32_t random)
{
    uint32_t u = embd__f32_bits(x);
    bool is_nan = (u & 0x7fffffffu) > 0x7f800000u;
    return is_nan ? embd__bf16_from_f32(x) : (uint16_t)((u + random) >> 16);
}

EMBD_INLINE uint16_t rounding_f16(float x, uint32_t random)
{
    uint32_t u = embd__f32_bits(x), sign = (u >> 16) & 0x8000u, magnitude = u & 0x7fffffffu;
    if (magnitude >= 0x47800000u) /* 2^16 and more, infinity, NaN */
        return embd__f16_from_f32(x);
    if (magnitude >= 0x38800000u) /* 2^-14 and more: the exponent from bias 127 to 15 */
        return (uint16_t)(sign | ((magnitude - 0x38000000u + (random >> 3)) >> 13));
    uint32_t shift = 126u - (magnitude >> 23);
    if (shift > 40u) /* less than 1/65536 of the least f16 */
        return (uint16_t)sign;
    uint64_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    return (uint16_t)(sign | (uint32_t)((mantissa + (((uint64_t)random << shift) >> 16)) >> shift));
}

EMBD_INLINE uint16_t rounding_half(float x, embd_dtype dtype, uint32_t random)
{
    return dtype == EMBD_DTYPE_F16 ? rounding_f16(x, random) : rounding_bf16(x, random);
}

/* Of a coded row's column: between two codes, of a quotient that is first rounded to nearest in
 * units of 1/65536 of their distance, so that a column which a step leaves alone keeps its code. */
EMBD_INLINE uint32_t rounding_magnitude(float quotient, embd_dtype dtype, uint32_t random)
{
    uint32_t u = embd__f32_bits(quotient);
    if (dtype == EMBD_DTYPE_E4M3 && u >= 0x3c800000u) /* 2^-6 and more: 20 bits of a mantissa go */
        return (((u + 7u + ((u >> 4) & 1u)) >> 4) + random - (0x3c000000u >> 4)) >> 16;
    float unit = dtype == EMBD_DTYPE_I8 ? 0x1p16f : 0x1p25f;
    return ((uint32_t)(int32_t)embd__nearest_integer(quotient * unit) + random) >> 16;
}

EMBD_INLINE uint8_t rounding_code(float w, embd_dtype dtype, float scale, uint32_t random)
{
    float quotient = embd__code_quotient(w, dtype, scale);
    return embd__code_signed(rounding_magnitude(quotient, dtype, random), w, dtype);
}

/* The chance of a draw's column. */
EMBD_INLINE uint32_t rounding_random(const uint32_t word[4], uint32_t column)
{
    return word[column % ROUNDING_COLUMNS / 2] >> (column % 2 * 16) & 0xffffu;
}

/* A whole row. */
EMBD_INLINE void rounding_row(const struct rounding *r, uint16_t *to, embd_dtype dtype,
                              const float *from, uint32_t dim)
{
    for (uint32_t at = 0; at < dim; at += ROUNDING_COLUMNS) {
        uint32_t word[4];
        rounding_draw(r, at / ROUNDING_COLUMNS, word);
        for (uint32_t c = at; c < dim && c < at + ROUNDING_COLUMNS; c++)
            to[c] = rounding_half(from[c], dtype, rounding_random(word, c));
    }
}

#endif
