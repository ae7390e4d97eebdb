/* test_pace.c - when buffered records are synced: before they are as old as is promised, however
 * long syncs and writes take; and not before they are acknowledged, where there is time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "server/journal/journal.h"
#include "server/journal/pace.h"

#define MS      UINT64_C(1000000)
#define PROMISE (JOURNAL_BUFFERED_MS * MS)

/* A disk of which `n` writes and syncs are known, which took so long. */
static struct pace after(uint32_t n, uint64_t write_ms, uint64_t sync_ms)
{
    struct pace pace;
    pace_init(&pace);
    for (uint32_t i = 0; i < n; i++) {
        pace_wrote(&pace, 0, write_ms * MS);
        pace_synced(&pace, 0, sync_ms * MS);
    }
    return pace;
}

/* A record was written and may be acknowledged at once. Synced as late as may be, with another
 * write before that, it is on disk in time. */
static void check(uint64_t write_ms, uint64_t sync_ms)
{
    struct pace pace = after(100, write_ms, sync_ms);
    uint64_t now = 1000 * MS;
    if (pace_holds(&pace))
        return;
    pace_wrote(&pace, now - write_ms * MS, now);
    uint64_t by = pace_sync_by(&pace);
    assert_in_range(by, now, now + PROMISE);
    assert_in_range(by + (write_ms + sync_ms) * MS, now, now + PROMISE);
}

static void what_is_acknowledged_is_on_disk_in_time(void **state)
{
    (void)state;
    for (uint64_t write_ms = 0; write_ms < 60; write_ms++)
        for (uint64_t sync_ms = 0; sync_ms < 60; sync_ms++)
            check(write_ms, sync_ms);
}

static void a_slow_disk_holds_acknowledgements_back(void **state)
{
    (void)state;
    struct pace unknown = after(0, 0, 0), quick = after(100, 1, 5), slow = after(100, 1, 40),
                slow_writes = after(100, 50, 1);
    assert_true(pace_holds(&unknown));
    assert_false(pace_holds(&quick));
    assert_true(pace_holds(&slow));
    assert_true(pace_holds(&slow_writes));
}

static void one_slow_sync_is_remembered_for_a_while(void **state)
{
    (void)state;
    struct pace pace = after(100, 1, 5);
    pace_wrote(&pace, 0, MS);
    pace_synced(&pace, 0, 200 * MS);
    uint32_t n = 0;
    for (; pace_holds(&pace); n++) {
        pace_wrote(&pace, 0, MS);
        pace_synced(&pace, 0, 5 * MS);
    }
    assert_in_range(n, 10, 60);
}

static void the_oldest_record_says_when(void **state)
{
    (void)state;
    struct pace pace = after(100, 1, 5);
    pace_wrote(&pace, 9 * MS, 10 * MS);
    uint64_t by = pace_sync_by(&pace);
    pace_wrote(&pace, 19 * MS, 20 * MS);
    assert_int_equal(pace_sync_by(&pace), by);
    pace_synced(&pace, 30 * MS, 35 * MS);
    assert_false(pace.is_dirty);
    pace_wrote(&pace, 39 * MS, 40 * MS);
    assert_int_equal(pace_sync_by(&pace), by + 30 * MS);
}

/* The syncs of segments that have nothing to sync say nothing of the disk. */
static void a_sync_of_nothing_is_not_counted(void **state)
{
    (void)state;
    struct pace pace = after(100, 1, 100);
    for (int i = 0; i < 100; i++)
        pace_synced(&pace, 0, 0);
    assert_true(pace_holds(&pace));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_acknowledged_is_on_disk_in_time),
        cmocka_unit_test(a_slow_disk_holds_acknowledgements_back),
        cmocka_unit_test(one_slow_sync_is_remembered_for_a_while),
        cmocka_unit_test(the_oldest_record_says_when),
        cmocka_unit_test(a_sync_of_nothing_is_not_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
