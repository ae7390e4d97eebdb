/* slow_sync.c - a disk whose syncs take EMBD_SYNC_MS milliseconds longer, and those that fsync asks
 * for, which end files and directories of snapshots, EMBD_FSYNC_MS: loaded before libc. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void rest(const char *variable)
{
    const char *ms = getenv(variable);
    long n = ms != NULL ? atol(ms) : 0;
    const struct timespec longer = {n / 1000, n % 1000 * 1000000};
    nanosleep(&longer, NULL);
}

int fdatasync(int fd)
{
    rest("EMBD_SYNC_MS");
    return (int)syscall(SYS_fdatasync, fd);
}

int fsync(int fd)
{
    rest("EMBD_FSYNC_MS");
    return (int)syscall(SYS_fsync, fd);
}
