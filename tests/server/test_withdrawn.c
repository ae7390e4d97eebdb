/* test_withdrawn.c - the list of records that a replay leaves out: what was added is met, after any
 * number of reads, whichever bit of it was flipped; a torn end was told to nobody; damage before it
 * is told; entries of records that are gone go; a list of an earlier version is read, and goes on.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/journal/withdrawn.h"

enum { SHARD = 3, MAGIC = 8, COPY = 24, ENTRY = 2 * COPY };

static const struct record_id ids[] = {{7, 70}, {9, 2}, {8, 5}, {9, 1}};
static char root[64], path[128];
static int root_fd;

static int make(void **state)
{
    (void)state;
    strcpy(root, "/tmp/embd-withdrawn-XXXXXX");
    if (mkdtemp(root) == NULL)
        return -1;
    snprintf(path, sizeof path, "%s/journal.%d.withdrawn", root, SHARD);
    root_fd = open(root, O_RDONLY | O_DIRECTORY);
    return root_fd < 0 ? -1 : 0;
}

static int clean(void **state)
{
    (void)state;
    unlink(path);
    close(root_fd);
    return rmdir(root);
}

static void add(const struct record_id *id)
{
    struct embd__error e = {.status = EMBD_OK};
    assert_int_equal(withdrawn_add(root_fd, SHARD, id, &e), EMBD_OK);
}

/* The list has the first n of `ids`, and no others. */
static void expect(size_t n)
{
    struct embd__error e = {.status = EMBD_OK};
    struct withdrawn list;
    const struct record_id others[] = {{7, 71}, {9, 3}, {0, 0}};
    assert_int_equal(withdrawn_read(root_fd, SHARD, &list, &e), EMBD_OK);
    assert_int_equal(list.n, n);
    for (size_t i = 0; i < 3; i++)
        assert_false(withdrawn_meets(&list, &others[i]));
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        assert_int_equal(withdrawn_meets(&list, &ids[i]), i < n);
    assert_int_equal(list.n_damaged, 0);
    withdrawn_fini(&list);
}

static void what_was_added_is_met(void **state)
{
    (void)state;
    expect(0);
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        add(&ids[i]);
        expect(i + 1);
    }
}

static void flip(int fd, off_t at, int bit)
{
    uint8_t byte;
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte = (uint8_t)(byte ^ 1u << bit);
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
}

static void a_torn_end_is_written_over(void **state)
{
    (void)state;
    for (int n = 0; n < 2; n++)
        for (off_t torn = 1; torn <= ENTRY + (n == 0 ? MAGIC : 0); torn++) {
            unlink(path);
            for (int i = 0; i <= n; i++)
                add(&ids[i]);
            off_t size = MAGIC + (n + 1) * ENTRY;
            int fd = open(path, O_RDWR);
            assert_true(fd >= 0);
            if (torn == ENTRY) { /* it has its length, and not its bytes */
                flip(fd, size - 1, 0);
                flip(fd, size - COPY - 1, 0);
            } else {
                assert_int_equal(ftruncate(fd, size - torn), 0);
            }
            close(fd);
            expect((size_t)n);
            add(&ids[n]);
            expect((size_t)n + 1);
        }
}

/* Also of the last entry, and of the first bytes. */
static void no_flipped_bit_loses_an_entry(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++)
        add(&ids[i]);
    int fd = open(path, O_RDWR);
    for (off_t at = 0; at < MAGIC + 2 * ENTRY; at++)
        for (int bit = 0; bit < 8; bit++) {
            flip(fd, at, bit);
            expect(2);
            flip(fd, at, bit);
        }
    close(fd);
    expect(2);
}

static void damage_before_it_is_told_and_goes(void **state)
{
    (void)state;
    for (off_t at = 0; at < COPY; at++) {
        struct embd__error e = {.status = EMBD_OK};
        struct withdrawn list;
        unlink(path);
        for (size_t i = 0; i < 4; i++)
            add(&ids[i]);
        int fd = open(path, O_RDWR);
        flip(fd, MAGIC + ENTRY + at, 2);
        flip(fd, MAGIC + ENTRY + COPY + at, 2);
        close(fd);
        assert_int_equal(withdrawn_read(root_fd, SHARD, &list, &e), EMBD_OK);
        assert_int_equal(list.n_damaged, 1);
        assert_int_equal(list.damaged_at, MAGIC + ENTRY);
        assert_int_equal(list.n, 3);
        withdrawn_fini(&list);
        withdrawn_drop_before(root_fd, SHARD, 0);
        assert_int_equal(withdrawn_read(root_fd, SHARD, &list, &e), EMBD_OK);
        assert_true(list.n_damaged == 0 && list.n == 3);
        withdrawn_fini(&list);
    }
}

static void entries_of_what_is_gone_go(void **state)
{
    (void)state;
    static const struct record_id rising[] = {{7, 70}, {8, 5}, {9, 1}, {9, 2}};
    for (uint64_t position = 6; position <= 10; position++) {
        struct embd__error e = {.status = EMBD_OK};
        struct withdrawn list;
        size_t n = 0;
        unlink(path);
        for (size_t i = 0; i < 4; i++) {
            add(&ids[i]);
            n += ids[i].position >= position;
        }
        withdrawn_drop_before(root_fd, SHARD, position);
        assert_int_equal(access(path, F_OK) == 0, n > 0);
        assert_int_equal(withdrawn_read(root_fd, SHARD, &list, &e), EMBD_OK);
        assert_int_equal(list.n, n);
        for (size_t i = 0; i < n; i++)
            assert_memory_equal(&list.ids[i], &rising[4 - n + i], sizeof *list.ids);
        withdrawn_fini(&list);
    }
}

/* As an earlier version wrote it: each entry once, and nothing before them. */
static void an_old_list_is_read_and_goes_on(void **state)
{
    (void)state;
    uint8_t bytes[MAGIC + ENTRY];
    for (int is_kept = 0; is_kept < 2; is_kept++)
        for (size_t n = 1; n < 4; n++) {
            uint8_t old[4 * COPY];
            for (size_t i = 0; i < n; i++) {
                unlink(path);
                add(&ids[i]);
                int fd = open(path, O_RDONLY);
                assert_int_equal(pread(fd, bytes, sizeof bytes, 0), sizeof bytes);
                close(fd);
                memcpy(old + i * COPY, bytes + MAGIC, COPY);
            }
            int fd = open(path, O_WRONLY | O_TRUNC);
            assert_int_equal(pwrite(fd, old, n * COPY, 0), n * COPY);
            close(fd);
            expect(n);
            if (is_kept)
                withdrawn_drop_before(root_fd, SHARD, 0);
            add(&ids[n]);
            expect(n + 1);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_was_added_is_met, make, clean),
        cmocka_unit_test_setup_teardown(a_torn_end_is_written_over, make, clean),
        cmocka_unit_test_setup_teardown(no_flipped_bit_loses_an_entry, make, clean),
        cmocka_unit_test_setup_teardown(damage_before_it_is_told_and_goes, make, clean),
        cmocka_unit_test_setup_teardown(entries_of_what_is_gone_go, make, clean),
        cmocka_unit_test_setup_teardown(an_old_list_is_read_and_goes_on, make, clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
