/* test_dtype.c - all loops over arrays give the same bits as the plain ones, on every path that the
 * machine has. f16, bf16, and rows of i8 and e4m3: every value widens exactly, every value comes
 * back, and rounding is to nearest even as a model computes it that knows nothing of bits: it looks
 * for the nearest of all values. */
#include "tests/unit/cmocka_all.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "proto/machine.h"
#include "proto/packed.h"

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

static void widen_all(void)
{
    uint16_t half[SPAN];
    float out[SPAN + 1];
    for (uint32_t h = 0; h < 65536; h += 13) {
        uint32_t n = h % 2 ? SPAN : 13 + h % (SPAN - 13); /* so every value comes */
        for (uint32_t i = 0; i < n; i++)
            half[i] = (uint16_t)(h + i);
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

static void narrow_many(void)
{
    uint64_t x = 5;
    float from[SPAN];
    uint16_t out[SPAN + 1];
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

/* Every path that the machine has; of the others it says that they were not tried. */
static void on_every_path(void (*test)(void))
{
    for (int path = MACHINE_ANY; path < MACHINE_PATHS; path++) {
        if (path > (int)embd__machine_best()) {
            print_message("not tried: this machine has no %s\n",
                          embd__machine_path_name((enum machine_path)path));
            continue;
        }
        embd__machine_use((enum machine_path)path);
        test();
    }
    embd__machine_use(embd__machine_best());
}

static void arrays_widen_as_single_values(void **state)
{
    (void)state;
    on_every_path(widen_all);
}

static void arrays_narrow_as_single_values(void **state)
{
    (void)state;
    on_every_path(narrow_many);
}

/* ---- i8 and i4 ---- */

/* Rows of one magnitude, with what is hard in them. */
static void draw_row(float *row, uint32_t dim, uint64_t *x)
{
    uint32_t kind = (uint32_t)(*x >> 40) % 16;
    float unit = ldexpf(1, (int)(*x >> 50) % 250 - 130);
    for (uint32_t c = 0; c < dim; c++) {
        float any = any_float(x);
        int32_t whole = (int32_t)(*x >> 32) % 1000;
        row[c] = kind == 0   ? any
                 : kind == 1 ? 0
                 : kind < 9  ? (float)whole * unit
                             : (float)(int32_t)(*x >> 33) * unit;
    }
    if (kind == 2) /* quotients that are ties */
        row[0] = 254 * unit;
}

static uint8_t expected_rows[20000][2 * (SPAN + 4)];

/* The first path tells the others what to expect. */
static void pack_many(void)
{
    static float row[SPAN], back[SPAN + 1], plain[SPAN];
    uint64_t x = 9;
    for (uint32_t turn = 0; turn < 20000; turn++) {
        embd_dtype dtype = turn % 2 ? EMBD_DTYPE_I8 : EMBD_DTYPE_I4;
        uint32_t dim = 1 + turn / 2 % SPAN;
        const struct chance chance = {.id = x, .number = turn, .table = 7};
        size_t bytes = embd__wire_row_bytes(dtype, dim);
        uint8_t out[2 * (SPAN + 4) + 1];
        draw_row(row, dim, &x);
        embd__rows_from_f32(out, dtype, row, dim, 1);
        embd__grads_from_f32(out + bytes, dtype, row, dim, 1, &chance, turn);
        if (embd__machine_path() == MACHINE_ANY)
            memcpy(expected_rows[turn], out, 2 * bytes);
        assert_memory_equal(out, expected_rows[turn], 2 * bytes);
        assert_true(embd__packed_pad_is_zero(out, dtype, dim));
        enum machine_path path = embd__machine_path();
        back[dim] = 7;
        embd__rows_to_f32(back, out, dtype, dim, 1);
        assert_true(back[dim] == 7);
        embd__machine_use(MACHINE_ANY);
        embd__rows_to_f32(plain, out, dtype, dim, 1);
        embd__machine_use(path);
        assert_memory_equal(back, plain, dim * sizeof *back);
    }
}

static void rows_are_packed_the_same_on_every_path(void **state)
{
    (void)state;
    on_every_path(pack_many);
}

static void no_code_of_a_row_of_numbers_is_infinite(void **state)
{
    static const float rows[][2] = {
        {FLT_MAX, -FLT_MAX}, {FLT_MAX, 1}, {0x1p-149f, 0}, {0x1p-126f, -0x1p-127f}, {1, 1e-30f}};
    (void)state;
    for (int dtype = EMBD_DTYPE_I8; dtype <= EMBD_DTYPE_I4; dtype++)
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            uint8_t out[6];
            float back[2];
            embd__rows_from_f32(out, (embd_dtype)dtype, rows[i], 2, 1);
            assert_true(embd__packed_scale_is_valid(embd__packed_scale(out, (embd_dtype)dtype, 2),
                                                    (embd_dtype)dtype));
            embd__rows_to_f32(back, out, (embd_dtype)dtype, 2, 1);
            assert_true(isfinite(back[0]) && isfinite(back[1]));
            assert_true(fabsf(back[0]) <= FLT_MAX &&
                        fabsf(back[0] - rows[i][0]) <= fabsf(rows[i][0]) * 0.15f + 0x1p-149f);
        }
}

/* The mean of many pushes is the gradient, which nearest would lose. */
static void gradients_are_kept_on_average(void **state)
{
    enum { PUSHES = 8192 };
    static const float row[4] = {1, 0.0013f, -0.0371f, 0};
    (void)state;
    for (int dtype = EMBD_DTYPE_I8; dtype <= EMBD_DTYPE_I4; dtype++) {
        double sums[4] = {0}, step = dtype == EMBD_DTYPE_I8 ? 1 / 127.0 : 1 / 7.0;
        for (uint64_t n = 0; n < PUSHES; n++) {
            uint8_t out[8];
            float back[4];
            const struct chance chance = {.id = 0x1234567812345678u, .number = n, .table = 3};
            embd__grads_from_f32(out, (embd_dtype)dtype, row, 4, 1, &chance, 0);
            embd__rows_to_f32(back, out, (embd_dtype)dtype, 4, 1);
            for (int c = 0; c < 4; c++)
                sums[c] += (double)back[c];
        }
        for (int c = 0; c < 4; c++) /* three standard errors, of at most half a step each */
            assert_true(fabs(sums[c] / PUSHES - (double)row[c]) <= 1.5 * step / sqrt(PUSHES));
        assert_true(sums[3] == 0 && fabs(sums[0] / PUSHES - 1) < 1e-6);
    }
}

/* ---- rows of i8 and e4m3 ---- */

static double code_model(uint8_t code, embd_dtype dtype)
{
    if (dtype == EMBD_DTYPE_I8)
        return (int8_t)code;
    if ((code & 0x7f) == 0x7f)
        return NAN;
    double sign = code & 0x80 ? -1 : 1;
    int exponent = code >> 3 & 15, mantissa = code & 7;
    return sign * (exponent ? ldexp(8 + mantissa, exponent - 10) : ldexp(mantissa, -9));
}

static void every_code_widens_exactly_and_comes_back(void **state)
{
    (void)state;
    for (int dtype = EMBD_DTYPE_I8; dtype <= EMBD_DTYPE_E4M3; dtype += 2)
        for (uint32_t code = 0; code < 256; code++) {
            double expected = code_model((uint8_t)code, (embd_dtype)dtype);
            float x = embd__f32_from_code((uint8_t)code, (embd_dtype)dtype, 0.25f);
            if (isnan(expected)) {
                assert_int_equal(embd__f32_bits(x), 0x7fc00000);
                continue;
            }
            assert_true((double)x == expected / 4 && !signbit(x) == !signbit(expected));
            uint8_t back = embd__code_from_f32(x, (embd_dtype)dtype, 0.25f);
            assert_int_equal(back, code == 0x80 && dtype == EMBD_DTYPE_I8 ? 0x81 : code);
        }
}

/* Of all codes the nearest to x / scale; of two the even one. */
static uint8_t nearest_code(float x, embd_dtype dtype, float scale)
{
    double quotient = fabs((double)(x / scale)), least = INFINITY;
    uint8_t best = 0;
    for (uint8_t code = 0; code < 0x7f + (dtype == EMBD_DTYPE_I8); code++) {
        double distance = fabs(code_model(code, dtype) - quotient);
        if (distance < least || (distance == least && code % 2 == 0)) {
            least = distance;
            best = code;
        }
    }
    if (dtype == EMBD_DTYPE_I8)
        return (uint8_t)(signbit(x) ? -best : best);
    return (uint8_t)(best | (signbit(x) ? 0x80 : 0));
}

static void narrow_rows(void)
{
    uint64_t seed = 9;
    float from[SPAN], back[SPAN + 1];
    uint32_t memory[SPAN / 4 + 3];
    uint8_t *row = (uint8_t *)memory;
    for (uint32_t turn = 0; turn < 3000; turn++) {
        uint32_t n = 1 + turn % SPAN;
        embd_dtype dtype = turn / SPAN % 2 ? EMBD_DTYPE_I8 : EMBD_DTYPE_E4M3;
        float largest = 0, scale;
        for (uint32_t i = 0; i < n; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            from[i] = (float)((int)(seed >> 40) % 4096 - 2048) / (float)(1 << (seed >> 33) % 12);
            from[i] *= turn % 5 ? 1.0f : 0x1p-140f;
            largest = fmaxf(largest, fabsf(from[i]));
        }
        memset(memory, 0xee, sizeof memory);
        back[n] = 7;
        embd__row_from_f32(row, dtype, from, n);
        embd__row_to_f32(back, row, dtype, n);
        memcpy(&scale, row, sizeof scale);
        assert_true(scale == largest / (dtype == EMBD_DTYPE_I8 ? 127.0f : 448.0f) && back[n] == 7);
        for (uint32_t i = 0; i < n; i++) {
            uint8_t code = scale > 0 ? nearest_code(from[i], dtype, scale) : 0;
            float widened = (float)code_model(code, dtype) * scale;
            if (row[4 + i] != code || embd__f32_bits(back[i]) != embd__f32_bits(widened))
                fail_msg("dtype %d: %a of scale %a is %02x, %a; expected %02x, %a", (int)dtype,
                         (double)from[i], (double)scale, row[4 + i], (double)back[i], code,
                         (double)widened);
        }
        size_t bytes = embd__value_bytes(dtype, n);
        assert_true(bytes % 4 == 0 && bytes >= 4 + n && bytes < 8 + n);
        for (size_t i = 4 + n; i < bytes; i++)
            assert_int_equal(row[i], 0);
        assert_int_equal(row[bytes], 0xee);
    }
}

static void rows_of_codes_are_the_nearest_on_every_path(void **state)
{
    (void)state;
    on_every_path(narrow_rows);
}

/* One such column makes the row NaN, wherever it is. */
static void a_row_with_a_nan_or_an_infinity_is_nan(void **state)
{
    const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    (void)state;
    for (uint32_t turn = 0; turn < 4 * 19; turn++)
        for (int dtype = EMBD_DTYPE_I8; dtype <= EMBD_DTYPE_E4M3; dtype += 2) {
            float from[19] = {1, -2, FLT_MAX, 0, 5}, back[19];
            uint8_t row[24];
            from[turn / 4] = bad[turn % 4];
            embd__row_from_f32(row, (embd_dtype)dtype, from, 19);
            embd__row_to_f32(back, row, (embd_dtype)dtype, 19);
            for (uint32_t i = 0; i < 19; i++)
                assert_true(embd__f32_bits(back[i]) == 0x7fc00000u && row[4 + i] == 0);
        }
}

static void the_largest_values_stay_finite(void **state)
{
    (void)state;
    for (int dtype = EMBD_DTYPE_I8; dtype <= EMBD_DTYPE_E4M3; dtype += 2)
        for (uint32_t below = 0; below < 1000; below++) {
            float from = embd__f32_from_bits(0x7f7fffffu - below), back;
            uint8_t row[8];
            embd__row_from_f32(row, (embd_dtype)dtype, &from, 1);
            embd__row_to_f32(&back, row, (embd_dtype)dtype, 1);
            assert_true(isfinite(back) && back > from * 0.99f);
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
        cmocka_unit_test(rows_are_packed_the_same_on_every_path),
        cmocka_unit_test(no_code_of_a_row_of_numbers_is_infinite),
        cmocka_unit_test(gradients_are_kept_on_average),
        cmocka_unit_test(every_code_widens_exactly_and_comes_back),
        cmocka_unit_test(rows_of_codes_are_the_nearest_on_every_path),
        cmocka_unit_test(a_row_with_a_nan_or_an_infinity_is_nan),
        cmocka_unit_test(the_largest_values_stay_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
