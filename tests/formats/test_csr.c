/* test_csr.c - the CSR builder: rows S3.7, S3.8 and S3.9 of the reference. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "embd/embd.h"
#include "embd/data.h"

static embd_csr *make(uint64_t max_rows, uint64_t max_keys)
{
    embd_csr *csr;
    assert_int_equal(embd_csr_new(max_rows, max_keys, &csr), EMBD_OK);
    return csr;
}

static void add_row(embd_csr *csr, const uint64_t *keys, size_t n)
{
    assert_int_equal(embd_csr_row(csr), EMBD_OK);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(embd_csr_push(csr, keys[i]), EMBD_OK);
}

static embd_part part_of(const embd_csr *csr)
{
    embd_part part = EMBD_PART();
    embd_csr_part(csr, &part);
    return part;
}

static void example_rows(void **state)
{
    (void)state;
    const uint64_t keys[] = {4, 5, 1, 2, 3, 5, 1, 3, 2}, offsets[] = {0, 4, 7, 9};
    embd_csr *csr = make(3, 9);
    add_row(csr, keys, 4);
    add_row(csr, keys + 4, 3);
    add_row(csr, keys + 7, 2);
    embd_part part = part_of(csr);
    assert_int_equal(part.n_rows, 3);
    assert_int_equal(part.n_keys, 9);
    assert_memory_equal(part.offsets, offsets, sizeof offsets);
    assert_memory_equal(part.keys, keys, sizeof keys);
    assert_null(part.weights);
    embd_csr_free(csr);
}

/* It is a batch after every call, and the arrays are handed over without a copy. */
static void whole_after_every_call(void **state)
{
    (void)state;
    embd_csr *csr = make(4, 4);
    embd_part part = part_of(csr);
    const uint64_t *offsets = part.offsets, *keys = part.keys;
    for (uint64_t n = 1; n <= 4; n++) {
        assert_int_equal(offsets[part.n_rows], part.n_keys);
        add_row(csr, &n, n % 2);
        part = part_of(csr);
        assert_ptr_equal(part.offsets, offsets);
        assert_ptr_equal(part.keys, keys);
        assert_int_equal(part.n_rows, n);
        assert_int_equal(part.n_keys, (n + 1) / 2);
    }
    assert_int_equal(offsets[4], part.n_keys);
    embd_csr_free(csr);
}

static void offsets_of_a_batch(void **state)
{
    (void)state;
    const uint64_t slots = 3, samples = 5, key = 7;
    embd_csr *csr = make(slots * samples, slots * samples);
    for (uint64_t r = 0; r < slots * samples; r++)
        add_row(csr, &key, 1);
    embd_part part = part_of(csr);
    assert_int_equal(part.n_rows, slots * samples);
    for (uint64_t r = 0; r <= slots * samples; r++)
        assert_int_equal(part.offsets[r], r);
    embd_csr_free(csr);
}

static void bounds_are_named(void **state)
{
    (void)state;
    embd_csr *csr = make(2, 3);
    assert_string_equal(embd_error_text(), "");
    assert_int_equal(embd_csr_push(csr, 1), EMBD_INVALID);
    assert_non_null(strstr(embd_error_text(), "no row"));
    add_row(csr, (const uint64_t[]){1, 2, 3}, 3);
    assert_int_equal(embd_csr_push(csr, 4), EMBD_TOO_LARGE);
    assert_non_null(strstr(embd_error_text(), "max_keys = 3"));
    assert_int_equal(embd_csr_row(csr), EMBD_OK);
    assert_int_equal(embd_csr_row(csr), EMBD_TOO_LARGE);
    assert_non_null(strstr(embd_error_text(), "max_rows = 2"));
    embd_part part = part_of(csr);
    assert_int_equal(part.n_rows, 2);
    assert_int_equal(part.n_keys, 3);
    embd_csr_free(csr);
    assert_int_equal(embd_csr_new((uint64_t)INT32_MAX + 1, 1, &csr), EMBD_TOO_LARGE);
    assert_null(csr);
    embd_csr_free(NULL);
}

static void a_bad_sample_is_rolled_back(void **state)
{
    (void)state;
    embd_csr *csr = make(6, 9);
    add_row(csr, (const uint64_t[]){1, 2}, 2);
    add_row(csr, (const uint64_t[]){3}, 1);
    embd_csr_check_point(csr);
    for (int again = 0; again < 3; again++) {
        assert_int_equal(embd_csr_push(csr, 99), EMBD_OK); /* into a row of the check point */
        add_row(csr, (const uint64_t[]){4, 5, 6}, 3);
        add_row(csr, NULL, 0);
        embd_csr_roll_back(csr);
        embd_part part = part_of(csr);
        assert_int_equal(part.n_rows, 2);
        assert_int_equal(part.n_keys, 3);
        assert_int_equal(part.offsets[2], 3);
    }
    add_row(csr, (const uint64_t[]){7}, 1);
    embd_part part = part_of(csr);
    assert_memory_equal(part.keys, ((const uint64_t[]){1, 2, 3, 7}), 4 * sizeof *part.keys);
    embd_csr_reset(csr);
    embd_csr_roll_back(csr);
    part = part_of(csr);
    assert_int_equal(part.n_rows, 0);
    assert_int_equal(part.n_keys, 0);
    assert_int_equal(part.offsets[0], 0);
    embd_csr_free(csr);
}

static void weights_begin_with_the_first(void **state)
{
    (void)state;
    embd_csr *csr = make(2, 4);
    add_row(csr, (const uint64_t[]){1, 2}, 2);
    embd_csr_check_point(csr);
    assert_int_equal(embd_csr_push_weighted(csr, 3, NAN), EMBD_INVALID);
    assert_null(part_of(csr).weights);
    assert_int_equal(embd_csr_push_weighted(csr, 3, 0.5f), EMBD_OK);
    assert_int_equal(embd_csr_push(csr, 4), EMBD_OK);
    assert_memory_equal(part_of(csr).weights, ((const float[]){1, 1, 0.5f, 1}), 4 * sizeof(float));
    assert_int_equal(embd_csr_push_weighted(csr, 5, 2), EMBD_TOO_LARGE);
    embd_csr_roll_back(csr);
    assert_null(part_of(csr).weights);
    embd_csr_free(csr);
}

/* What a part has is the builder's, not a copy; and an empty one has no rows, no keys. */
static void a_part_is_lent(void **state)
{
    embd_csr *csr;
    embd_part first = EMBD_PART(.n_rows = 7), second = {.n_rows = 7};
    (void)state;
    assert_int_equal(embd_csr_new(3, 4, &csr), EMBD_OK);
    embd_csr_part(csr, &first);
    assert_true(first.n_rows == 0 && first.n_keys == 0);
    assert_int_equal(embd_csr_row(csr), EMBD_OK);
    assert_int_equal(embd_csr_push(csr, 42), EMBD_OK);
    embd_csr_part(csr, &first);
    embd_csr_part(csr, &second);
    assert_ptr_equal(first.keys, second.keys);
    assert_ptr_equal(first.offsets, second.offsets);
    assert_true(first.n_rows == 1 && first.n_keys == 1 && first.offsets[1] == 1);
    embd_csr_reset(csr);
    assert_int_equal(embd_csr_row(csr), EMBD_OK);
    assert_int_equal(embd_csr_push(csr, 43), EMBD_OK);
    embd_csr_part(csr, &second);
    assert_ptr_equal(first.keys, second.keys); /* the memory stayed */
    assert_true(first.keys[0] == 43);
    embd_csr_free(csr);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"S3.7 rows 4,5,1,2 / 3,5,1 / 3,2 have offsets 0,4,7,9", example_rows, NULL, NULL, NULL},
        {"S3.7 a builder is a whole batch after every call", whole_after_every_call, NULL, NULL,
         NULL},
        {"S2.1 S3.10 a batch is counts and arrays, lent and not copied; its memory stays",
         a_part_is_lent, NULL, NULL, NULL},
        {"S3.8 a bound that is met is named", bounds_are_named, NULL, NULL, NULL},
        {"S3.8 a bad sample is rolled back", a_bad_sample_is_rolled_back, NULL, NULL, NULL},
        {"S3.8 weights begin with the first", weights_begin_with_the_first, NULL, NULL, NULL},
        {"S3.9 offsets of a batch are slots * samples + 1", offsets_of_a_batch, NULL, NULL, NULL},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
