/* test_numbers.c - the shared arithmetic against published vectors, golden values and independent
 * formulas. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "proto/initializer.h"
#include "tests/model/model.h"
#include "server/store/optimizer.h"

/* Philox4x32-10 as in Random123's kat_vectors. */
static const struct {
    uint32_t counter[4], key[2], out[4];
} philox_vectors[] = {
    {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
     {0xffffffff, 0xffffffff},
     {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
     {0xa4093822, 0x299f31d0},
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

static void test_philox(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof philox_vectors / sizeof philox_vectors[0]; i++) {
        uint32_t out[4], drawn[4];
        const uint32_t *c = philox_vectors[i].counter, *k = philox_vectors[i].key;
        model_philox(c, k, out);
        assert_memory_equal(out, philox_vectors[i].out, sizeof out);
        embd__initializer_draw(k[0] | (uint64_t)k[1] << 32, c[0] | (uint64_t)c[1] << 32, c[3], c[2],
                               drawn);
        assert_memory_equal(drawn, philox_vectors[i].out, sizeof drawn);
    }
}

/* First values that must never change: a table made by one version is read by the next. */
static const struct {
    struct initializer init;
    uint64_t key;
    uint32_t slot;
    uint32_t bits[6];
} golden[] = {
    {{EMBD_INITIALIZER_UNIFORM, -0.05f, 0.05f, 0x0ULL},
     0x0ULL,
     0,
     {0xbc256700, 0x3d1bdc6f, 0x3cc1188e, 0x3c2cd248, 0x3ada9dc0, 0x3d34157d}},
    {{EMBD_INITIALIZER_UNIFORM, -0.05f, 0.05f, 0x2aULL},
     0xffffffffffffffffULL,
     0,
     {0x3bc33ca8, 0xbd275fa6, 0xbbd0e4a8, 0x3d001f79, 0xbc9be123, 0xbcf26267}},
    {{EMBD_INITIALIZER_UNIFORM, -0.05f, 0.05f, 0xfedcba9876543210ULL},
     0x123456789abcdefULL,
     1023,
     {0xbd3334b8, 0xbd2e81f7, 0xbd3f16c0, 0x3c576e6c, 0x3c28a8e8, 0x3be65a50}},
    {{EMBD_INITIALIZER_NORMAL, 0.25f, 0.5f, 0x0ULL},
     0x0ULL,
     0,
     {0x3dfa0b61, 0x3f56bb4f, 0x3f10a9dc, 0x3ec47ef6, 0x3e8ab4c2, 0x3f83527d}},
    {{EMBD_INITIALIZER_NORMAL, 0.25f, 0.5f, 0x2aULL},
     0xffffffffffffffffULL,
     0,
     {0x3ea66068, 0xbed514bd, 0x3e2dd55e, 0x3f31b294, 0x3adb75c5, 0xbe276b8c}},
    {{EMBD_INITIALIZER_NORMAL, 0.25f, 0.5f, 0xfedcba9876543210ULL},
     0x123456789abcdefULL,
     1023,
     {0xbf0461e8, 0xbef26b1b, 0xbf2a7f84, 0x3ed5f6f1, 0x3ec2cedc, 0x3ead589a}},
    {{EMBD_INITIALIZER_CONSTANT, 1.5f, 0.0f, 0x0ULL},
     0x0ULL,
     0,
     {0x3fc00000, 0x3fc00000, 0x3fc00000, 0x3fc00000, 0x3fc00000, 0x3fc00000}},
    {{EMBD_INITIALIZER_CONSTANT, 1.5f, 0.0f, 0x2aULL},
     0xffffffffffffffffULL,
     0,
     {0x3fc00000, 0x3fc00000, 0x3fc00000, 0x3fc00000, 0x3fc00000, 0x3fc00000}},
    {{EMBD_INITIALIZER_CONSTANT, 1.5f, 0.0f, 0xfedcba9876543210ULL},
     0x123456789abcdefULL,
     1023,
     {0x3fc00000, 0x3fc00000, 0x3fc00000, 0x3fc00000, 0x3fc00000, 0x3fc00000}},
};

static void test_golden_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof golden / sizeof golden[0]; i++) {
        float value[6];
        embd__initializer_row(&golden[i].init, golden[i].key, golden[i].slot, value, 6);
        for (int c = 0; c < 6; c++)
            if (embd__f32_bits(value[c]) != golden[i].bits[c])
                fail_msg("golden value %zu column %d is %a, bits 0x%08x", i, c, (double)value[c],
                         embd__f32_bits(value[c]));
    }
}

static void test_uniform(void **state)
{
    (void)state;
    assert_float_equal(embd__initializer_uniform(0, -0.05f, 0.05f), -0.05f, 0);
    for (uint64_t i = 0; i <= UINT32_MAX; i += 99991) {
        float x = embd__initializer_uniform((uint32_t)i, -0.05f, 0.05f);
        assert_true(x >= -0.05f && x < 0.05f);
    }
    assert_true(embd__initializer_uniform(UINT32_MAX, -0.05f, 0.05f) < 0.05f);
    assert_float_equal(embd__initializer_uniform(UINT32_MAX, 3.0f, 3.0f), 3.0f, 0);
    assert_float_equal(embd__initializer_slot_bound(4), 0.5f, 0);
    assert_float_equal(embd__initializer_slot_bound(1), 1.0f, 0);
}

/* The quantile is the inverse of the distribution, which libm has as erfc. */
static void test_quantile(void **state)
{
    (void)state;
    for (double x = -6.2; x < 4.0; x += 0.01) {
        double p = 0.5 * erfc(-x / sqrt(2.0));
        assert_true(fabs(embd__initializer_quantile(p) - x) < 1e-10);
    }
    assert_true(embd__initializer_normal(0, 0, 1) < -6.2f &&
                embd__initializer_normal(0, 0, 1) > -6.5f);
    assert_true(embd__initializer_normal(UINT32_MAX, 0, 1) == -embd__initializer_normal(0, 0, 1));
    for (double x = 1e-300; x < 1e300; x *= 7.3)
        assert_true(fabs(embd__initializer_log(x) - log(x)) <= 4e-16 * fabs(log(x)) + 4e-16);
}

static void test_power(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < 5000; n += 7)
        assert_true(fabs(optimizer_power(0.999, n) / pow(0.999, (double)n) - 1) < 1e-12);
    assert_true(optimizer_power(0.9, UINT64_MAX) == 0.0);
    embd_schema s;
    embd_schema_init(&s);
    embd_optimizer_init(&s.optimizer, EMBD_OPTIMIZER_ADAM, 0.5f);
    s.optimizer.beta1 = 0.5f, s.optimizer.beta2 = 0.75f;
    assert_float_equal(optimizer_begin(&s, 0.0f, 1).alpha, 0.5f * 0.5f / 0.5f,
                       0); /* sqrt(1/4) / (1/2) */
}

/* Every half, and floats around every half and halfway between, by the naive rounding of the model.
 */
static void test_rounding(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        float f = embd__f32_from_f16((uint16_t)h), b = embd__f32_from_bf16((uint16_t)h);
        if (isfinite(f)) {
            assert_int_equal(embd__f16_from_f32(f), h);
            uint32_t next =
                embd__f32_bits(embd__f32_from_f16((uint16_t)((h & 0x7fff) == 0x7bff ? h : h + 1)));
            uint32_t middle = embd__f32_bits(f) + (next - embd__f32_bits(f)) / 2;
            for (uint32_t at = middle - 1; at != middle + 2; at++) {
                float x = embd__f32_from_bits(at), to = embd__f32_from_f16(embd__f16_from_f32(x));
                assert_int_equal(embd__f32_bits(to),
                                 embd__f32_bits(model_round(x, EMBD_DTYPE_F16)));
            }
        }
        if (isfinite(b)) {
            assert_int_equal(embd__bf16_from_f32(b), h);
            for (uint32_t at = embd__f32_bits(b) + 0x7fff; at != embd__f32_bits(b) + 0x8002; at++) {
                float x = embd__f32_from_bits(at), to = embd__f32_from_bf16(embd__bf16_from_f32(x));
                assert_int_equal(embd__f32_bits(to),
                                 embd__f32_bits(model_round(x, EMBD_DTYPE_BF16)));
            }
        }
    }
    assert_int_equal(embd__f16_from_f32(65519.0f), 0x7bff);
    assert_int_equal(embd__f16_from_f32(65520.0f), 0x7c00);
    assert_int_equal(embd__f16_from_f32(-INFINITY), 0xfc00);
    assert_true(isnan(embd__f32_from_f16(embd__f16_from_f32(NAN))));
    assert_true(isnan(embd__f32_from_bf16(embd__bf16_from_f32(embd__f32_from_bits(0x7f800001)))));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox),  cmocka_unit_test(test_golden_values),
        cmocka_unit_test(test_uniform), cmocka_unit_test(test_quantile),
        cmocka_unit_test(test_power),   cmocka_unit_test(test_rounding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
