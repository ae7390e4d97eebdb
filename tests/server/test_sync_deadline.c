/* test_sync_deadline.c - when buffered records are synced: before they are as old as is promised,
 * however long syncs and writes take; and not before they are acknowledged, where there is time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "server/journal/journal.h"
#include "server/journal/syncs.h"

#define MS      UINT64_C(1000000)
#define PROMISE (JOURNAL_BUFFERED_MS * MS)

/* A disk of which `n` writes and syncs are known, which took so long. */
static struct sync_deadline after(uint32_t n, uint64_t write_ms, uint64_t sync_ms)
{
    struct sync_deadline deadline;
    sync_deadline_init(&deadline);
    for (uint32_t i = 0; i < n; i++) {
        sync_deadline_wrote(&deadline, 0, write_ms * MS);
        sync_deadline_synced(&deadline, 0, sync_ms * MS);
    }
    return deadline;
}

/* A record was written and may be acknowledged at once. Synced as late as may be, with another
 * write before that, it is on disk in time. */
static void check(uint64_t write_ms, uint64_t sync_ms)
{
    struct sync_deadline deadline = after(100, write_ms, sync_ms);
    uint64_t now = 1000 * MS;
    if (sync_deadline_holds(&deadline))
        return;
    sync_deadline_wrote(&deadline, now - write_ms * MS, now);
    uint64_t by = sync_deadline_of(&deadline);
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
    struct sync_deadline unknown = after(0, 0, 0), quick = after(100, 1, 5),
                         slow = after(100, 1, 40), slow_writes = after(100, 50, 1);
    assert_true(sync_deadline_holds(&unknown));
    assert_false(sync_deadline_holds(&quick));
    assert_true(sync_deadline_holds(&slow));
    assert_true(sync_deadline_holds(&slow_writes));
}

static void one_slow_sync_is_remembered_for_a_while(void **state)
{
    (void)state;
    struct sync_deadline deadline = after(100, 1, 5);
    sync_deadline_wrote(&deadline, 0, MS);
    sync_deadline_synced(&deadline, 0, 200 * MS);
    uint32_t n = 0;
    for (; sync_deadline_holds(&deadline); n++) {
        sync_deadline_wrote(&deadline, 0, MS);
        sync_deadline_synced(&deadline, 0, 5 * MS);
    }
    assert_in_range(n, 10, 60);
}

static void the_oldest_record_says_when(void **state)
{
    (void)state;
    struct sync_deadline deadline = after(100, 1, 5);
    sync_deadline_wrote(&deadline, 9 * MS, 10 * MS);
    uint64_t by = sync_deadline_of(&deadline);
    sync_deadline_wrote(&deadline, 19 * MS, 20 * MS);
    assert_int_equal(sync_deadline_of(&deadline), by);
    sync_deadline_synced(&deadline, 30 * MS, 35 * MS);
    assert_false(deadline.is_dirty);
    sync_deadline_wrote(&deadline, 39 * MS, 40 * MS);
    assert_int_equal(sync_deadline_of(&deadline), by + 30 * MS);
}

/* The syncs of segments that have nothing to sync say nothing of the disk. */
static void a_sync_of_nothing_is_not_counted(void **state)
{
    (void)state;
    struct sync_deadline deadline = after(100, 1, 100);
    for (int i = 0; i < 100; i++)
        sync_deadline_synced(&deadline, 0, 0);
    assert_true(sync_deadline_holds(&deadline));
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
