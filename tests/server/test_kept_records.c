/* test_kept_records.c - a base takes the place of records that a follower lacks: they are kept for
 * it for ten seconds, unless somebody waits for the base or the disk has little room. By a clock
 * and a disk of the test. */
#include "tests/server/journaled.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>

#include "server/journal/room.h"
#include "server/service/compacting.h"
#include "server/service/feeding.h"
#include "server/service/state.h"

enum { KEPT_S = 10, TURNS = 100, MOST_TURNS = 30000 };
#define NS UINT64_C(1000000000)

/* ---- the disk ---- */

#define BLOCK 4096u
#define DISK  (UINT64_C(1) << 40)

static uint64_t free_bytes = DISK;
static bool is_known = true;

int __real_fstatvfs(int fd, struct statvfs *out);
int __wrap_fstatvfs(int fd, struct statvfs *out);
int __wrap_fstatvfs(int fd, struct statvfs *out)
{
    (void)fd;
    *out = (struct statvfs){
        .f_frsize = BLOCK, .f_blocks = DISK / BLOCK, .f_bavail = free_bytes / BLOCK};
    errno = is_known ? 0 : EIO;
    return is_known ? 0 : -1;
}

/* Four times the next base has room, and what counts as little: 256 MiB and an eighth of the base.
 */
static void a_disk_has_ample_room_for_four_bases_and_a_little(void **state)
{
    (void)state;
    const uint64_t need = UINT64_C(8) << 30, ample = 4 * need + (256u << 20) + need / 8;
    struct room room;
    room_init(&room, -1, 0);
    atomic_store(&room.need, need);
    free_bytes = ample;
    assert_true(room_is_ample(&room));
    free_bytes = ample - BLOCK;
    assert_false(room_is_ample(&room));
    is_known = false; /* then nothing is to be feared */
    assert_true(room_is_ample(&room));
    is_known = true;
    free_bytes = DISK;
}

/* ---- the clock of the shard's thread ---- */

static pthread_t shards_thread;
static uint64_t clock_now_ns = UINT64_C(1000000000000);

int __real_clock_gettime(clockid_t clock, struct timespec *out);
int __wrap_clock_gettime(clockid_t clock, struct timespec *out);
int __wrap_clock_gettime(clockid_t clock, struct timespec *out)
{
    if (clock != CLOCK_MONOTONIC || !pthread_equal(pthread_self(), shards_thread))
        return __real_clock_gettime(clock, out);
    *out = (struct timespec){.tv_sec = (time_t)(clock_now_ns / NS),
                             .tv_nsec = (long)(clock_now_ns % NS)};
    return 0;
}

/* ---- a shard with a follower that takes nothing ---- */

/* With a limit each push makes a base due. */
static void begin(struct journaled *j, uint64_t journal_limit, bool is_strict)
{
    const embd_schema schema = kept_schema("a", EMBD_DURABILITY_BUFFERED);
    static const uint64_t keys[] = {1, 2};
    static const float grads[8] = {1};
    const struct part part = part_of("a", keys, 2, grads);
    journaled_new(j);
    j->rig.config.is_journal_strict = is_strict;
    j->rig.config.journal_limit = journal_limit;
    rig_wake(&j->rig);
    j->rig.now_ns = clock_now_ns;
    j->rig.shard->feeding.n = 1;
    j->rig.shard->feeding.list[0] =
        (struct feed){.session = &j->rig.admin, .is_ours = true, .answered_ns = clock_now_ns};
    create_table(&j->rig, &schema);
    struct exchange *x = ask_parts(&j->rig, METHOD_PUSH, &part, 1);
    ask_send(x);
    ask_wait(x);
    ask_free(x);
}

static void end(struct journaled *j)
{
    j->rig.shard->feeding.n = 0;
    j->rig.shard->feeding.list[0] = (struct feed){.session = NULL};
    journaled_end(j);
}

/* After so long; it has just asked. */
static void turn(struct rig *rig, uint64_t ns)
{
    clock_now_ns += ns;
    rig->now_ns = clock_now_ns;
    rig->shard->feeding.list[0].answered_ns = clock_now_ns;
    shard_tick(rig->shard, clock_now_ns);
    shard_collect(rig->shard);
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* The base is there, and the files before it are gone. */
static void await_base(struct rig *rig)
{
    for (int i = 0; rig->shard->counters.bases == 0; i++) {
        assert_in_range(i, 0, MOST_TURNS);
        turn(rig, 0);
    }
}

static void records_are_kept_for_ten_seconds(void **state)
{
    (void)state;
    struct journaled j;
    begin(&j, 1, false);
    while (j.rig.shard->compacting.state != COMPACTING_WRITES)
        turn(&j.rig, 0);
    for (int i = 0; i < TURNS; i++) /* it is written, but for its end */
        turn(&j.rig, i == TURNS / 2 ? KEPT_S * NS - 1 : 0);
    assert_int_equal(j.rig.shard->counters.bases, 0);
    turn(&j.rig, 1);
    await_base(&j.rig);
    end(&j);
}

static void but_not_where_the_journal_is_strict(void **state)
{
    (void)state;
    struct journaled j;
    begin(&j, 1, true);
    await_base(&j.rig);
    end(&j);
}

static void nor_where_damage_is_mended(void **state)
{
    (void)state;
    struct journaled j;
    begin(&j, 0, false);
    compacting_mend(j.rig.shard);
    await_base(&j.rig);
    end(&j);
}

static void nor_where_the_base_is_awaited(void **state)
{
    (void)state;
    struct journaled j;
    begin(&j, 0, false);
    j.rig.shard->compacting.is_resized = true;
    assert_true(compacting_is_awaited(j.rig.shard));
    await_base(&j.rig);
    assert_false(compacting_is_awaited(j.rig.shard));
    end(&j);
}

static void set_durable(struct rig *rig, const char *name)
{
    struct embd__error e = {.status = EMBD_OK};
    struct schema_change change;
    struct exchange *x = ask(rig, &rig->admin, METHOD_TABLE_SET);
    embd__schema_change_init(&change);
    assert_int_equal(embd__schema_change_add(&change, "durability", "durable", &e), EMBD_OK);
    embd__msg_map(&x->out, 2);
    embd__msg_field_str(&x->out, "name", name);
    embd__msg_str(&x->out, "set");
    embd__schema_change_write(&x->out, &change);
    ask_send(x);
    ask_wait(x);
    ask_free(x);
}

static void nor_where_a_table_comes_into_the_journal(void **state)
{
    (void)state;
    struct journaled j;
    const embd_schema schema = kept_schema("b", EMBD_DURABILITY_SNAPSHOT);
    begin(&j, 0, false);
    create_table(&j.rig, &schema);
    set_durable(&j.rig, "b");
    assert_int_equal(j.rig.shard->engine.tables.n_joining, 1);
    await_base(&j.rig);
    end(&j);
}

static void nor_where_the_disk_has_little_room(void **state)
{
    (void)state;
    struct journaled j;
    begin(&j, 1, false);
    free_bytes = 100u << 20;
    await_base(&j.rig);
    free_bytes = DISK;
    end(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_disk_has_ample_room_for_four_bases_and_a_little),
        cmocka_unit_test(records_are_kept_for_ten_seconds),
        cmocka_unit_test(but_not_where_the_journal_is_strict),
        cmocka_unit_test(nor_where_damage_is_mended),
        cmocka_unit_test(nor_where_the_base_is_awaited),
        cmocka_unit_test(nor_where_a_table_comes_into_the_journal),
        cmocka_unit_test(nor_where_the_disk_has_little_room),
    };
    shards_thread = pthread_self();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
