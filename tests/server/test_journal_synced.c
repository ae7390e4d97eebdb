/* test_journal_synced.c - the order in which a journal's files are written, synced, renamed and
 * removed: what an acknowledgement, a removal or a served request relies on is on disk before.
 * (Power cuts of a file system that keeps the order of such steps by itself do not tell.) And
 * which descriptors it closes. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/service/state.h"
#include "server/journal/journal.h"
#include "tests/server/journaled.h"

/* ---- steps, of all threads ---- */

enum { STEPS_MAX = 512, STEP_BYTES = 96 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char steps[STEPS_MAX][STEP_BYTES];
static int n_steps;

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);
ssize_t __real_pwrite(int fd, const void *bytes, size_t n, off_t at);
ssize_t __wrap_pwrite(int fd, const void *bytes, size_t n, off_t at);
int __real_renameat(int from_dir, const char *from, int to_dir, const char *to);
int __wrap_renameat(int from_dir, const char *from, int to_dir, const char *to);
int __real_unlinkat(int dir, const char *name, int flags);
int __wrap_unlinkat(int dir, const char *name, int flags);

static void note(const char *what, const char *name)
{
    pthread_mutex_lock(&lock);
    if (n_steps < STEPS_MAX)
        snprintf(steps[n_steps++], STEP_BYTES, "%.12s %.80s", what, name);
    pthread_mutex_unlock(&lock);
}

/* The file's name; of a directory "." */
static void note_fd(const char *what, int fd)
{
    char link[64], path[256];
    struct stat st;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    const char *name = strrchr(path, '/');
    note(what, fstat(fd, &st) == 0 && S_ISDIR(st.st_mode) ? "." : name != NULL ? name + 1 : path);
}

int __wrap_fsync(int fd)
{
    int error = __real_fsync(fd);
    note_fd("sync", fd);
    return error;
}

int __wrap_fdatasync(int fd)
{
    int error = __real_fdatasync(fd);
    note_fd("sync", fd);
    return error;
}

ssize_t __wrap_pwrite(int fd, const void *bytes, size_t n, off_t at)
{
    note_fd("write", fd);
    return __real_pwrite(fd, bytes, n, at);
}

int __wrap_renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    note("rename", to);
    return __real_renameat(from_dir, from, to_dir, to);
}

int __wrap_unlinkat(int dir, const char *name, int flags)
{
    note("unlink", name);
    return __real_unlinkat(dir, name, flags);
}

static void forget(void)
{
    pthread_mutex_lock(&lock);
    n_steps = 0;
    pthread_mutex_unlock(&lock);
}

/* The first such step from `from` on; n_steps: there is none. */
static int find(int from, const char *step)
{
    while (from < n_steps && strcmp(steps[from], step) != 0)
        from++;
    return from;
}

/* There is such a step, and behind it these, in this order, before `end` comes or all is over. */
static void expect_then(const char *step, const char *const *then, int n_then, const char *end)
{
    int at = find(0, step);
    assert_true(at < n_steps);
    int last = find(at, end);
    for (int i = 0; i < n_then; i++) {
        at = find(at + 1, then[i]);
        if (at >= last)
            fail_msg("no '%s' behind '%s' and before '%s'", then[i], step, end);
    }
}

/* ---- cases ---- */

#define SEGMENT "journal.0.00000001"
#define BASE    "journal.0.00000002.base"

static void a_base_has_its_name_on_disk_before_what_it_replaces_goes(void **state)
{
    (void)state;
    struct journaled j;
    struct embd__error e = {.status = EMBD_OK};
    embd_schema schema = kept_schema("a", EMBD_DURABILITY_DURABLE);
    journaled_new(&j);
    create_table(&j.rig, &schema);
    push_two(&j.rig, "a", 1);
    forget();
    assert_int_equal(compaction_make_now(&j.rig.shard->commit, &e), EMBD_OK);
    expect_then("write " BASE ".tmp", (const char *[]){"sync " BASE ".tmp"}, 1, "rename " BASE);
    expect_then("rename " BASE, (const char *[]){"sync ."}, 1, "unlink " SEGMENT);
    assert_true(find(0, "unlink " SEGMENT) < n_steps);
    journaled_end(&j);
}

static off_t size_of(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_size;
}

/* A server that was killed left it in the kernel's memory; what is answered from it may not be lost
 * with the power. Its file may end on a block: then there is nothing else to write. */
static void what_a_start_has_read_is_on_disk_before_it_is_served(void **state)
{
    (void)state;
    struct journaled j;
    char path[128];
    embd_schema schema = kept_schema("a", EMBD_DURABILITY_BUFFERED);
    journaled_new(&j);
    snprintf(path, sizeof path, "%s/" SEGMENT, j.dir);
    create_table(&j.rig, &schema);
    push_two(&j.rig, "a", 1);
    off_t end = size_of(path);
    journaled_stop(&j);
    for (int is_aligned = 0; is_aligned < 2; is_aligned++) {
        assert_int_equal(truncate(path, end), 0);
        if (is_aligned)
            assert_int_equal(truncate(path, (off_t)record_block_end((uint64_t)end)), 0);
        forget();
        journaled_start(&j);
        assert_true(find(0, "sync " SEGMENT) < n_steps);
        forget();
        journaled_stop(&j);
    }
    scratch_remove(j.dir);
}

static void set_durability(struct rig *rig, const char *name, const char *to)
{
    struct embd__error e = {.status = EMBD_OK};
    struct schema_change change;
    struct exchange *x = ask(rig, &rig->admin, METHOD_TABLE_SET);
    embd__schema_change_init(&change);
    assert_int_equal(embd__schema_change_add(&change, "durability", to, &e), EMBD_OK);
    embd__msg_map(&x->out, 2);
    embd__msg_field_str(&x->out, "name", name);
    embd__msg_str(&x->out, "set");
    embd__schema_change_write(&x->out, &change);
    ask_ok(x);
    ask_free(x);
}

/* Whatever its durability was: a start has it from the snapshot from then on. */
static void a_table_has_left_the_journal_on_disk_before_that_is_told(void **state)
{
    (void)state;
    static const embd_durability before[] = {EMBD_DURABILITY_BUFFERED, EMBD_DURABILITY_DURABLE};
    for (int i = 0; i < 2; i++) {
        struct journaled j;
        embd_schema schema = kept_schema("a", before[i]);
        journaled_new(&j);
        create_table(&j.rig, &schema);
        for (int k = 0; k < 32;
             k++) /* until the disk is known: then buffered ones are not synced */
            push_two(&j.rig, "a", 1);
        forget();
        set_durability(&j.rig, "a", "snapshot");
        note("told", "now");
        expect_then("write " SEGMENT, (const char *[]){"sync " SEGMENT}, 1, "told now");
        journaled_end(&j);
    }
}

/* Else a push that was refused is applied after a power cut. */
static void what_was_withdrawn_is_on_disk_before_it_is_told(void **state)
{
    (void)state;
    char dir[64];
    struct embd__error e = {.status = EMBD_OK};
    scratch_new(dir);
    int at = open(dir, O_RDONLY | O_DIRECTORY);
    for (uint64_t i = 0; i < 3; i++) {
        const struct record_id id = {i, i + 7};
        forget();
        assert_int_equal(withdrawn_add(at, 0, &id, &e), EMBD_OK);
        expect_then("write journal.0.withdrawn",
                    (const char *[]){"sync journal.0.withdrawn", "sync ."}, 2, "told");
    }
    forget();
    withdrawn_drop_before(at, 0, 2); /* the others stay, in another file */
    expect_then(
        "write journal.0.withdrawn.tmp",
        (const char *[]){"sync journal.0.withdrawn.tmp", "rename journal.0.withdrawn", "sync ."}, 3,
        "told");
    close(at);
    scratch_remove(dir);
}

/* ---- descriptors ---- */

static uint32_t count_descriptors(void)
{
    uint32_t n = 0;
    DIR *list = opendir("/proc/self/fd");
    assert_non_null(list);
    while (readdir(list) != NULL)
        n++;
    closedir(list);
    return n;
}

/* Also that of the reserve, whose file stays. */
static void a_closed_journal_leaves_no_descriptor_open(void **state)
{
    (void)state;
    struct journaled j;
    embd_schema schema = kept_schema("a", EMBD_DURABILITY_DURABLE);
    uint32_t before = count_descriptors();
    journaled_new(&j);
    create_table(&j.rig, &schema);
    push_two(&j.rig, "a", 1);
    journaled_stop(&j);
    for (int i = 0; i < 3; i++) {
        journaled_start(&j);
        push_two(&j.rig, "a", 1);
        journaled_stop(&j);
    }
    journaled_start(&j);
    journaled_end(&j);
    assert_int_equal(count_descriptors(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_base_has_its_name_on_disk_before_what_it_replaces_goes),
        cmocka_unit_test(what_a_start_has_read_is_on_disk_before_it_is_served),
        cmocka_unit_test(a_table_has_left_the_journal_on_disk_before_that_is_told),
        cmocka_unit_test(what_was_withdrawn_is_on_disk_before_it_is_told),
        cmocka_unit_test(a_closed_journal_leaves_no_descriptor_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
