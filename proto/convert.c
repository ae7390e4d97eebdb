/* convert.c - see convert.h.
 *
 * Portable loops over the functions of dtype.h, and on x86 the same with AVX2 and F16C, chosen when
 * the program starts. F16C keeps a NaN's upper bits where dtype.h has one NaN of each sign, so NaNs
 * are replaced; all else is the same by IEEE 754. Rounding is in the instruction: the caller's
 * rounding mode and its flushing of denormals decide nothing. */
#include "proto/convert.h"

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

static struct {
    widen_fn *widen_f16, *widen_bf16;
    narrow_fn *narrow_f16, *narrow_bf16;
} machine = {widen_f16, widen_bf16, narrow_f16, narrow_bf16};

#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>

#define AVX2  __attribute__((target("avx2,f16c")))
#define LANES 8u

AVX2 static void widen_f16_avx2(float *restrict to, const uint16_t *restrict from, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        __m128i half = _mm_loadu_si128((const __m128i *)(const void *)(from + i));
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(half));
    }
    widen_f16(to + i, from + i, n - i);
}

/* The NaNs of f16 with the signs of x, and which of x are NaN. */
AVX2 static __m128i nan_of(__m256 x, __m128i *is_nan)
{
    __m256i wide = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    __m256i sign = _mm256_srli_epi32(_mm256_castps_si256(x), 31);
    *is_nan = _mm_packs_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
    __m128i signs =
        _mm_packs_epi32(_mm256_castsi256_si128(sign), _mm256_extracti128_si256(sign, 1));
    return _mm_or_si128(_mm_slli_epi16(signs, 15), _mm_set1_epi16(0x7e00));
}

AVX2 static void narrow_f16_avx2(uint16_t *restrict to, const float *restrict from, size_t n)
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

AVX2 static void widen_bf16_avx2(float *restrict to, const uint16_t *restrict from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = embd__f32_from_bf16(from[i]);
}

AVX2 static void narrow_bf16_avx2(uint16_t *restrict to, const float *restrict from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = embd__bf16_from_f32(from[i]);
}

__attribute__((constructor)) static void choose(void)
{
    unsigned a, b, c, d;
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_F16C))
        return;
    machine.widen_f16 = widen_f16_avx2;
    machine.widen_bf16 = widen_bf16_avx2;
    machine.narrow_f16 = narrow_f16_avx2;
    machine.narrow_bf16 = narrow_bf16_avx2;
}
#endif

void embd__widen(float *to, const uint16_t *from, embd_dtype dtype, size_t n)
{
    (dtype == EMBD_DTYPE_F16 ? machine.widen_f16 : machine.widen_bf16)(to, from, n);
}

void embd__narrow(uint16_t *to, embd_dtype dtype, const float *from, size_t n)
{
    (dtype == EMBD_DTYPE_F16 ? machine.narrow_f16 : machine.narrow_bf16)(to, from, n);
}
