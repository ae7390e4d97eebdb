/* test_dtype.c - f16 and bf16: every value widens exactly, every value comes back, and rounding is
 * to nearest even as a model computes it that knows nothing of bits: it looks for the nearest of
 * all values. */
#include "tests/unit/cmocka_all.h"

#include <math.h>
#include <stdlib.h>

#include "proto/convert.h"

/* The value of a half by the definition of the format, in double. */
static double model_of(uint16_t h, int exponent_bits, int mantissa_bits)
{
    int bias = (1 << (exponent_bits - 1)) - 1,
        exponent = h >> mantissa_bits & ((1 << exponent_bits) - 1);
    int mantissa = h & ((1 << mantissa_bits) - 1);
    double sign = h & 0x8000 ? -1 : 1;
    if (exponent == (1 << exponent_bits) - 1)
        return mantissa ? NAN : sign * INFINITY;
    if (exponent == 0)
        return sign * ldexp(mantissa, 1 - bias - mantissa_bits);
    return sign * ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

/* Of the non-negative halves, by bisection, those around x; then the nearer, the even one in a tie.
 * The step after the last finite one counts as 2^16 or 2^128, and is infinity. */
static uint16_t nearest(float x, int exponent_bits, int mantissa_bits)
{
    uint16_t sign = signbit(x) ? 0x8000 : 0,
             infinity = (uint16_t)(((1 << exponent_bits) - 1) << mantissa_bits);
    double value = fabs((double)x), top = ldexp(1, 1 << (exponent_bits - 1));
    uint32_t low = 0, high = infinity;
    if (value >= top)
        return sign | infinity;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (model_of((uint16_t)middle, exponent_bits, mantissa_bits) <= value)
            low = middle;
        else
            high = middle;
    }
    double below = model_of((uint16_t)low, exponent_bits, mantissa_bits);
    double above = high == infinity ? top : model_of((uint16_t)high, exponent_bits, mantissa_bits);
    bool up = value - below > above - value || (value - below == above - value && low % 2 == 1);
    return (uint16_t)(sign | (up ? high : low));
}

static void every_f16_and_bf16_widens_exactly(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        double f16 = model_of((uint16_t)h, 5, 10), bf16 = model_of((uint16_t)h, 8, 7);
        float x = embd__f32_from_f16((uint16_t)h), y = embd__f32_from_bf16((uint16_t)h);
        assert_true(isnan(f16) ? isnan(x) != 0 : (double)x == f16);
        assert_true(isnan(bf16) ? isnan(y) != 0 : (double)y == bf16);
        assert_int_equal(signbit(x) != 0, h >> 15);
        assert_int_equal(signbit(y) != 0, h >> 15);
    }
}

static void every_f16_and_bf16_comes_back(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        uint16_t f16 = embd__f16_from_f32(embd__f32_from_f16((uint16_t)h));
        uint16_t bf16 = embd__bf16_from_f32(embd__f32_from_bf16((uint16_t)h));
        bool f16_nan = (h & 0x7c00) == 0x7c00 && (h & 0x3ff),
             bf16_nan = (h & 0x7f80) == 0x7f80 && (h & 0x7f);
        if (f16_nan)
            assert_int_equal(f16 & 0xfe00, (h & 0x8000) | 0x7e00);
        else
            assert_int_equal(f16, h);
        if (bf16_nan)
            assert_int_equal(bf16, h | 0x40);
        else
            assert_int_equal(bf16, h);
    }
}

static void agrees(float x)
{
    if (isnan(x))
        return;
    if (embd__f16_from_f32(x) != nearest(x, 5, 10) || embd__bf16_from_f32(x) != nearest(x, 8, 7))
        fail_msg("%a rounds to f16 %04x, expected %04x; bf16 %04x, expected %04x", (double)x,
                 embd__f16_from_f32(x), nearest(x, 5, 10), embd__bf16_from_f32(x),
                 nearest(x, 8, 7));
}

/* x, its neighbours, and all of them negative. */
static void agrees_around(float x)
{
    for (int step = -2; step <= 2; step++) {
        float y = embd__f32_from_bits(embd__f32_bits(x) + (uint32_t)step);
        agrees(y);
        agrees(-y);
    }
}

static void ties_and_their_neighbours_round_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t h = 1; h < 0x7c00; h++) {
        double a = model_of((uint16_t)h, 5, 10), b = model_of((uint16_t)(h + 1), 5, 10);
        agrees_around((float)((a + (isinf(b) ? 65536.0 : b)) / 2));
        agrees_around((float)a);
    }
    for (uint32_t h = 1; h < 0x7f80; h += 7)
        agrees_around(embd__f32_from_bits(h << 16 | 0x8000));
    agrees_around(0x1p-25f);
    agrees_around(0x1p-24f);
    agrees_around(0x1p-14f);
    agrees_around(65504.0f);
    agrees_around(65520.0f);
    agrees(0.0f);
    agrees(-0.0f);
    agrees(INFINITY);
    agrees(-INFINITY);
}

static void values_of_all_magnitudes_round_to_nearest_even(void **state)
{
    uint64_t x = 1;
    (void)state;
    for (uint32_t i = 0; i < 400000; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        agrees(embd__f32_from_bits((uint32_t)(x >> 32)));
        agrees(embd__f32_from_bits(
            (uint32_t)(0x30000000u + (x >> 33) % 0x18000000u))); /* around f16's range */
    }
}

static void arrays_convert_elementwise(void **state)
{
    static const float from[5] = {0, -1.5f, 65504, 1e-7f, 3};
    (void)state;
    for (int dtype = EMBD_DTYPE_F32; dtype <= EMBD_DTYPE_BF16; dtype++) {
        uint8_t wire[20];
        float back[5];
        embd__from_f32(wire, (embd_dtype)dtype, from, 5);
        embd__to_f32(back, wire, (embd_dtype)dtype, 5);
        assert_true(back[0] == 0 && back[1] == -1.5f && back[4] == 3);
        assert_int_equal(embd__dtype_bytes((embd_dtype)dtype), dtype == EMBD_DTYPE_F32 ? 4 : 2);
    }
}

/* Lengths around those of vector registers; every half, and floats of all kinds, NaNs too. */
#define SPAN 67u

static void arrays_widen_as_single_values(void **state)
{
    uint16_t half[SPAN];
    float out[SPAN + 1];
    (void)state;
    for (uint32_t h = 0; h < 65536; h += 13) {
        uint32_t n = h % (SPAN + 1);
        for (uint32_t i = 0; i < n; i++)
            half[i] = (uint16_t)(h + i * 13 / 12);
        for (int dtype = EMBD_DTYPE_F16; dtype <= EMBD_DTYPE_BF16; dtype++) {
            out[n] = 7;
            embd__to_f32(out, half, (embd_dtype)dtype, n);
            for (uint32_t i = 0; i < n; i++)
                assert_int_equal(embd__f32_bits(out[i]),
                                 embd__f32_bits(embd__f32_from_half(half[i], (embd_dtype)dtype)));
            assert_true(out[n] == 7);
        }
    }
}

static float any_float(uint64_t *x)
{
    *x = *x * 6364136223846793005u + 1442695040888963407u;
    uint32_t bits = (uint32_t)(*x >> 32);
    switch (*x >> 29 & 7) {
    case 0: /* NaN or infinity */
        return embd__f32_from_bits(bits | 0x7f800000u);
    case 1: /* a tie, and what is beside it */
        return embd__f32_from_bits((bits & 0xfffff000u) + (bits >> 7) % 3 - 1);
    case 2: /* subnormal */
        return embd__f32_from_bits(bits & 0x807fffffu);
    case 3:
    case 4: /* around f16's range */
        return embd__f32_from_bits((bits & 0x80000000u) | (0x30000000u + bits % 0x18000000u));
    default:
        return embd__f32_from_bits(bits);
    }
}

static void arrays_narrow_as_single_values(void **state)
{
    uint64_t x = 5;
    float from[SPAN];
    uint16_t out[SPAN + 1];
    (void)state;
    for (uint32_t turn = 0; turn < 20000; turn++) {
        uint32_t n = turn % (SPAN + 1);
        for (uint32_t i = 0; i < n; i++)
            from[i] = any_float(&x);
        for (int dtype = EMBD_DTYPE_F16; dtype <= EMBD_DTYPE_BF16; dtype++) {
            out[n] = 7;
            embd__from_f32(out, (embd_dtype)dtype, from, n);
            for (uint32_t i = 0; i < n; i++)
                assert_int_equal(out[i], embd__half_from_f32(from[i], (embd_dtype)dtype));
            assert_int_equal(out[n], 7);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_f16_and_bf16_widens_exactly),
        cmocka_unit_test(every_f16_and_bf16_comes_back),
        cmocka_unit_test(ties_and_their_neighbours_round_to_nearest_even),
        cmocka_unit_test(values_of_all_magnitudes_round_to_nearest_even),
        cmocka_unit_test(arrays_convert_elementwise),
        cmocka_unit_test(arrays_widen_as_single_values),
        cmocka_unit_test(arrays_narrow_as_single_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
