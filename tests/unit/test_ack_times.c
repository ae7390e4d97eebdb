/* Ages of records: what a follower is told of how long ago a record was acknowledged. */
#include "tests/unit/cmocka_all.h"
#include "server/service/ack_times.h"

#include "proto/follow.h"

#define SECOND_NS UINT64_C(1000000000)

static void test_an_age_is_at_least_the_time_since_the_acknowledgement(void **state)
{
    (void)state;
    enum { EACH = 3, TURNS = 200000 }; /* 100 s of turns of 0.5 ms */
    struct ack_times *times = ack_times_new(7);
    uint64_t begin_ns = 5 * SECOND_NS, turn_ns = 500000;
    assert_non_null(times);
    for (uint64_t turn = 0; turn < TURNS; turn++)
        ack_times_note(times, 7 + (turn + 1) * EACH, begin_ns + turn * turn_ns);
    uint64_t now_ns = begin_ns + TURNS * turn_ns;
    for (uint64_t turn = 0; turn < TURNS; turn += turn < TURNS - 3000 ? 97 : 1) {
        uint64_t age_us = (now_ns - begin_ns - turn * turn_ns) / 1000;
        uint64_t off_us = age_us < 900000 ? 1001 : 100501;
        for (uint64_t i = 0; i < EACH; i++) {
            uint64_t told_us = ack_times_age_us(times, 7 + turn * EACH + i, now_ns);
            assert_true(told_us >= age_us || told_us == FOLLOW_AGE_MOST_US);
            assert_true(told_us <= age_us + off_us);
        }
    }
    ack_times_free(times);
}

static void test_what_is_not_known_is_as_old_as_can_be(void **state)
{
    (void)state;
    struct ack_times *times = ack_times_new(10);
    assert_non_null(times);
    assert_int_equal(ack_times_age_us(times, 10, SECOND_NS), FOLLOW_AGE_MOST_US);
    ack_times_note(times, 10, SECOND_NS); /* nothing is new */
    ack_times_note(times, 12, 2 * SECOND_NS);
    assert_int_equal(ack_times_age_us(times, 9, 2 * SECOND_NS), FOLLOW_AGE_MOST_US);
    assert_int_equal(ack_times_age_us(times, 10, 2 * SECOND_NS), 1);
    assert_int_equal(ack_times_age_us(times, 11, 3 * SECOND_NS), 1000001);
    assert_int_equal(ack_times_age_us(times, 11, 200 * SECOND_NS), FOLLOW_AGE_MOST_US);
    ack_times_note(times, 4, 201 * SECOND_NS); /* another journal */
    ack_times_note(times, 5, 202 * SECOND_NS);
    assert_int_equal(ack_times_age_us(times, 3, 202 * SECOND_NS), FOLLOW_AGE_MOST_US);
    assert_int_equal(ack_times_age_us(times, 4, 203 * SECOND_NS), 1000001);
    ack_times_free(times);
}

/* Nobody asked for a while: what came then is as old as what came first. */
static void test_a_record_without_a_note_has_the_age_of_an_earlier_one(void **state)
{
    (void)state;
    struct ack_times *times = ack_times_new(0);
    assert_non_null(times);
    ack_times_note(times, 1, SECOND_NS);
    ack_times_note(times, 2, SECOND_NS + 999999); /* within a millisecond */
    ack_times_note(times, 3, SECOND_NS + 1000000);
    uint64_t now_ns = SECOND_NS + 5000000;
    assert_int_equal(ack_times_age_us(times, 0, now_ns), 5001);
    assert_int_equal(ack_times_age_us(times, 1, now_ns), 5001);
    assert_int_equal(ack_times_age_us(times, 2, now_ns), 4001);
    ack_times_free(times);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_age_is_at_least_the_time_since_the_acknowledgement),
        cmocka_unit_test(test_what_is_not_known_is_as_old_as_can_be),
        cmocka_unit_test(test_a_record_without_a_note_has_the_age_of_an_earlier_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
