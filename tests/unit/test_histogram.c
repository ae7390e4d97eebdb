/* Buckets hold what they say, and quantiles are within a bucket of the truth. */
#include "tests/unit/cmocka_all.h"
#include "server/service/metrics/histogram.h"

#include <stdlib.h>

static void test_buckets_meet_and_cover_every_duration(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < HISTOGRAM_BUCKETS - 1; i++) {
        uint64_t bound = histogram_bound(i);
        assert_int_equal(histogram_bucket(bound), i);
        assert_int_equal(histogram_bucket(bound + 1), i + 1);
    }
    assert_int_equal(histogram_bucket(0), 0);
    assert_int_equal(histogram_bucket(UINT64_MAX), HISTOGRAM_BUCKETS - 1);
    assert_true(histogram_bound(HISTOGRAM_BUCKETS - 1) == UINT64_MAX);
}

static void test_counts_up_to_powers_of_two_are_exact(void **state)
{
    (void)state;
    struct histogram h = {0};
    for (uint32_t power = HISTOGRAM_LOW; power <= HISTOGRAM_HIGH; power++) {
        histogram_add(&h, UINT64_C(1) << power, 1);
        histogram_add(&h, (UINT64_C(1) << power) + 1, 1);
    }
    for (uint32_t power = HISTOGRAM_LOW; power <= HISTOGRAM_HIGH; power++)
        assert_int_equal(histogram_up_to(&h, power), 2 * (power - HISTOGRAM_LOW) + 1);
    assert_int_equal(histogram_count(&h), 2 * (HISTOGRAM_HIGH - HISTOGRAM_LOW + 1));
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void test_quantiles_are_within_an_eighth_of_the_truth(void **state)
{
    (void)state;
    enum { N = 20000 };
    static uint64_t values[N];
    struct histogram h = {0};
    uint64_t random = 1;
    for (int i = 0; i < N; i++) {
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
        values[i] = 300 + (random >> 40) * (random >> 56);
        histogram_add(&h, values[i], 1);
    }
    qsort(values, N, sizeof *values, compare);
    static const double quantiles[] = {0.01, 0.25, 0.5, 0.9, 0.99, 1.0};
    for (size_t i = 0; i < sizeof quantiles / sizeof *quantiles; i++) {
        double truth = (double)values[(int)(quantiles[i] * (N - 1))];
        double told = (double)histogram_quantile(&h, NULL, quantiles[i]);
        assert_true(told > truth * 0.8 && told < truth * 1.25);
    }
}

static void test_a_quantile_since_a_moment_forgets_what_was_before(void **state)
{
    (void)state;
    struct histogram h = {0};
    for (int i = 0; i < 1000; i++)
        histogram_add(&h, 1000000, 1);
    struct histogram since = h;
    assert_int_equal(histogram_quantile(&h, &since, 0.5), 0);
    histogram_add(&h, 2000, 1);
    uint64_t median = histogram_quantile(&h, &since, 0.5);
    assert_true(median > 1500 && median < 2100);
    assert_true(histogram_quantile(&h, NULL, 0.5) > 900000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buckets_meet_and_cover_every_duration),
        cmocka_unit_test(test_counts_up_to_powers_of_two_are_exact),
        cmocka_unit_test(test_quantiles_are_within_an_eighth_of_the_truth),
        cmocka_unit_test(test_a_quantile_since_a_moment_forgets_what_was_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
