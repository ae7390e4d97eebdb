/* failing.c - loaded before libc (LD_PRELOAD) into the programs as they are shipped: the N-th
 * passing of a named step fails. So nothing of this is compiled into the product, and a step that
 * somebody adds has its name from its first day.
 *
 *   EMBD_FAILPOINT=NAME:KIND:N   N from 1; 0: every passing
 *   EMBD_FAILPOINT_DIR=DIRECTORY whose files it is about
 *   EMBD_FAILPOINT_LOG=FILE      every step that is passed, a name a line
 *
 * A name is what kind of file it is and what happens to it: part.write, directory.sync,
 * journal.open. socket.read, socket.write and socket.accept are of any socket, others of sockets,
 * threads and names in failing_net.c; `memory.take` is an allocation by embd's own code, in the
 * program or in libembd, `memory.lend` one by a library: OpenSSL, msgpack-c, jansson, libyaml;
 * `memory.loop` one by libuv, which calls abort where it has no memory for a descriptor.
 *
 * N+K: then again every K-th passing.
 *
 * KIND, of which a step does what it can:
 *   eio, enospc, enomem, emfile, eagain, eintr, refused
 *                         it fails and has not happened
 *   abort                 the process dies before it, as by kill -9
 *   torn                  half of what is written is, then the process dies
 *   skip                  it says it has happened and has not
 *   late                  it says it has happened, and does 50 ms later */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/fault/failing.h"

static const struct {
    const char *name;
    enum kind kind;
    int error;
} kinds[] = {
    {"eio", FAIL, EIO},
    {"enospc", FAIL, ENOSPC},
    {"enomem", FAIL, ENOMEM},
    {"emfile", FAIL, EMFILE},
    {"eagain", FAIL, EAGAIN},
    {"eintr", FAIL, EINTR},
    {"abort", ABORT, 0},
    {"torn", TORN, 0},
    {"skip", SKIP, 0},
    {"late", LATE, 0},
    {"refused", FAIL, ECONNREFUSED},
};
enum { KINDS = sizeof kinds / sizeof *kinds, LATE_US = 50000 };

static char wanted[64], directory[PATH_MAX];
static enum kind wanted_kind;
static int wanted_error;
static unsigned long wanted_number, wanted_period;
static atomic_ulong n_passed;
static int log_fd = -1;

/* ---- what is asked for ---- */

struct range {
    uintptr_t begin, end;
    const char *step;
};
static struct range code[16];
static unsigned n_code;

/* The program itself, whose name is empty here, and libembd; and the libraries they use, but not
 * those that these use. */
static int note_code(struct dl_phdr_info *info, size_t bytes, void *arg)
{
    static const struct {
        const char *name, *step;
    } known[] = {
        {"libembd.so", "memory.take"},   {"libuv.", "memory.loop"},
        {"libssl.", "memory.lend"},      {"libcrypto.", "memory.lend"},
        {"libmsgpackc.", "memory.lend"}, {"libjansson.", "memory.lend"},
        {"libyaml", "memory.lend"},
    };
    const char *step = *info->dlpi_name == '\0' ? "memory.take" : NULL;
    (void)bytes;
    (void)arg;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strstr(info->dlpi_name, known[i].name) != NULL)
            step = known[i].step;
    for (int i = 0; step != NULL && i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        uintptr_t at = info->dlpi_addr + header->p_vaddr;
        if (header->p_type == PT_LOAD && (header->p_flags & PF_X) != 0 &&
            n_code < sizeof code / sizeof *code)
            code[n_code++] = (struct range){at, at + header->p_memsz, step};
    }
    return 0;
}

static void die(const char *why)
{
    fprintf(stderr, "failing.c: %s\n", why);
    _exit(99);
}

static void read_point(const char *text)
{
    char kind[16] = "";
    if (sscanf(text, "%63[^:]:%15[^:]:%lu+%lu", wanted, kind, &wanted_number, &wanted_period) < 3)
        die("EMBD_FAILPOINT is not NAME:KIND:N or NAME:KIND:N+K");
    for (int i = 0; i < KINDS; i++)
        if (strcmp(kind, kinds[i].name) == 0) {
            wanted_kind = kinds[i].kind;
            wanted_error = kinds[i].error;
        }
    if (wanted_kind == NOTHING)
        die("EMBD_FAILPOINT names no KIND that there is");
}

__attribute__((constructor)) static void begin(void)
{
    const char *point = getenv("EMBD_FAILPOINT"), *log = getenv("EMBD_FAILPOINT_LOG");
    const char *dir = getenv("EMBD_FAILPOINT_DIR");
    if (dir == NULL || realpath(dir, directory) == NULL)
        die("EMBD_FAILPOINT_DIR is no directory");
    if (log != NULL)
        log_fd = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC,
                              0600);
    if (point != NULL)
        read_point(point);
    dl_iterate_phdr(note_code, NULL);
}

/* ---- passing ---- */

enum kind pass(const char *name)
{
    char line[80];
    int saved = errno;
    if (log_fd >= 0) {
        int n = snprintf(line, sizeof line, "%s\n", name);
        (void)!syscall(SYS_write, log_fd, line, (size_t)n);
    }
    errno = saved;
    if (strcmp(name, wanted) != 0)
        return NOTHING;
    unsigned long number = atomic_fetch_add(&n_passed, 1) + 1;
    bool is_again = wanted_period != 0 && number > wanted_number &&
                    (number - wanted_number) % wanted_period == 0;
    if (wanted_number != 0 && number != wanted_number && !is_again)
        return NOTHING;
    if (wanted_kind == ABORT)
        raise(SIGKILL);
    return wanted_kind;
}

bool fails(enum kind kind)
{
    if (kind == FAIL)
        errno = wanted_error;
    return kind == FAIL;
}

/* ---- names ---- */

static const char *file_kind(const char *path, bool is_directory)
{
    const char *name = strrchr(path, '/') + 1;
    size_t n = strlen(name);
    if (is_directory)
        return "directory";
    if (strncmp(name, "journal", 7) == 0)
        return "journal";
    if (strncmp(name, "identity", 8) == 0)
        return "identity";
    if (strncmp(name, "manifest", 8) == 0)
        return "manifest";
    if (n > 5 && strcmp(name + n - 5, ".part") == 0)
        return "part";
    if (n > 5 && strcmp(name + n - 5, ".blob") == 0)
        return "blob";
    return "file";
}

/* What happens to an absolute path: nothing for those that are none of ours. */
static enum kind pass_path(const char *path, bool is_directory, const char *step)
{
    char name[64];
    size_t n = strlen(directory);
    if (n == 0 || strncmp(path, directory, n) != 0 || (path[n] != '/' && path[n] != '\0'))
        return NOTHING;
    snprintf(name, sizeof name, "%s.%s", file_kind(path, is_directory), step);
    return pass(name);
}

static enum kind pass_link(const char *link, const char *step)
{
    char name[64];
    if (strncmp(link, "socket:", 7) != 0)
        return NOTHING;
    snprintf(name, sizeof name, "socket.%s", step);
    return pass(name);
}

/* What /proc calls it; false where that is no path. */
static bool path_of(int fd, char out[PATH_MAX])
{
    char link[64];
    int saved = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    long n = syscall(SYS_readlinkat, AT_FDCWD, link, out, PATH_MAX - 1);
    out[n < 0 ? 0 : n] = '\0';
    errno = saved;
    return n > 0 && out[0] == '/';
}

enum kind pass_fd(int fd, const char *step)
{
    char path[PATH_MAX];
    struct stat st;
    if (directory[0] == '\0')
        return NOTHING;
    if (!path_of(fd, path))
        return pass_link(path, step);
    if (strncmp(path, directory, strlen(directory)) != 0)
        return NOTHING;
    bool is_directory = syscall(SYS_fstat, fd, &st) == 0 && S_ISDIR(st.st_mode);
    return pass_path(path, is_directory, step);
}

static enum kind pass_at(int dir, const char *name, bool is_directory, const char *step)
{
    char base[PATH_MAX], path[2 * PATH_MAX + 2];
    if (directory[0] == '\0')
        return NOTHING;
    if (*name == '/')
        return pass_path(name, is_directory, step);
    if (dir == AT_FDCWD || !path_of(dir, base))
        return NOTHING;
    snprintf(path, sizeof path, "%s/%s", base, name);
    return pass_path(path, is_directory, step);
}

/* ---- steps of files ---- */

static int open_any(int dir, const char *name, int flags, mode_t mode)
{
    const char *step = (flags & O_CREAT) != 0 ? "create" : "open";
    if (fails(pass_at(dir, name, (flags & O_DIRECTORY) != 0, step)))
        return -1;
    return (int)syscall(SYS_openat, dir, name, flags, mode);
}

static mode_t mode_of(int flags, va_list args)
{
    return (flags & (O_CREAT | __O_TMPFILE)) != 0 ? va_arg(args, mode_t) : 0;
}

int open(const char *name, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = mode_of(flags, args);
    va_end(args);
    return open_any(AT_FDCWD, name, flags, mode);
}

int openat(int dir, const char *name, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = mode_of(flags, args);
    va_end(args);
    return open_any(dir, name, flags, mode);
}

/* openat2 has no function of its own. What else is asked for so goes on to libc's, also from here.
 */
long syscall(long number, ...)
{
    static long (*real)(long, ...);
    long a[6];
    va_list args;
    va_start(args, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(args, long);
    va_end(args);
    if (number == SYS_openat2) {
        const struct open_how *how = (const struct open_how *)a[2];
        bool is_directory = (how->flags & O_DIRECTORY) != 0;
        const char *step = (how->flags & O_CREAT) != 0 ? "create" : "open";
        if (fails(pass_at((int)a[0], (const char *)a[1], is_directory, step)))
            return -1;
    }
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "syscall");
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

ssize_t read(int fd, void *to, size_t n)
{
    return fails(pass_fd(fd, "read")) ? -1 : syscall(SYS_read, fd, to, n);
}

ssize_t pread(int fd, void *to, size_t n, off_t at)
{
    return fails(pass_fd(fd, "read")) ? -1 : syscall(SYS_pread64, fd, to, n, at);
}

/* Written in a moment, by a thread that owns the bytes. */
struct late_write {
    int fd;
    off_t at;
    size_t n;
    uint8_t bytes[];
};

static void *write_late(void *arg)
{
    struct late_write *write = arg;
    usleep(LATE_US);
    (void)!syscall(SYS_pwrite64, write->fd, write->bytes, write->n, write->at);
    free(write);
    return NULL;
}

static ssize_t begin_late(int fd, const void *bytes, size_t n, off_t at)
{
    pthread_t thread;
    struct late_write *write = malloc(sizeof *write + n);
    if (write == NULL)
        die("no memory");
    *write = (struct late_write){.fd = fd, .at = at, .n = n};
    memcpy(write->bytes, bytes, n);
    if (pthread_create(&thread, NULL, write_late, write) != 0 || pthread_detach(thread) != 0)
        die("no thread");
    return (ssize_t)n;
}

static ssize_t write_at(int fd, const void *bytes, size_t n, off_t at)
{
    enum kind kind = pass_fd(fd, "write");
    if (fails(kind))
        return -1;
    if (kind == SKIP)
        return (ssize_t)n;
    if (kind == LATE && at >= 0)
        return begin_late(fd, bytes, n, at);
    size_t now = kind == TORN ? n / 2 : n;
    ssize_t written =
        at >= 0 ? syscall(SYS_pwrite64, fd, bytes, now, at) : syscall(SYS_write, fd, bytes, now);
    if (kind == TORN)
        raise(SIGKILL);
    return written;
}

ssize_t write(int fd, const void *bytes, size_t n)
{
    return write_at(fd, bytes, n, -1);
}

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at)
{
    return write_at(fd, bytes, n, at);
}

ssize_t writev(int fd, const struct iovec *list, int n)
{
    enum kind kind = pass_fd(fd, "write");
    ssize_t all = 0;
    if (fails(kind))
        return -1;
    for (int i = 0; i < n; i++)
        all += (ssize_t)list[i].iov_len;
    if (kind == SKIP)
        return all;
    if (kind == TORN) {
        (void)!syscall(SYS_write, fd, list[0].iov_base, list[0].iov_len / 2);
        raise(SIGKILL);
    }
    return syscall(SYS_writev, fd, list, n);
}

static int sync_any(int fd, long call)
{
    enum kind kind = pass_fd(fd, "sync");
    if (fails(kind))
        return -1;
    return kind == SKIP || kind == LATE ? 0 : (int)syscall(call, fd);
}

int fsync(int fd)
{
    return sync_any(fd, SYS_fsync);
}

int fdatasync(int fd)
{
    return sync_any(fd, SYS_fdatasync);
}

int fallocate(int fd, int mode, off_t offset, off_t n)
{
    return fails(pass_fd(fd, "reserve")) ? -1 : (int)syscall(SYS_fallocate, fd, mode, offset, n);
}

int ftruncate(int fd, off_t n)
{
    return fails(pass_fd(fd, "truncate")) ? -1 : (int)syscall(SYS_ftruncate, fd, n);
}

/* A hint that there will be a sync. */
int sync_file_range(int fd, off_t at, off_t n, unsigned flags)
{
    return fails(pass_fd(fd, "hint")) ? -1 : (int)syscall(SYS_sync_file_range, fd, at, n, flags);
}

int flock(int fd, int operation)
{
    return fails(pass_fd(fd, "lock")) ? -1 : (int)syscall(SYS_flock, fd, operation);
}

void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset)
{
    if (fd >= 0 && fails(pass_fd(fd, "map")))
        return MAP_FAILED;
    return (void *)syscall(SYS_mmap, at, n, protection, flags, fd, offset);
}

int close(int fd)
{
    bool failed = fails(pass_fd(fd, "close"));
    int saved = errno, status = (int)syscall(SYS_close, fd);
    if (!failed)
        return status;
    errno = saved;
    return -1;
}

/* ---- steps of names ---- */

int fstat(int fd, struct stat *st)
{
    return fails(pass_fd(fd, "stat")) ? -1 : (int)syscall(SYS_fstat, fd, st);
}

int fstatat(int dir, const char *name, struct stat *st, int flags)
{
    if (fails(pass_at(dir, name, false, "stat")))
        return -1;
    return (int)syscall(SYS_newfstatat, dir, name, st, flags);
}

int stat(const char *name, struct stat *st)
{
    return fstatat(AT_FDCWD, name, st, 0);
}

int lstat(const char *name, struct stat *st)
{
    return fstatat(AT_FDCWD, name, st, AT_SYMLINK_NOFOLLOW);
}

int mkdirat(int dir, const char *name, mode_t mode)
{
    return fails(pass_at(dir, name, true, "make")) ? -1
                                                   : (int)syscall(SYS_mkdirat, dir, name, mode);
}

int mkdir(const char *name, mode_t mode)
{
    return mkdirat(AT_FDCWD, name, mode);
}

int unlinkat(int dir, const char *name, int flags)
{
    enum kind kind = pass_at(dir, name, (flags & AT_REMOVEDIR) != 0, "remove");
    return fails(kind) ? -1 : (int)syscall(SYS_unlinkat, dir, name, flags);
}

int unlink(const char *name)
{
    return unlinkat(AT_FDCWD, name, 0);
}

int rmdir(const char *name)
{
    return unlinkat(AT_FDCWD, name, AT_REMOVEDIR);
}

static int rename_any(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    enum kind kind = pass_at(from_dir, from, true, "rename");
    if (fails(kind) || kind == SKIP)
        return kind == SKIP ? 0 : -1;
    return (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    return rename_any(from_dir, from, to_dir, to, flags);
}

int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    return rename_any(from_dir, from, to_dir, to, 0);
}

int rename(const char *from, const char *to)
{
    return rename_any(AT_FDCWD, from, AT_FDCWD, to, 0);
}

DIR *opendir(const char *name)
{
    static DIR *(*real)(const char *);
    if (fails(pass_at(AT_FDCWD, name, true, "list")))
        return NULL;
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "opendir");
    return real(name);
}

DIR *fdopendir(int fd)
{
    static DIR *(*real)(int);
    if (fails(pass_fd(fd, "list")))
        return NULL;
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "fdopendir");
    return real(fd);
}

struct dirent *readdir(DIR *list)
{
    static struct dirent *(*real)(DIR *);
    if (fails(pass_fd(dirfd(list), "read")))
        return NULL;
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "readdir");
    return real(list);
}

/* ---- memory ---- */

/* A sanitizer brings its own. */
#ifndef __SANITIZE_ADDRESS__

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

/* What runs before main is not embd's: the CUDA runtime, which lies in the program, registers
 * kernels then, and does not look at what it is given. */
static atomic_bool has_begun;
static int (*real_main)(int, char **, char **);

static int run_main(int argc, char **argv, char **environment)
{
    has_begun = true;
    return real_main(argc, argv, environment);
}

int __libc_start_main(int (*program)(int, char **, char **), int argc, char **argv,
                      void (*init)(void), void (*fini)(void), void (*rtld_fini)(void),
                      void *stack_end);
int __libc_start_main(int (*program)(int, char **, char **), int argc, char **argv,
                      void (*init)(void), void (*fini)(void), void (*rtld_fini)(void),
                      void *stack_end)
{
    int (*real)(int (*)(int, char **, char **), int, char **, void (*)(void), void (*)(void),
                void (*)(void), void *);
    *(void **)&real = dlsym(RTLD_NEXT, "__libc_start_main");
    real_main = program;
    return real(run_main, argc, argv, init, fini, rtld_fini, stack_end);
}

static bool fails_for(const void *caller)
{
    uintptr_t at = (uintptr_t)caller;
    for (unsigned i = 0; i < n_code && has_begun; i++)
        if (at >= code[i].begin && at < code[i].end)
            return fails(pass(code[i].step));
    return false;
}

void *malloc(size_t n)
{
    return fails_for(__builtin_return_address(0)) ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t bytes)
{
    return fails_for(__builtin_return_address(0)) ? NULL : __libc_calloc(n, bytes);
}

void *realloc(void *p, size_t n)
{
    return fails_for(__builtin_return_address(0)) ? NULL : __libc_realloc(p, n);
}

char *strdup(const char *text)
{
    size_t n = strlen(text) + 1;
    char *copy = fails_for(__builtin_return_address(0)) ? NULL : __libc_malloc(n);
    return copy == NULL ? NULL : memcpy(copy, text, n);
}

void *aligned_alloc(size_t alignment, size_t n)
{
    return fails_for(__builtin_return_address(0)) ? NULL : __libc_memalign(alignment, n);
}

#endif
