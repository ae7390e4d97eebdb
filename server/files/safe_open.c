/* safe_open.c - see safe_open.h.
 *
 * Names are checked where they come from, and have no slash; that openat2 follows no link and does
 * not leave the directory holds for whatever name comes here. Where a kernel does not have it, or a
 * filter of system calls does not know it, openat does the same for names without a slash. */
#include "server/files/safe_open.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int open_it(int dir, const char *name, int flags, unsigned mode)
{
    struct open_how how = {
        .flags = (unsigned)flags,
        .mode = mode,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    long fd = syscall(SYS_openat2, dir, name, &how, sizeof how);
    if (fd >= 0 || (errno != ENOSYS && errno != EPERM))
        return (int)fd;
    if (strchr(name, '/') != NULL || strcmp(name, "..") == 0) {
        errno = EXDEV;
        return -1;
    }
    return openat(dir, name, flags, mode);
}

int safe_open(int dir, const char *name, int flags, unsigned mode)
{
    struct stat st;
    int fd = open_it(dir, name, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, mode);
    if (fd < 0 || (flags & O_DIRECTORY) != 0)
        return fd;
    int error = fstat(fd, &st) != 0 ? errno : S_ISREG(st.st_mode) ? 0 : EINVAL;
    if (error == 0)
        return fd;
    close(fd);
    errno = error;
    return -1;
}
