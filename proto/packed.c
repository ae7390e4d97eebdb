/* packed.c - see packed.h.
 *
 * Loops over one row, compiled for the machine's vectors three times over and chosen when the
 * program starts. They have one source, of sums, products and quotients that IEEE 754 defines, so
 * all give the same bits. */
#include "proto/packed.h"

#include "proto/machine.h"
#include "proto/philox.h"

#define DRAWS        0x51554e54u /* other draws than those of first values and stored rows */
#define DRAW_COLUMNS 8u
/* Adding and subtracting it rounds a float of less than 2^22 to a whole number, ties to even. */
#define TO_WHOLE 0x1.8p+23f

#define ALWAYS_INLINE static inline __attribute__((always_inline))

struct kind {
    float most; /* code */
    float scale_max;
};

static const struct kind kind_i8 = {127.0f, EMBD__I8_SCALE_MAX},
                         kind_i4 = {7.0f, EMBD__I4_SCALE_MAX};

static const struct kind *kind_of(embd_dtype dtype)
{
    return dtype == EMBD_DTYPE_I8 ? &kind_i8 : &kind_i4;
}

static size_t code_bytes(embd_dtype dtype, uint32_t dim)
{
    return embd__wire_row_bytes(dtype, dim) - sizeof(float);
}

/* ---- one row, in loops ---- */

typedef uint32_t top_fn(const float *restrict row, uint32_t dim);
typedef void quantize_fn(int8_t *restrict to, const float *restrict from, uint32_t dim, float scale,
                         float most);
typedef void throw_fn(int8_t *restrict to, const float *restrict from, uint32_t dim, float scale,
                      float most, const uint16_t *restrict random);
typedef void widen_fn(float *restrict to, const int8_t *restrict from, uint32_t dim, float scale);

/* The bits of the greatest magnitude: those of infinity and NaN are greater than a number's. */
ALWAYS_INLINE uint32_t top(const float *restrict row, uint32_t dim)
{
    uint32_t most = 0;
    for (uint32_t c = 0; c < dim; c++) {
        uint32_t bits = embd__f32_bits(row[c]) & 0x7fffffffu;
        most = bits > most ? bits : most;
    }
    return most;
}

ALWAYS_INLINE float within(float x, float most)
{
    x = x < -most ? -most : x;
    return x > most ? most : x;
}

ALWAYS_INLINE void quantize(int8_t *restrict to, const float *restrict from, uint32_t dim,
                            float scale, float most)
{
    for (uint32_t c = 0; c < dim; c++)
        to[c] = (int8_t)(int32_t)((within(from[c] / scale, most) + TO_WHOLE) - TO_WHOLE);
}

/* The whole number below value / scale + (random + 1/2) / 65536. */
ALWAYS_INLINE void throw_dice(int8_t *restrict to, const float *restrict from, uint32_t dim,
                              float scale, float most, const uint16_t *restrict random)
{
    for (uint32_t c = 0; c < dim; c++) {
        float x = within(from[c] / scale, most) + ((float)random[c] + 0.5f) * 0x1p-16f;
        int32_t whole = (int32_t)x;
        to[c] = (int8_t)(whole - (x < (float)whole));
    }
}

ALWAYS_INLINE void widen(float *restrict to, const int8_t *restrict from, uint32_t dim, float scale)
{
    for (uint32_t c = 0; c < dim; c++)
        to[c] = (float)from[c] * scale;
}

#define LOOPS(name, attribute)                                                                     \
    attribute static uint32_t top_##name(const float *restrict row, uint32_t dim)                  \
    {                                                                                              \
        return top(row, dim);                                                                      \
    }                                                                                              \
    attribute static void quantize_##name(int8_t *restrict to, const float *restrict from,         \
                                          uint32_t dim, float scale, float most)                   \
    {                                                                                              \
        quantize(to, from, dim, scale, most);                                                      \
    }                                                                                              \
    attribute static void throw_##name(int8_t *restrict to, const float *restrict from,            \
                                       uint32_t dim, float scale, float most,                      \
                                       const uint16_t *restrict random)                            \
    {                                                                                              \
        throw_dice(to, from, dim, scale, most, random);                                            \
    }                                                                                              \
    attribute static void widen_##name(float *restrict to, const int8_t *restrict from,            \
                                       uint32_t dim, float scale)                                  \
    {                                                                                              \
        widen(to, from, dim, scale);                                                               \
    }

#define TABLE(name)                                                                                \
    {                                                                                              \
        top_##name, quantize_##name, throw_##name, widen_##name                                    \
    }

LOOPS(any, )
#ifdef __x86_64__
LOOPS(avx2, MACHINE_AVX2)
LOOPS(avx512, MACHINE_AVX512)
#endif

static const struct loops {
    top_fn *top;
    quantize_fn *quantize;
    throw_fn *throw_dice;
    widen_fn *widen;
} loops_of[MACHINE_PATHS] = {
    [MACHINE_ANY] = TABLE(any),
#ifdef __x86_64__
    [MACHINE_HAS_AVX2] = TABLE(avx2),
    [MACHINE_HAS_AVX512] = TABLE(avx512),
#endif
};

static const struct loops *loops(void)
{
    return &loops_of[embd__machine_path()];
}

/* ---- halves of a byte ---- */

/* codes[dim] of an odd dim is written. */
static void join(uint8_t *restrict to, int8_t *restrict codes, uint32_t dim)
{
    codes[dim] = 0;
    for (uint32_t i = 0; i < (dim + 1) / 2; i++)
        to[i] = (uint8_t)((codes[2 * i] & 15) | (codes[2 * i + 1] & 15) << 4);
}

static void part(int8_t *restrict codes, const uint8_t *restrict from, uint32_t dim)
{
    for (uint32_t i = 0; i < (dim + 1) / 2; i++) {
        codes[2 * i] = (int8_t)(((from[i] & 15) ^ 8) - 8);
        codes[2 * i + 1] = (int8_t)(((from[i] >> 4) ^ 8) - 8);
    }
}

/* ---- rows ---- */

static float scale_of(const float *row, uint32_t dim, const struct kind *kind)
{
    uint32_t most = loops()->top(row, dim);
    if (most >= 0x7f800000u)
        return embd__f32_from_bits(0x7fc00000u);
    float scale = embd__f32_from_bits(most) / kind->most;
    return scale < kind->scale_max ? scale : kind->scale_max;
}

/* Words of columns 8 * block .. of a row. */
static void draw(const struct chance *chance, uint32_t row, uint32_t block, uint16_t *to)
{
    philox4x32_ctr_t counter = {
        {row, block, (uint32_t)chance->number, (uint32_t)(chance->number >> 32)}};
    philox4x32_key_t key = {
        {(uint32_t)chance->id ^ chance->table ^ DRAWS, (uint32_t)(chance->id >> 32)}};
    philox4x32_ctr_t drawn = philox4x32(counter, key);
    for (uint32_t i = 0; i < DRAW_COLUMNS; i++)
        to[i] = (uint16_t)(drawn.v[i / 2] >> (i % 2 * 16));
}

/* `chance` NULL: to nearest. */
static void codes_of(int8_t *codes, const float *from, uint32_t dim, float scale, float most,
                     const struct chance *chance, uint32_t row)
{
    uint16_t random[EMBD_DIM_MAX + DRAW_COLUMNS];
    if (!(scale > 0.0f)) {
        memset(codes, 0, dim);
    } else if (chance == NULL) {
        loops()->quantize(codes, from, dim, scale, most);
    } else {
        for (uint32_t at = 0; at < dim; at += DRAW_COLUMNS)
            draw(chance, row, at / DRAW_COLUMNS, random + at);
        loops()->throw_dice(codes, from, dim, scale, most, random);
    }
}

static void pack(uint8_t *to, embd_dtype dtype, const float *from, uint32_t dim,
                 const struct chance *chance, uint32_t row)
{
    const struct kind *kind = kind_of(dtype);
    float scale = scale_of(from, dim, kind);
    int8_t codes[EMBD_DIM_MAX + 1];
    bool is_i8 = dtype == EMBD_DTYPE_I8;
    codes_of(is_i8 ? (int8_t *)to : codes, from, dim, scale, kind->most, chance, row);
    if (!is_i8)
        join(to, codes, dim);
    memcpy(to + code_bytes(dtype, dim), &scale, sizeof scale);
}

static void unpack(float *to, const uint8_t *from, embd_dtype dtype, uint32_t dim)
{
    int8_t codes[EMBD_DIM_MAX + 1];
    float scale = embd__packed_scale(from, dtype, dim);
    bool is_i8 = dtype == EMBD_DTYPE_I8;
    if (!is_i8)
        part(codes, from, dim);
    loops()->widen(to, is_i8 ? (const int8_t *)from : codes, dim, scale);
}

void embd__rows_to_f32(float *to, const void *from, embd_dtype dtype, uint32_t dim, size_t n)
{
    const uint8_t *row = from;
    if (!embd__is_packed(dtype)) {
        embd__to_f32(to, from, dtype, n * dim);
        return;
    }
    for (size_t i = 0; i < n; i++, to += dim, row += embd__wire_row_bytes(dtype, dim))
        unpack(to, row, dtype, dim);
}

void embd__rows_from_f32(void *to, embd_dtype dtype, const float *from, uint32_t dim, size_t n)
{
    embd__grads_from_f32(to, dtype, from, dim, n, NULL, 0);
}

void embd__grads_from_f32(void *to, embd_dtype dtype, const float *from, uint32_t dim, size_t n,
                          const struct chance *chance, uint32_t row)
{
    uint8_t *out = to;
    if (!embd__is_packed(dtype)) {
        embd__from_f32(to, dtype, from, n * dim);
        return;
    }
    for (size_t i = 0; i < n; i++, from += dim, out += embd__wire_row_bytes(dtype, dim))
        pack(out, dtype, from, dim, chance, row + (uint32_t)i);
}

/* ---- what came ---- */

float embd__packed_scale(const void *row, embd_dtype dtype, uint32_t dim)
{
    float scale;
    memcpy(&scale, (const uint8_t *)row + code_bytes(dtype, dim), sizeof scale);
    return scale;
}

bool embd__packed_scale_is_valid(float scale, embd_dtype dtype)
{
    return embd__f32_bits(scale) <= embd__f32_bits(kind_of(dtype)->scale_max);
}

bool embd__packed_pad_is_zero(const void *row, embd_dtype dtype, uint32_t dim)
{
    const uint8_t *bytes = row;
    return dtype != EMBD_DTYPE_I4 || dim % 2 == 0 || bytes[dim / 2] >> 4 == 0;
}
