/* convert.c - see convert.h.
 *
 * Portable loops over the functions of dtype.h, and on x86 the same with AVX2 and F16C, and with
 * AVX-512, chosen when the program starts (machine.h). F16C keeps a NaN's upper bits where dtype.h
 * has one NaN of each sign, so NaNs are replaced; all else is the same by IEEE 754. Rounding is in
 * the instruction: the caller's rounding mode and its flushing of denormals decide nothing. */
#include "proto/convert.h"

#include "proto/machine.h"

typedef void widen_fn(float *restrict to, const uint16_t *restrict from, size_t n);
typedef void narrow_fn(uint16_t *restrict to, const float *restrict from, size_t n);

static void widen_f16(float *restrict to, const uint16_t *restrict from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = embd__f32_from_f16(from[i]);
}

static void widen_bf16(float *restrict to, const uint16_t *restrict from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = embd__f32_from_bf16(from[i]);
}

static void narrow_f16(uint16_t *restrict to, const float *restrict from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = embd__f16_from_f32(from[i]);
}

static void narrow_bf16(uint16_t *restrict to, const float *restrict from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = embd__bf16_from_f32(from[i]);
}

#ifdef __x86_64__
#include <immintrin.h>

#define LANES 8u

MACHINE_AVX2 static void widen_f16_avx2(float *restrict to, const uint16_t *restrict from, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        __m128i half = _mm_loadu_si128((const __m128i *)(const void *)(from + i));
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(half));
    }
    widen_f16(to + i, from + i, n - i);
}

/* The NaNs of f16 with the signs of x, and which of x are NaN. */
MACHINE_AVX2 static __m128i nan_of(__m256 x, __m128i *is_nan)
{
    __m256i wide = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    __m256i sign = _mm256_srli_epi32(_mm256_castps_si256(x), 31);
    *is_nan = _mm_packs_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
    __m128i signs =
        _mm_packs_epi32(_mm256_castsi256_si128(sign), _mm256_extracti128_si256(sign, 1));
    return _mm_or_si128(_mm_slli_epi16(signs, 15), _mm_set1_epi16(0x7e00));
}

MACHINE_AVX2 static void narrow_f16_avx2(uint16_t *restrict to, const float *restrict from,
                                         size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        __m256 x = _mm256_loadu_ps(from + i);
        __m128i half = _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        if (_mm256_movemask_ps(_mm256_cmp_ps(x, x, _CMP_UNORD_Q))) {
            __m128i is_nan, nan = nan_of(x, &is_nan);
            half = _mm_blendv_epi8(half, nan, is_nan);
        }
        _mm_storeu_si128((__m128i *)(void *)(to + i), half);
    }
    narrow_f16(to + i, from + i, n - i);
}

MACHINE_AVX2 static void widen_bf16_avx2(float *restrict to, const uint16_t *restrict from,
                                         size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        __m128i half = _mm_loadu_si128((const __m128i *)(const void *)(from + i));
        __m256i wide = _mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16);
        _mm256_storeu_ps(to + i, _mm256_castsi256_ps(wide));
    }
    widen_bf16(to + i, from + i, n - i);
}

/* Each lane's upper half, rounded. */
MACHINE_AVX2 static inline __m256i bf16_of(__m256 x)
{
    __m256i u = _mm256_castps_si256(x), upper = _mm256_srli_epi32(u, 16);
    __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    __m256i sum = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd);
    __m256i half = _mm256_srli_epi32(sum, 16);
    __m256 is_nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    if (_mm256_movemask_ps(is_nan) == 0)
        return half;
    __m256i nan = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
    return _mm256_blendv_epi8(half, nan, _mm256_castps_si256(is_nan));
}

MACHINE_AVX2 static void narrow_bf16_avx2(uint16_t *restrict to, const float *restrict from,
                                          size_t n)
{
    size_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        __m256i a = bf16_of(_mm256_loadu_ps(from + i));
        __m256i b = bf16_of(_mm256_loadu_ps(from + i + LANES));
        __m256i half = _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8);
        _mm256_storeu_si256((__m256i *)(void *)(to + i), half);
    }
    narrow_bf16(to + i, from + i, n - i);
}

/* ---- sixteen at a time, the last ones by a mask ---- */

#define LANES_512 16u

static inline __mmask16 lanes_of(size_t left)
{
    return (__mmask16)(left >= LANES_512 ? 0xffffu : (1u << left) - 1);
}

MACHINE_AVX512 static void widen_f16_avx512(float *restrict to, const uint16_t *restrict from,
                                            size_t n)
{
    for (size_t i = 0; i < n; i += LANES_512) {
        __mmask16 lanes = lanes_of(n - i);
        __m256i half = _mm256_maskz_loadu_epi16(lanes, from + i);
        _mm512_mask_storeu_ps(to + i, lanes, _mm512_cvtph_ps(half));
    }
}

MACHINE_AVX512 static void widen_bf16_avx512(float *restrict to, const uint16_t *restrict from,
                                             size_t n)
{
    for (size_t i = 0; i < n; i += LANES_512) {
        __mmask16 lanes = lanes_of(n - i);
        __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, from + i));
        _mm512_mask_storeu_epi32(to + i, lanes, _mm512_slli_epi32(wide, 16));
    }
}

MACHINE_AVX512 static void narrow_f16_avx512(uint16_t *restrict to, const float *restrict from,
                                             size_t n)
{
    for (size_t i = 0; i < n; i += LANES_512) {
        __mmask16 lanes = lanes_of(n - i);
        __m512 x = _mm512_maskz_loadu_ps(lanes, from + i);
        __m256i half = _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
        __m512i sign = _mm512_slli_epi32(_mm512_srli_epi32(_mm512_castps_si512(x), 31), 15);
        __m256i nan = _mm512_cvtepi32_epi16(_mm512_or_si512(sign, _mm512_set1_epi32(0x7e00)));
        _mm256_mask_storeu_epi16(to + i, lanes, _mm256_mask_blend_epi16(is_nan, half, nan));
    }
}

MACHINE_AVX512 static void narrow_bf16_avx512(uint16_t *restrict to, const float *restrict from,
                                              size_t n)
{
    for (size_t i = 0; i < n; i += LANES_512) {
        __mmask16 lanes = lanes_of(n - i);
        __m512 x = _mm512_maskz_loadu_ps(lanes, from + i);
        __m512i u = _mm512_castps_si512(x), upper = _mm512_srli_epi32(u, 16);
        __m512i odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
        __m512i half = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
        __m512i nan = _mm512_or_si512(upper, _mm512_set1_epi32(0x40));
        __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
        half = _mm512_mask_blend_epi32(is_nan, _mm512_srli_epi32(half, 16), nan);
        _mm256_mask_storeu_epi16(to + i, lanes, _mm512_cvtepi32_epi16(half));
    }
}
#endif

static const struct loops {
    widen_fn *widen_f16, *widen_bf16;
    narrow_fn *narrow_f16, *narrow_bf16;
} loops_of[MACHINE_PATHS] = {
    [MACHINE_ANY] = {widen_f16, widen_bf16, narrow_f16, narrow_bf16},
#ifdef __x86_64__
    [MACHINE_HAS_AVX2] = {widen_f16_avx2, widen_bf16_avx2, narrow_f16_avx2, narrow_bf16_avx2},
    [MACHINE_HAS_AVX512] = {widen_f16_avx512, widen_bf16_avx512, narrow_f16_avx512,
                            narrow_bf16_avx512},
#endif
};

void embd__widen(float *to, const uint16_t *from, embd_dtype dtype, size_t n)
{
    const struct loops *loops = &loops_of[embd__machine_path()];
    (dtype == EMBD_DTYPE_F16 ? loops->widen_f16 : loops->widen_bf16)(to, from, n);
}

void embd__narrow(uint16_t *to, embd_dtype dtype, const float *from, size_t n)
{
    const struct loops *loops = &loops_of[embd__machine_path()];
    (dtype == EMBD_DTYPE_F16 ? loops->narrow_f16 : loops->narrow_bf16)(to, from, n);
}
