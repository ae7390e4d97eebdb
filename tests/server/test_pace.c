/* test_pace.c - how fast bytes may be copied, by the clock of the test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "server/coordinator/pace.h"

#define S   UINT64_C(1000000000)
#define MIB (UINT64_C(1) << 20)

/* Waits as it is told, and counts what was copied: never above the rate. */
static void pieces_of_any_size_are_no_faster_than_the_rate(void **state)
{
    const uint64_t pieces[] = {4 * MIB, 1, 64 * MIB, 0, 300000};
    (void)state;
    for (uint64_t rate = MIB; rate < MIB << 40; rate *= 7) {
        struct pace pace = {.rate = rate};
        uint64_t now_ns = 5 * S, bytes = 0;
        for (int i = 0; i < 100; i++) {
            bytes += pieces[i % 5];
            pace_owe(&pace, pieces[i % 5], now_ns);
            now_ns += pace_left_ns(&pace, now_ns);
            assert_int_equal(pace_left_ns(&pace, now_ns), 0);
            double seconds = (double)(now_ns - 5 * S) / 1e9, least = (double)bytes / (double)rate;
            assert_true(seconds >= least * (1 - 1e-9));
            assert_true(seconds <= least + 1e-6);
        }
    }
}

static void time_without_copying_is_not_saved_up(void **state)
{
    struct pace pace = {.rate = MIB};
    (void)state;
    pace_owe(&pace, MIB, 0);
    assert_in_range(pace_left_ns(&pace, 0), S, S + 1);
    pace_owe(&pace, MIB, 100 * S);
    assert_in_range(pace_left_ns(&pace, 100 * S), S, S + 1);
}

static void what_is_owed_is_paid_at_a_later_rate(void **state)
{
    struct pace pace = {.rate = MIB};
    (void)state;
    pace_owe(&pace, 8 * MIB, 0);
    pace_set(&pace, 6 * MIB, 2 * S); /* 6 MiB are left */
    assert_in_range(pace_left_ns(&pace, 2 * S), S, S + 2);
    pace_set(&pace, MIB / 2, 2 * S);
    assert_in_range(pace_left_ns(&pace, 2 * S), 12 * S, 12 * S + 100);
}

static void without_a_rate_nothing_waits(void **state)
{
    struct pace pace = {.rate = 0};
    (void)state;
    pace_owe(&pace, 64 * MIB, 0);
    assert_int_equal(pace_left_ns(&pace, 0), 0);
    pace_set(&pace, MIB, 0);
    assert_int_equal(pace_left_ns(&pace, 0), 0);
    pace_owe(&pace, 64 * MIB, 0);
    pace_set(&pace, 0, S);
    assert_int_equal(pace_left_ns(&pace, S), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_of_any_size_are_no_faster_than_the_rate),
        cmocka_unit_test(time_without_copying_is_not_saved_up),
        cmocka_unit_test(what_is_owed_is_paid_at_a_later_rate),
        cmocka_unit_test(without_a_rate_nothing_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
