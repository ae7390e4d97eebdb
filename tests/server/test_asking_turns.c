/* test_asking_turns.c - who has its turn next among those that ask for snapshots, by the clock of
 * the test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "server/coordinator/turns.h"

#define MS UINT64_C(1000000)

static void who_was_refused_first_comes_first(void **state)
{
    struct turns turns = {.n = 0};
    (void)state;
    assert_true(turns_is_next(&turns, 1, 0));
    for (uint64_t asker = 2; asker <= 4; asker++)
        turns_wait(&turns, asker, 10 * MS);
    for (uint64_t asker = 2; asker <= 4; asker++) {
        for (uint64_t other = 1; other <= 6; other++)
            assert_int_equal(turns_is_next(&turns, other, 20 * MS), other == asker);
        turns_take(&turns, asker);
    }
    assert_true(turns_is_next(&turns, 1, 20 * MS));
}

/* One asks all the time, one every 50 ms: each has every second turn. */
static void asking_more_often_gives_no_more_turns(void **state)
{
    struct turns turns = {.n = 0};
    uint32_t n_taken[2] = {0, 0};
    (void)state;
    for (uint64_t ms = 0; ms < 10000; ms++) {
        bool runs = ms % 100 != 0; /* a job takes 100 ms */
        for (uint64_t asker = 0; asker < 2; asker++) {
            if (asker == 1 && ms % 50 != 0)
                continue;
            if (runs || !turns_is_next(&turns, 7 + asker, ms * MS)) {
                turns_wait(&turns, 7 + asker, ms * MS);
                continue;
            }
            turns_take(&turns, 7 + asker);
            n_taken[asker]++;
            runs = true;
        }
    }
    assert_int_equal(n_taken[0] + n_taken[1], 100);
    assert_int_equal(n_taken[1], 50);
}

static void who_does_not_ask_again_loses_its_place(void **state)
{
    struct turns turns = {.n = 0};
    (void)state;
    turns_wait(&turns, 1, 0);
    turns_wait(&turns, 2, 0);
    turns_wait(&turns, 2, 400 * MS);
    assert_false(turns_is_next(&turns, 2, 499 * MS));
    assert_true(turns_is_next(&turns, 2, 500 * MS));
    assert_false(turns_is_next(&turns, 1, 500 * MS));
    turns_wait(&turns, 0, 500 * MS); /* an admin, at a terminal */
    assert_true(turns_is_next(&turns, 0, 5400 * MS));
    assert_false(turns_is_next(&turns, 1, 5400 * MS));
    assert_true(turns_is_next(&turns, 1, 5500 * MS));
}

static void there_are_no_more_places_than_places(void **state)
{
    struct turns turns = {.n = 0};
    (void)state;
    for (uint64_t asker = 1; asker <= 2 * TURNS_MAX; asker++)
        turns_wait(&turns, asker, 0);
    assert_int_equal(turns.n, TURNS_MAX);
    turns_take(&turns, 2 * TURNS_MAX);
    assert_int_equal(turns.n, TURNS_MAX);
    assert_true(turns_is_next(&turns, 2 * TURNS_MAX, TURN_TRAINER_NS));
}

/* It asks all the time, and its jobs do nothing but hold: 7 ms each. */
static void a_trainers_holds_take_half_of_the_time_at_most(void **state)
{
    struct turns turns = {.n = 0};
    uint64_t held_ns = 0, end_ns = 0;
    bool runs = false;
    (void)state;
    for (uint64_t at = 0; at < 1000 * MS; at += MS) {
        if (runs && at >= end_ns) {
            turns_rest(&turns, 9, 7 * MS, at);
            runs = false;
        }
        held_ns += runs ? MS : 0;
        assert_true(turns_is_next(&turns, 8, at)); /* who rests is in nobody's way */
        if (runs || turns_left_ns(&turns, 9, at) > 0)
            continue;
        turns_take(&turns, 9);
        runs = true;
        end_ns = at + 7 * MS;
        held_ns += MS;
    }
    assert_in_range(held_ns, 450 * MS, 510 * MS);
}

static void who_rests_has_no_place_and_admins_do_not_rest(void **state)
{
    struct turns turns = {.n = 0};
    (void)state;
    turns_wait(&turns, 1, 0); /* beside its own job */
    turns_rest(&turns, 1, 100 * MS, 10 * MS);
    assert_true(turns_is_next(&turns, 2, 20 * MS));
    assert_int_equal(turns_left_ns(&turns, 1, 20 * MS), 90 * MS);
    assert_int_equal(turns_left_ns(&turns, 1, 110 * MS), 0);
    assert_int_equal(turns_left_ns(&turns, 2, 20 * MS), 0);
    turns_rest(&turns, 0, 100 * MS, 20 * MS);
    assert_int_equal(turns_left_ns(&turns, 0, 20 * MS), 0);
    for (uint64_t asker = 2; asker <= 2 * TURNS_MAX; asker++)
        turns_rest(&turns, asker, asker * MS, 200 * MS);
    assert_int_equal(turns.n_rests, TURNS_MAX);
    assert_int_equal(turns_left_ns(&turns, 2 * TURNS_MAX, 200 * MS), 2 * TURNS_MAX * MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_was_refused_first_comes_first),
        cmocka_unit_test(asking_more_often_gives_no_more_turns),
        cmocka_unit_test(who_does_not_ask_again_loses_its_place),
        cmocka_unit_test(a_trainers_holds_take_half_of_the_time_at_most),
        cmocka_unit_test(who_rests_has_no_place_and_admins_do_not_rest),
        cmocka_unit_test(there_are_no_more_places_than_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
