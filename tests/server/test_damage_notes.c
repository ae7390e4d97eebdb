/* test_damage_notes.c - the list of damage that was accepted: a line for each, however often a
 * start that finds no room has to accept them again; what a crash left of a line goes. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/journal/journal.h"

static const struct journal_damage damages[] = {
    {.name = "journal.2.withdrawn", .offset = 8, .dropped_bytes = 48, .what = "not known any more"},
    {.name = "journal.2.00000004.base", .what = "its header does not verify"},
    {.name = "journal.2.00000004",
     .offset = 128,
     .dropped_bytes = 70,
     .what = "what was written later follows"},
};
static char root[64], path[128];
static struct journal_config config = {.shard = 2};

static int make(void **state)
{
    (void)state;
    strcpy(root, "/tmp/embd-damage-XXXXXX");
    if (mkdtemp(root) == NULL)
        return -1;
    snprintf(path, sizeof path, "%s/journal.2.damage", root);
    config.data_dir = open(root, O_RDONLY | O_DIRECTORY);
    return config.data_dir < 0 ? -1 : 0;
}

static int clean(void **state)
{
    (void)state;
    unlink(path);
    close(config.data_dir);
    return rmdir(root);
}

static void note(const struct journal_damage *damage, uint64_t n_told)
{
    struct embd__error e = {.status = EMBD_OK};
    uint64_t n;
    assert_int_equal(journal_damage_note(&config, damage, &e), EMBD_OK);
    assert_int_equal(journal_damage_count(&config, &n, &e), EMBD_OK);
    assert_int_equal(n, n_told);
}

static void several_are_told_once_however_often_they_are_accepted(void **state)
{
    (void)state;
    for (int start = 0; start < 3; start++)
        for (uint64_t i = 0; i < 3; i++)
            note(&damages[i], start == 0 ? i + 1 : 3);
    struct journal_damage later = damages[2];
    later.offset++;
    note(&later, 4);
}

static void a_line_that_was_left_half_goes(void **state)
{
    (void)state;
    char whole[1024], text[1024];
    note(&damages[0], 1);
    note(&damages[1], 2);
    int fd = open(path, O_RDWR);
    size_t n = (size_t)pread(fd, whole, sizeof whole, 0), first = strcspn(whole, "\n") + 1;
    for (size_t left = first; left < n; left++) {
        assert_int_equal(ftruncate(fd, (off_t)left), 0);
        note(&damages[0], 1);
        note(&damages[1], 2);
        assert_int_equal(pread(fd, text, sizeof text, 0), n);
        assert_memory_equal(text, whole, first);
        assert_memory_equal(text + first + 20, whole + first + 20,
                            n - first - 20); /* behind the time */
    }
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(several_are_told_once_however_often_they_are_accepted, make,
                                        clean),
        cmocka_unit_test_setup_teardown(a_line_that_was_left_half_goes, make, clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
