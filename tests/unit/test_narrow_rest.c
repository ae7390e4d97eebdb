/* How long a replica with narrow rows rests between two sweeps. */
#include "tests/unit/cmocka_all.h"
#include "server/service/narrow_rest.h"

static void test_few_rows_are_asked_for_again_after_50_ms(void **state)
{
    (void)state;
    assert_int_equal(narrow_rest_ms(0, 0, 0), 50);
    assert_int_equal(narrow_rest_ms(3, 1000, 64000), 50);
}

/* 300,000 rows of 64 bytes take 18 ms, and their bytes 3.75 ms: a twentieth is 435 ms. */
static void test_a_sweep_takes_a_twentieth_of_the_shard(void **state)
{
    (void)state;
    assert_int_equal(narrow_rest_ms(20, 300000, 300000 * 64), 435);
    assert_int_equal(narrow_rest_ms(20, 0, UINT64_C(100) << 20),
                     409); /* large rows by their bytes */
}

static void test_rows_get_no_older_by_that_than_the_age(void **state)
{
    (void)state;
    for (uint64_t took = 0; took <= 266; took++)
        assert_int_equal(2 * took + narrow_rest_ms(took, 100000000, 0), 800);
}

static void test_a_long_sweep_is_followed_by_a_rest_as_long_up_to_2_s(void **state)
{
    (void)state;
    assert_int_equal(narrow_rest_ms(300, 100000000, 0), 300);
    assert_int_equal(narrow_rest_ms(1500, 0, 0), 1500);
    assert_int_equal(narrow_rest_ms(60000, UINT64_MAX / 1000, 0), 2000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_few_rows_are_asked_for_again_after_50_ms),
        cmocka_unit_test(test_a_sweep_takes_a_twentieth_of_the_shard),
        cmocka_unit_test(test_rows_get_no_older_by_that_than_the_age),
        cmocka_unit_test(test_a_long_sweep_is_followed_by_a_rest_as_long_up_to_2_s),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
