/* rowcode.c - see convert.h and rowcode.h. Loops over its functions, compiled for each path of
 * machine.h. Parameters are scalars, and contraction is off: no path has fused multiply-add. */
#include "proto/convert.h"
#include "proto/machine.h"

typedef void widen_fn(float *restrict to, const uint8_t *restrict code, float scale, uint32_t n);
typedef void narrow_fn(uint8_t *restrict code, const float *restrict from, float scale, uint32_t n);
typedef uint32_t largest_fn(const float *restrict from, uint32_t n);

/* The loops, for code that `target` allows. */
#define LOOPS(suffix, target)                                                                      \
    target static void widen_i8##suffix(float *restrict to, const uint8_t *restrict code,          \
                                        float scale, uint32_t n)                                   \
    {                                                                                              \
        for (uint32_t c = 0; c < n; c++)                                                           \
            to[c] = embd__f32_from_code(code[c], EMBD_DTYPE_I8, scale);                            \
    }                                                                                              \
    target static void widen_e4m3##suffix(float *restrict to, const uint8_t *restrict code,        \
                                          float scale, uint32_t n)                                 \
    {                                                                                              \
        for (uint32_t c = 0; c < n; c++)                                                           \
            to[c] = embd__f32_from_code(code[c], EMBD_DTYPE_E4M3, scale);                          \
    }                                                                                              \
    target static void narrow_i8##suffix(uint8_t *restrict code, const float *restrict from,       \
                                         float scale, uint32_t n)                                  \
    {                                                                                              \
        for (uint32_t c = 0; c < n; c++)                                                           \
            code[c] = embd__code_from_f32(from[c], EMBD_DTYPE_I8, scale);                          \
    }                                                                                              \
    target static void narrow_e4m3##suffix(uint8_t *restrict code, const float *restrict from,     \
                                           float scale, uint32_t n)                                \
    {                                                                                              \
        for (uint32_t c = 0; c < n; c++)                                                           \
            code[c] = embd__code_from_f32(from[c], EMBD_DTYPE_E4M3, scale);                        \
    }                                                                                              \
    target static uint32_t largest##suffix(const float *restrict from, uint32_t n)                 \
    {                                                                                              \
        uint32_t most = 0;                                                                         \
        for (uint32_t c = 0; c < n; c++) {                                                         \
            uint32_t bits = embd__magnitude_bits(from[c]);                                         \
            most = bits > most ? bits : most;                                                      \
        }                                                                                          \
        return most;                                                                               \
    }

LOOPS(, )

#ifdef __x86_64__
LOOPS(_avx2, MACHINE_AVX2)
LOOPS(_avx512, MACHINE_AVX512)
#define PATHS(loop)                                                                                \
    {                                                                                              \
        loop, loop##_avx2, loop##_avx512                                                           \
    }
#else
#define PATHS(loop)                                                                                \
    {                                                                                              \
        loop, loop, loop                                                                           \
    }
#endif

static widen_fn *const widen[][MACHINE_PATHS] = {PATHS(widen_i8), PATHS(widen_e4m3)};
static narrow_fn *const narrow[][MACHINE_PATHS] = {PATHS(narrow_i8), PATHS(narrow_e4m3)};
static largest_fn *const largest_by[MACHINE_PATHS] = PATHS(largest);

void embd__codes_widen(float *to, const void *row, embd_dtype dtype, uint32_t dim)
{
    float scale;
    memcpy(&scale, row, sizeof scale);
    widen[dtype == EMBD_DTYPE_E4M3][embd__machine_path()](to, (const uint8_t *)row + ROWCODE_AT,
                                                          scale, dim);
}

float embd__codes_begin(void *row, embd_dtype dtype, const float *from, uint32_t dim)
{
    float scale = embd__code_scale(dtype, largest_by[embd__machine_path()](from, dim));
    memset(row, 0, embd__value_bytes(dtype, dim));
    memcpy(row, &scale, sizeof scale);
    return scale;
}

void embd__codes_narrow(void *row, embd_dtype dtype, const float *from, uint32_t dim)
{
    float scale = embd__codes_begin(row, dtype, from, dim);
    if (embd__code_scales(scale))
        narrow[dtype == EMBD_DTYPE_E4M3][embd__machine_path()]((uint8_t *)row + ROWCODE_AT, from,
                                                               scale, dim);
}
