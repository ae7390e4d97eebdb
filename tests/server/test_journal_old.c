/* test_journal_old.c - a journal of an earlier version is replayed, its torn tail is cut, damage of
 * it refuses to start; what is pushed then goes to a new segment, and nothing is added to the old
 * one but a mark. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/service/state.h"
#include "tests/server/journaled.h"
#include "tests/server/old_journal.h"

enum { N_PUSHES = 3 };

#define SEGMENT "journal.0.00000001"
#define NEXT    "journal.0.00000002"
#define BASE    "journal.0.00000002.base"

struct bytes {
    uint8_t data[1 << 14];
    size_t n;
};

/* A table and N_PUSHES pushes; ends[i]: the old journal's length, and images[i] the table, after i
 * of them. */
struct sample {
    char dir[64];
    struct bytes old;
    size_t ends[N_PUSHES + 1];
    struct image images[N_PUSHES + 1];
};

static void read_file(const char *dir, const char *name, struct bytes *out)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int fd = open(path, O_RDONLY);
    ssize_t n = fd < 0 ? -1 : read(fd, out->data, sizeof out->data);
    assert_true(n > 0 && n < (ssize_t)sizeof out->data);
    out->n = (size_t)n;
    close(fd);
}

static void write_file(const char *dir, const char *name, const struct bytes *bytes, size_t n)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    forget_reached(dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0 && write(fd, bytes->data, n) == (ssize_t)n);
    close(fd);
}

static bool is_there(const char *dir, const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return access(path, F_OK) == 0;
}

static void remove_file(const char *dir, const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    unlink(path);
}

static void sample_new(struct sample *s)
{
    static struct bytes file;
    struct rig rig;
    embd_schema schema = kept_schema("a", EMBD_DURABILITY_DURABLE);
    scratch_new(s->dir);
    rig_open(&rig, &store_host, 0, 1, s->dir);
    create_table(&rig, &schema);
    for (int i = 0; i <= N_PUSHES; i++) {
        if (i > 0)
            push_two(&rig, "a", (float)i);
        image_take(&rig, "a", &s->images[i]);
        read_file(s->dir, SEGMENT, &file);
        s->old.n = s->ends[i] = old_journal_of(s->old.data, file.data, file.n);
    }
    rig_close(&rig);
}

static void sample_free(struct sample *s)
{
    for (int i = 0; i <= N_PUSHES; i++)
        image_fini(&s->images[i]);
    scratch_remove(s->dir);
}

static int start(const char *dir, bool accepts, struct rig *rig, struct embd__error *e)
{
    rig_open(rig, &store_host, 0, 1, NULL);
    struct shard_config config = rig->config;
    rig_close(rig);
    config.data_dir = dir;
    config.accepts_journal_damage = accepts;
    rig->config = config;
    return shard_open(&rig->config, &rig->shard, e);
}

/* The table after so many pushes; the next one is in another segment, also for the start after
 * that. */
static void expect_goes_on(struct sample *s, int n_kept)
{
    struct rig rig;
    static struct bytes before, after;
    struct image image;
    rig_open(&rig, &store_host, 0, 1, s->dir);
    image_check(&rig, "a", &s->images[n_kept]);
    assert_false(is_there(s->dir, NEXT));
    read_file(s->dir, SEGMENT, &before);
    assert_true(before.n >= s->ends[n_kept]);
    push_two(&rig, "a", 9);
    image_take(&rig, "a", &image);
    rig_close(&rig);
    read_file(s->dir, SEGMENT, &after);
    assert_int_equal(after.n, before.n);
    assert_memory_equal(after.data, before.data, before.n);
    assert_memory_equal(after.data, s->old.data, s->ends[n_kept]);
    read_file(s->dir, NEXT, &after);
    assert_memory_equal(after.data, "embdjnl3", 8);
    for (int i = 0; i < 2; i++) {
        rig_open(&rig, &store_host, 0, 1, s->dir);
        image_check(&rig, "a", &image);
        rig_close(&rig);
    }
    image_fini(&image);
    remove_file(s->dir, NEXT);
}

static void a_tail_torn_at_any_byte_is_cut_and_a_new_segment_follows(void **state)
{
    static struct sample s;
    (void)state;
    sample_new(&s);
    for (size_t n = s.ends[N_PUSHES]; n >= s.ends[N_PUSHES - 1]; n--) {
        write_file(s.dir, SEGMENT, &s.old, n);
        expect_goes_on(&s, n == s.ends[N_PUSHES] ? N_PUSHES : N_PUSHES - 1);
    }
    sample_free(&s);
}

/* It was at rest: that is marked as the earlier version did, so that it would still read it. */
static void a_start_marks_it_and_damage_before_the_mark_refuses(void **state)
{
    static struct sample s;
    static struct bytes marked;
    static const struct record_key no_key;
    struct rig rig;
    struct mark mark;
    struct embd__error e = {.status = EMBD_OK};
    (void)state;
    sample_new(&s);
    write_file(s.dir, SEGMENT, &s.old, s.old.n);
    rig_open(&rig, &store_host, 0, 1, s.dir);
    rig_close(&rig);
    read_file(s.dir, SEGMENT, &marked);
    assert_true(marked.n >= s.old.n + MARK_BYTES);
    assert_true(mark_read(&no_key, marked.data + s.old.n, MARK_BYTES, &mark));
    for (size_t at = 0; at < s.old.n; at++) {
        marked.data[at] ^= (uint8_t)(1u << at % 8);
        write_file(s.dir, SEGMENT, &marked, marked.n);
        if (start(s.dir, false, &rig, &e) != EMBD_CORRUPT)
            fail_msg("byte %zu: %s", at, e.text);
        e = (struct embd__error){.status = EMBD_OK};
        marked.data[at] ^= (uint8_t)(1u << at % 8);
    }
    sample_free(&s);
}

/* One that has a record and is no longer than a header of this version. */
static void a_short_one_with_a_damaged_header_is_not_taken_for_an_unfinished_one(void **state)
{
    static struct sample s;
    struct rig rig;
    struct embd__error e = {.status = EMBD_OK};
    (void)state;
    sample_new(&s);
    s.old.data[20] ^= 1;
    for (size_t n = OLD_SEGMENT_HEADER_BYTES + 4; n <= SEGMENT_HEADER_BYTES; n++) {
        write_file(s.dir, SEGMENT, &s.old, n);
        assert_int_equal(start(s.dir, false, &rig, &e), EMBD_CORRUPT);
        assert_non_null(strstr(e.text, "its header does not verify"));
        e = (struct embd__error){.status = EMBD_OK};
    }
    write_file(s.dir, SEGMENT, &s.old, OLD_SEGMENT_HEADER_BYTES);
    assert_int_equal(start(s.dir, false, &rig, &e), EMBD_OK);
    rig_close(&rig);
    sample_free(&s);
}

/* Where damage is accepted. */
static void a_base_whose_header_is_damaged_is_known_by_its_records(void **state)
{
    static struct bytes file, old;
    struct journaled j;
    struct image image;
    struct embd__error e = {.status = EMBD_OK};
    embd_schema schema = kept_schema("a", EMBD_DURABILITY_BUFFERED);
    (void)state;
    journaled_new(&j);
    create_table(&j.rig, &schema);
    push_two(&j.rig, "a", 1);
    assert_int_equal(compaction_make_now(&j.rig.shard->commit, &e), EMBD_OK);
    image_take(&j.rig, "a", &image);
    journaled_stop(&j);
    read_file(j.dir, BASE, &file);
    old.n = old_journal_of(old.data, file.data, file.n);
    write_file(j.dir, BASE, &old, old.n);
    journaled_start(&j);
    image_check(&j.rig, "a", &image);
    journaled_stop(&j);
    for (size_t at = 0; at < OLD_SEGMENT_HEADER_BYTES; at++) {
        remove_file(j.dir, "journal.0.00000003.base");
        remove_file(j.dir, "journal.0.damage");
        old.data[at] ^= 4;
        write_file(j.dir, BASE, &old, old.n);
        old.data[at] ^= 4;
        assert_int_equal(start(j.dir, false, &j.rig, &e), EMBD_CORRUPT);
        e = (struct embd__error){.status = EMBD_OK};
        assert_int_equal(start(j.dir, true, &j.rig, &e), EMBD_OK);
        image_check(&j.rig, "a", &image);
        journaled_stop(&j);
    }
    image_fini(&image);
    scratch_remove(j.dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tail_torn_at_any_byte_is_cut_and_a_new_segment_follows),
        cmocka_unit_test(a_start_marks_it_and_damage_before_the_mark_refuses),
        cmocka_unit_test(a_short_one_with_a_damaged_header_is_not_taken_for_an_unfinished_one),
        cmocka_unit_test(a_base_whose_header_is_damaged_is_known_by_its_records),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
