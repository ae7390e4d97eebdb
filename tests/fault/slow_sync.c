/* slow_sync.c - a disk whose syncs take EMBD_SYNC_MS milliseconds longer: loaded before libc. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int fdatasync(int fd)
{
    const char *ms = getenv("EMBD_SYNC_MS");
    long n = ms != NULL ? atol(ms) : 0;
    const struct timespec longer = {n / 1000, n % 1000 * 1000000};
    nanosleep(&longer, NULL);
    return (int)syscall(SYS_fdatasync, fd);
}
