/* bench.c - what embd-bench's figures rest on: its quantiles, its Zipf law, its peer's table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/bench/cpu.h"
#include "client/bench/histogram.h"
#include "client/bench/workload.h"
#include "tests/bench/suite/peer_table.h"

#define KEYS 1000u
#define DIM  5u

static void quantiles_are_within_a_bucket(void **state)
{
    (void)state;
    struct histogram *h = calloc(1, sizeof *h);
    assert_true(isnan(histogram_quantile(h, 0.5)));
    for (uint64_t v = 1; v <= 100000; v++)
        histogram_add(h, v);
    const double shares[] = {0.0001, 0.5, 0.99, 0.999, 1};
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        double exact = shares[i] * 100000, got = histogram_quantile(h, shares[i]);
        assert_true(fabs(got - exact) <= 0.016 * exact);
    }
    histogram_add(h, UINT64_MAX);
    assert_true(histogram_quantile(h, 1) > 1.8e19);
    free(h);
}

static void keys_of_different_ranks_differ(void **state)
{
    (void)state;
    uint64_t low_bits = 0;
    for (uint64_t rank = 1; rank < KEYS; rank++) {
        assert_int_not_equal(workload_key(rank), workload_key(rank - 1));
        low_bits |= UINT64_C(1) << (workload_key(rank) % 64);
    }
    assert_int_equal(low_bits, UINT64_MAX);
}

/* How often the keys of ranks 0, 9 and 99 were drawn, in shares of all. */
static void count_popular(const struct workload *w, double shares[3])
{
    const uint64_t ranks[] = {0, 9, 99};
    uint64_t n = (uint64_t)WORKLOAD_BATCHES * w->spec.batch;
    for (int i = 0; i < 3; i++) {
        uint64_t found = 0;
        for (uint64_t k = 0; k < n; k++)
            found += w->keys[k] == workload_key(ranks[i]);
        shares[i] = (double)found / (double)n;
    }
}

static void check_zipf(double exponent)
{
    struct workload w;
    struct workload_spec spec = {
        .table_keys = KEYS, .dim = 1, .batch = 65536, .keys_per_row = 1, .zipf = exponent};
    double shares[3], all = 0;
    for (uint32_t rank = 1; rank <= KEYS; rank++)
        all += pow(rank, -exponent);
    assert_int_equal(workload_init(&w, &spec), 0);
    count_popular(&w, shares);
    const double ranks[] = {1, 10, 100};
    for (int i = 0; i < 3; i++) {
        double expected = pow(ranks[i], -exponent) / all;
        double sigma = sqrt(expected / (16 * 65536.0));
        assert_true(fabs(shares[i] - expected) < 5 * sigma);
    }
    workload_fini(&w);
}

static void zipf_ranks_follow_the_law(void **state)
{
    (void)state;
    check_zipf(0.6);
    check_zipf(1);
    check_zipf(1.05);
    check_zipf(2);
}

static void uniform_keys_are_all_of_the_table(void **state)
{
    (void)state;
    struct workload w;
    struct workload_spec spec = {.table_keys = 3, .dim = 1, .batch = 300, .keys_per_row = 3};
    assert_int_equal(workload_init(&w, &spec), 0);
    assert_int_equal(w.offsets[100], 300);
    for (uint32_t i = 0; i < WORKLOAD_BATCHES * 300; i++)
        assert_true(w.keys[i] == workload_key(0) || w.keys[i] == workload_key(1) ||
                    w.keys[i] == workload_key(2));
    assert_ptr_equal(workload_batch(&w, 17), w.keys + 300);
    workload_fini(&w);
}

/* A table whose row of rank r is r in every column, and keys of some ranks. */
static void open_table(struct peer_table *t, uint64_t keys[KEYS], uint64_t ranks[KEYS])
{
    assert_int_equal(peer_table_open(t, KEYS, DIM), 0);
    for (uint32_t i = 0; i < KEYS; i++) {
        ranks[i] = i * 7919u % KEYS;
        keys[i] = workload_key(ranks[i]);
        for (uint32_t c = 0; c < DIM; c++)
            t->rows[i * DIM + c] = (float)i;
    }
}

static void the_peer_copies_the_rows_of_its_keys(void **state)
{
    (void)state;
    struct peer_table t;
    static uint64_t keys[KEYS], ranks[KEYS];
    static uint32_t rows[KEYS];
    static float copied[KEYS * DIM], gathered[KEYS * DIM];
    open_table(&t, keys, ranks);
    peer_table_copy(&t, keys, KEYS, copied);
    peer_table_find(&t, keys, KEYS, rows);
    peer_table_gather(&t, rows, KEYS, gathered);
    for (uint32_t i = 0; i < KEYS * DIM; i++)
        assert_true(copied[i] == (float)ranks[i / DIM]);
    assert_memory_equal(copied, gathered, sizeof copied);
    peer_table_close(&t);
}

static void the_peer_sums_and_adds_rows(void **state)
{
    (void)state;
    struct peer_table t;
    static uint64_t keys[KEYS], ranks[KEYS];
    static float sums[KEYS / 10 * DIM], ones[KEYS * DIM];
    open_table(&t, keys, ranks);
    for (uint32_t i = 0; i < KEYS * DIM; i++)
        ones[i] = 1;
    peer_table_add(&t, keys, KEYS, ones);
    peer_table_sum(&t, keys, KEYS / 10, 10, sums);
    for (uint32_t r = 0; r < KEYS / 10; r++) {
        float expected = 10;
        for (uint32_t k = 0; k < 10; k++)
            expected += (float)ranks[r * 10 + k];
        for (uint32_t c = 0; c < DIM; c++)
            assert_true(sums[r * DIM + c] == expected);
    }
    peer_table_close(&t);
}

static void processor_lists_are_checked(void **state)
{
    (void)state;
    const struct cpu_list allowed = {.n = 4, .ids = {0, 1, 2, 5}};
    const char *const refused[] = {"", "3", "0,", "2-1", "-1", "0-5", "1x", "99999999999"};
    struct cpu_list list;
    assert_int_equal(cpu_list_parse("5,0-2", &allowed, &list), 0);
    assert_int_equal(list.n, 4);
    assert_int_equal(list.ids[0], 5);
    assert_int_equal(list.ids[3], 2);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        assert_int_equal(cpu_list_parse(refused[i], &allowed, &list), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantiles_are_within_a_bucket),
        cmocka_unit_test(keys_of_different_ranks_differ),
        cmocka_unit_test(zipf_ranks_follow_the_law),
        cmocka_unit_test(uniform_keys_are_all_of_the_table),
        cmocka_unit_test(the_peer_copies_the_rows_of_its_keys),
        cmocka_unit_test(the_peer_sums_and_adds_rows),
        cmocka_unit_test(processor_lists_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
