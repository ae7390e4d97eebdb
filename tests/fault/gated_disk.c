/* gated_disk.c - a disk that a test lets go on step by step: while EMBD_DISK_GATE, a directory, has
 * the file `closed`, each call that syncs, renames or removes (also the last close of a file that
 * has no name any more) leaves a file NUMBER.CALL there, and waits until that is gone. Loaded
 * before libc. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void wait_at_gate(const char *call)
{
    static atomic_int n;
    const char *gate = getenv("EMBD_DISK_GATE");
    char path[512];
    if (gate == NULL)
        return;
    snprintf(path, sizeof path, "%s/closed", gate);
    if (access(path, F_OK) != 0)
        return;
    snprintf(path, sizeof path, "%s/%d.%s", gate, atomic_fetch_add(&n, 1), call);
    syscall(SYS_close, syscall(SYS_openat, AT_FDCWD, path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    while (access(path, F_OK) == 0)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
}

int fdatasync(int fd)
{
    wait_at_gate("fdatasync");
    return (int)syscall(SYS_fdatasync, fd);
}

int fsync(int fd)
{
    wait_at_gate("fsync");
    return (int)syscall(SYS_fsync, fd);
}

int unlinkat(int dir, const char *name, int flags)
{
    wait_at_gate("unlinkat");
    return (int)syscall(SYS_unlinkat, dir, name, flags);
}

int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    wait_at_gate("renameat");
    return (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, 0);
}

/* Memory that a client shares is no disk's: it is sealed. */
static bool is_memory(int fd)
{
    int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
}

int close(int fd)
{
    struct stat st;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 0 && !is_memory(fd))
        wait_at_gate("close");
    return (int)syscall(SYS_close, fd);
}
