/* test_turn.c - what a connection has had of the shard's thread it pays by turns that pass. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "server/net/turn.h"

static uint64_t now_ns = 1000;

uint64_t __wrap_uv_hrtime(void);

uint64_t __wrap_uv_hrtime(void)
{
    return now_ns;
}

/* A request that takes so long. */
static void handle(struct turn *turn, uint64_t ns)
{
    turn_work(turn, now_ns);
    now_ns += ns;
}

static void quick_requests_share_a_turn(void **state)
{
    (void)state;
    struct turn turn = {0};
    for (uint64_t number = 1; number < 4; number++) {
        for (uint32_t i = 0; i < TURN_REQUESTS; i++) {
            assert_true(turn_may_begin(&turn, number));
            handle(&turn, TURN_NS / TURN_REQUESTS - 1);
        }
        assert_false(turn_may_begin(&turn, number));
        turn_rest(&turn);
    }
}

static void a_debt_is_paid_by_as_many_turns_as_it_has(void **state)
{
    (void)state;
    struct turn turn = {0};
    assert_true(turn_may_begin(&turn, 1));
    handle(&turn, 20 * TURN_NS);
    for (uint64_t number = 1; number < 21; number++) {
        assert_false(turn_may_begin(&turn, number));
        turn_rest(&turn);
    }
    assert_true(turn_may_begin(&turn, 21));
    handle(&turn, TURN_NS / 2);
    assert_true(turn_may_begin(&turn, 21));
    handle(&turn, TURN_NS / 2);
    assert_false(turn_may_begin(&turn, 21));
    turn_rest(&turn);
    assert_true(turn_may_begin(&turn, 22));
}

static void a_connection_that_rested_has_no_more_than_a_turn(void **state)
{
    (void)state;
    struct turn turn = {0};
    assert_true(turn_may_begin(&turn, 1));
    handle(&turn, 3 * TURN_NS);
    turn_rest(&turn);
    assert_true(turn_may_begin(&turn, UINT64_MAX));
    handle(&turn, TURN_NS);
    assert_false(turn_may_begin(&turn, UINT64_MAX));
}

static void the_work_of_others_is_not_counted(void **state)
{
    (void)state;
    struct turn turn = {0};
    assert_true(turn_may_begin(&turn, 1));
    handle(&turn, 10);
    turn_rest(&turn);
    now_ns += 100 * TURN_NS;
    turn_work(&turn, now_ns); /* rows of its answer, say */
    now_ns += 5;
    turn_count(&turn, now_ns);
    turn_rest(&turn);
    now_ns += 100 * TURN_NS;
    assert_int_equal(turn.owed_ns, 15);
    assert_true(turn_may_begin(&turn, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quick_requests_share_a_turn),
        cmocka_unit_test(a_debt_is_paid_by_as_many_turns_as_it_has),
        cmocka_unit_test(a_connection_that_rested_has_no_more_than_a_turn),
        cmocka_unit_test(the_work_of_others_is_not_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
