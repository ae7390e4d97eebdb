/* test_syncs.c - what is told of a journal's syncs: all of them counted, and the longest of the
 * last minute or two. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "server/journal/syncs.h"

#define MS     UINT64_C(1000000)
#define WINDOW SYNCS_WINDOW_NS
#define BEGIN  (1000 * WINDOW) /* a machine that has been up for a while */

static void note(struct syncs *syncs, uint64_t at_ns, uint64_t took_ms)
{
    syncs_note(syncs, at_ns - took_ms * MS, at_ns);
}

static void all_are_counted_and_added_up(void **state)
{
    (void)state;
    struct syncs syncs = {0};
    assert_int_equal(syncs_longest_ns(&syncs, BEGIN), 0);
    for (uint32_t i = 1; i <= 100; i++)
        note(&syncs, BEGIN + i * MS, i);
    assert_int_equal(syncs.n, 100);
    assert_int_equal(syncs.total_ns, 5050 * MS);
    assert_int_equal(syncs_longest_ns(&syncs, BEGIN + 101 * MS), 100 * MS);
}

static void the_longest_is_told_for_a_window_at_least_and_two_at_most(void **state)
{
    (void)state;
    struct syncs syncs = {0};
    note(&syncs, BEGIN, 1);
    note(&syncs, BEGIN + WINDOW - MS, 500);
    for (uint64_t at = BEGIN + WINDOW; at < BEGIN + 2 * WINDOW; at += WINDOW / 10) {
        note(&syncs, at, 2);
        assert_int_equal(syncs_longest_ns(&syncs, at), 500 * MS);
    }
    note(&syncs, BEGIN + 2 * WINDOW, 3);
    assert_int_equal(syncs_longest_ns(&syncs, BEGIN + 2 * WINDOW), 3 * MS);
}

static void at_rest_it_is_forgotten(void **state)
{
    (void)state;
    struct syncs syncs = {0};
    note(&syncs, BEGIN, 500);
    assert_int_equal(syncs_longest_ns(&syncs, BEGIN + WINDOW), 500 * MS);
    assert_int_equal(syncs_longest_ns(&syncs, BEGIN + 2 * WINDOW), 0);
    note(&syncs, BEGIN + 3 * WINDOW, 4);
    assert_int_equal(syncs_longest_ns(&syncs, BEGIN + 3 * WINDOW), 4 * MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_are_counted_and_added_up),
        cmocka_unit_test(the_longest_is_told_for_a_window_at_least_and_two_at_most),
        cmocka_unit_test(at_rest_it_is_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
