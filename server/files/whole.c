/* whole.c - see whole.h. */
#include "server/files/whole.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "server/files/safe_open.h"

static int fail(const char *file, const char *what, struct embd__error *e)
{
    return embd__error_set(e, EMBD_IO, "snapshot '%s': cannot %s: %s", file, what, strerror(errno));
}

static int write_all(int fd, const char *file, const uint8_t *bytes, uint64_t left,
                     struct embd__error *e)
{
    while (left > 0) {
        ssize_t n = write(fd, bytes, left);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fail(file, "write", e);
        bytes += n;
        left -= (uint64_t)n;
    }
    return fsync(fd) == 0 ? EMBD_OK : fail(file, "sync", e);
}

int whole_write(int dir, const char *file, const void *bytes, uint64_t n, struct embd__error *e)
{
    int fd = safe_open(dir, file, O_WRONLY | O_CREAT | O_EXCL, 0644);
    if (fd < 0)
        return fail(file, "create", e);
    write_all(fd, file, bytes, n, e);
    if (close(fd) != 0)
        fail(file, "close", e);
    return e->status;
}
