/* test_withdrawn.c - the list of records that a replay leaves out: what was added is met, after any number of
 * reads; a torn end was told to nobody; damage before it refuses; a list of records that are gone goes. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "withdrawn.h"

enum { SHARD = 3, ENTRY = 24 };

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
    assert_int_equal(list.n_met, 0);
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        assert_int_equal(withdrawn_meets(&list, &ids[i]), i < n);
    assert_int_equal(list.n_met, n);
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

static void a_torn_end_is_written_over(void **state)
{
    (void)state;
    for (off_t torn = 1; torn <= ENTRY; torn++) {
        unlink(path);
        add(&ids[0]);
        add(&ids[1]);
        int fd = open(path, O_RDWR);
        assert_true(fd >= 0);
        if (torn == ENTRY) /* it has its length, and not its bytes */
            assert_int_equal(pwrite(fd, "?", 1, 2 * ENTRY - 1), 1);
        else
            assert_int_equal(ftruncate(fd, 2 * ENTRY - torn), 0);
        close(fd);
        expect(1);
        add(&ids[1]);
        expect(2);
    }
}

static void damage_before_it_refuses(void **state)
{
    (void)state;
    for (off_t at = 0; at < ENTRY; at++) {
        struct embd__error e = {.status = EMBD_OK};
        struct withdrawn list;
        unlink(path);
        for (size_t i = 0; i < 3; i++)
            add(&ids[i]);
        int fd = open(path, O_RDWR);
        uint8_t byte;
        assert_int_equal(pread(fd, &byte, 1, ENTRY + at), 1);
        byte ^= 4;
        assert_int_equal(pwrite(fd, &byte, 1, ENTRY + at), 1);
        close(fd);
        assert_int_equal(withdrawn_read(root_fd, SHARD, &list, &e), EMBD_CORRUPT);
        assert_non_null(strstr(e.text, "journal.3.withdrawn"));
        assert_non_null(strstr(e.text, "offset 24"));
    }
}

static void a_list_of_what_is_gone_goes(void **state)
{
    (void)state;
    struct embd__error e = {.status = EMBD_OK};
    for (int n_met = 1; n_met >= 0; n_met--) {
        struct withdrawn list;
        add(&ids[0]);
        assert_int_equal(withdrawn_read(root_fd, SHARD, &list, &e), EMBD_OK);
        if (n_met == 1)
            assert_true(withdrawn_meets(&list, &ids[0]));
        withdrawn_drop_old(root_fd, SHARD, &list);
        withdrawn_fini(&list);
        assert_int_equal(access(path, F_OK) == 0, n_met == 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_was_added_is_met, make, clean),
        cmocka_unit_test_setup_teardown(a_torn_end_is_written_over, make, clean),
        cmocka_unit_test_setup_teardown(damage_before_it_refuses, make, clean),
        cmocka_unit_test_setup_teardown(a_list_of_what_is_gone_goes, make, clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
