/* test_safe_open.c - what is opened below a directory is right below it, and no link, and nobody
 * waits for a fifo; with openat2 and without it (the linker hands syscall to this file). */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/files/safe_open.h"

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);

static int refuses_with; /* errno of openat2; 0: the kernel's */
static int n_asked;

long __wrap_syscall(long number, ...)
{
    long a[4];
    va_list args;
    va_start(args, number);
    for (int i = 0; i < 4; i++)
        a[i] = va_arg(args, long);
    va_end(args);
    n_asked += number == SYS_openat2;
    if (number == SYS_openat2 && refuses_with != 0) {
        errno = refuses_with;
        return -1;
    }
    return __real_syscall(number, a[0], a[1], a[2], a[3]);
}

static char root[64];
static int root_fd;

static void expect(const char *name, int flags, int error)
{
    errno = 0;
    int fd = safe_open(root_fd, name, flags, 0);
    if ((fd < 0) != (error != 0) || (fd < 0 && errno != error))
        fail_msg("'%s': %s, expected %s", name, strerror(errno), strerror(error));
    if (fd < 0)
        return;
    assert_true((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    close(fd);
}

static void make(void)
{
    strcpy(root, "/tmp/embd-below-XXXXXX");
    assert_non_null(mkdtemp(root));
    root_fd = open(root, O_RDONLY | O_DIRECTORY);
    assert_true(root_fd >= 0);
    assert_int_equal(mkdirat(root_fd, "folder", 0700), 0);
    assert_int_equal(mkfifoat(root_fd, "fifo", 0600), 0);
    assert_int_equal(symlinkat("file", root_fd, "link"), 0);
    assert_int_equal(symlinkat("/dev/null", root_fd, "outside"), 0);
    assert_int_equal(symlinkat("folder", root_fd, "linked"), 0);
}

static void drop(void)
{
    static const char *const names[] = {"file", "fifo", "link", "outside", "linked"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_int_equal(unlinkat(root_fd, names[i], 0), 0);
    assert_int_equal(unlinkat(root_fd, "folder", AT_REMOVEDIR), 0);
    close(root_fd);
    assert_int_equal(rmdir(root), 0);
}

static void check_all(void)
{
    struct stat st;
    make();
    expect("file", O_RDONLY, ENOENT);
    int fd = safe_open(root_fd, "file", O_WRONLY | O_CREAT | O_EXCL, 0640);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_mode & 0137, 0);
    assert_int_equal(write(fd, "x", 1), 1);
    close(fd);
    expect("file", O_WRONLY | O_CREAT | O_EXCL, EEXIST);
    expect("file", O_RDWR, 0);
    expect("folder", O_RDONLY | O_DIRECTORY, 0);
    expect("folder", O_RDONLY, EINVAL);
    expect("fifo", O_RDONLY, EINVAL);
    expect("fifo", O_RDWR, EINVAL);
    expect("fifo", O_WRONLY, ENXIO);
    expect("link", O_RDONLY, ELOOP);
    expect("outside", O_RDWR, ELOOP);
    expect("linked", O_RDONLY | O_DIRECTORY, ENOTDIR);
    expect("../x", O_RDONLY, EXDEV);
    expect("..", O_RDONLY | O_DIRECTORY, EXDEV);
    expect("/etc/passwd", O_RDONLY, EXDEV);
    drop();
}

static void what_openat2_opens_is_right_below(void **state)
{
    (void)state;
    if (syscall(SYS_openat2, -1, "", NULL, 0) < 0 && errno == ENOSYS)
        skip();
    refuses_with = n_asked = 0;
    check_all();
    assert_true(n_asked > 10);
}

static void so_is_it_where_there_is_no_openat2(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        refuses_with = i == 0 ? ENOSYS : EPERM;
        n_asked = 0;
        check_all();
        assert_true(n_asked > 10);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_openat2_opens_is_right_below),
        cmocka_unit_test(so_is_it_where_there_is_no_openat2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
