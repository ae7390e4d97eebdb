/* test_promotion.c - votes of shards that are to be promoted, by a clock of the test; and the note
 * of a follower's journal, as this and the first version wrote it. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "proto/little.h"
#include "server/follow/note.h"
#include "server/follow/promotion.h"

/* ---- votes ---- */

static time_t now_s = 100;
static unsigned n_woken;

int __wrap_clock_gettime(clockid_t clock, struct timespec *out);
int __wrap_clock_gettime(clockid_t clock, struct timespec *out)
{
    (void)clock;
    *out = (struct timespec){.tv_sec = now_s};
    return 0;
}

static void on_wake(void *arg)
{
    (void)arg;
    n_woken++;
}

static struct promotion *ask_for_two(struct embd__error *e)
{
    struct promotion *p = promotion_new(2, on_wake, NULL);
    assert_non_null(p);
    assert_false(promotion_is_under_way(p));
    assert_int_equal(promotion_ask(p, 7, e), EMBD_OK);
    assert_true(promotion_is_under_way(p));
    return p;
}

static void all_votes_decide(void **state)
{
    (void)state;
    struct embd__error e = {.status = EMBD_OK};
    struct promotion *p = ask_for_two(&e);
    promotion_vote(p, promotion_attempt(p), "");
    assert_int_equal(promotion_state(p), PROMOTION_ASKED);
    assert_int_equal(promotion_ask(p, 7, &e), EMBD_BUSY);
    promotion_vote(p, promotion_attempt(p), "");
    assert_int_equal(promotion_state(p), PROMOTION_GOES);
    now_s += 60; /* it is decided: a shard may be slow to note it */
    assert_true(promotion_is_under_way(p));
    promotion_count_done(p, 3);
    promotion_count_done(p, 3);
    struct promotion_report report;
    promotion_look(p, &report);
    assert_int_equal(report.state, PROMOTION_DONE);
    assert_int_equal(report.epoch, 3);
    assert_int_equal(report.us, 60000000);
    promotion_free(p);
}

static void one_vote_refuses_for_all(void **state)
{
    (void)state;
    struct embd__error e = {.status = EMBD_OK};
    struct promotion *p = ask_for_two(&e);
    uint64_t first = promotion_attempt(p);
    promotion_vote(p, first, "shard 1 is not ready");
    assert_int_equal(promotion_state(p), PROMOTION_REFUSED);
    assert_int_equal(promotion_ask(p, 7, &e), EMBD_OK);
    promotion_vote(p, promotion_attempt(p), "");
    promotion_vote(p, first, ""); /* of the attempt before */
    assert_int_equal(promotion_state(p), PROMOTION_ASKED);
    promotion_free(p);
}

static void a_vote_that_comes_late_promotes_nobody_also_where_nobody_looked(void **state)
{
    (void)state;
    struct embd__error e = {.status = EMBD_OK};
    struct promotion *p = ask_for_two(&e);
    promotion_vote(p, promotion_attempt(p), "");
    now_s += 11;
    promotion_vote(p, promotion_attempt(p), "");
    assert_int_equal(promotion_state(p), PROMOTION_REFUSED);
    assert_int_equal(promotion_ask(p, 7, &e), EMBD_OK);
    n_woken = 0;
    now_s += 11;
    assert_false(promotion_is_under_way(p)); /* shards follow on */
    assert_int_equal(n_woken, 1);
    struct promotion_report report;
    promotion_look(p, &report);
    assert_non_null(strstr(report.why, "not ready within 10 s"));
    assert_int_equal(report.us, 11000000);
    promotion_free(p);
}

/* ---- notes ---- */

static char root[64], path[128];
static int dir;

static int make(void **state)
{
    (void)state;
    strcpy(root, "/tmp/embd-notes-XXXXXX");
    if (mkdtemp(root) == NULL)
        return -1;
    snprintf(path, sizeof path, "%s/follow.3", root);
    dir = open(root, O_RDONLY | O_DIRECTORY);
    return dir < 0 ? -1 : 0;
}

static int clean(void **state)
{
    (void)state;
    unlink(path);
    close(dir);
    return rmdir(root);
}

static void put(const uint8_t *bytes, size_t n)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static uint64_t fnv(const uint8_t *bytes, int n)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (int i = 0; i < n; i++)
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static void a_note_of_the_first_version_is_read(void **state)
{
    (void)state;
    uint8_t bytes[56] = "embdfol1";
    struct embd__error e = {.status = EMBD_OK};
    struct note note;
    embd__put_u32(bytes + 8, NOTE_FOLLOWS);
    for (int i = 0; i < 4; i++)
        embd__put_u64(bytes + 16 + 8 * i, 11 + (uint64_t)i);
    embd__put_u64(bytes + 48, fnv(bytes, 48));
    put(bytes, sizeof bytes);
    assert_int_equal(note_read(dir, 3, &note, &e), EMBD_OK);
    assert_int_equal(note.state, NOTE_FOLLOWS);
    assert_int_equal(note.epoch, 11);
    assert_int_equal(note.cut, 12);
    assert_int_equal(note.position, 13);
    assert_int_equal(note.chain, 14);
    assert_int_equal(note.lineage + note.who, 0);
}

static void a_note_is_read_as_it_was_written_and_not_with_a_flipped_bit(void **state)
{
    (void)state;
    const struct note told = {NOTE_PROMOTED, 1, 2, 3, 4, 5, 6};
    struct note note;
    struct embd__error e = {.status = EMBD_OK};
    uint8_t bytes[72];
    assert_int_equal(note_write(dir, 3, &told, &e), EMBD_OK);
    assert_int_equal(note_read(dir, 3, &note, &e), EMBD_OK);
    assert_int_equal(note.state, told.state);
    assert_int_equal(note.epoch, told.epoch);
    assert_int_equal(note.cut, told.cut);
    assert_int_equal(note.lineage, told.lineage);
    assert_int_equal(note.who, told.who);
    assert_int_equal(note.position, told.position);
    assert_int_equal(note.chain, told.chain);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(bytes, 1, sizeof bytes, file), sizeof bytes);
    assert_int_equal(fclose(file), 0);
    for (unsigned bit = 0; bit < 8 * sizeof bytes; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        put(bytes, sizeof bytes);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        e.status = EMBD_OK;
        assert_int_equal(note_read(dir, 3, &note, &e), EMBD_CORRUPT);
    }
    put(bytes, sizeof bytes - 1);
    e.status = EMBD_OK;
    assert_int_equal(note_read(dir, 3, &note, &e), EMBD_CORRUPT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_votes_decide),
        cmocka_unit_test(one_vote_refuses_for_all),
        cmocka_unit_test(a_vote_that_comes_late_promotes_nobody_also_where_nobody_looked),
        cmocka_unit_test(a_note_of_the_first_version_is_read),
        cmocka_unit_test(a_note_is_read_as_it_was_written_and_not_with_a_flipped_bit),
    };
    return cmocka_run_group_tests(tests, make, clean);
}
