/* secret.c - see secret.h. */
#include "proto/tls/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int check_mode(const struct stat *found, const char *path, const char *what,
                      struct embd__error *e)
{
    if ((found->st_mode & (S_IRWXO | S_IWGRP | S_IXGRP)) == 0)
        return EMBD_OK;
    return embd__error_set(e, EMBD_INVALID,
                           "%.200s: has mode %04o; others could use the %s, expected 0600 or 0640",
                           path, (unsigned)(found->st_mode & 07777), what);
}

int embd__secret_check(const char *path, const char *what, struct embd__error *e)
{
    struct stat found;
    if (stat(path, &found) != 0)
        return embd__error_set(e, EMBD_INVALID, "%.200s: cannot read the %s: %s", path, what,
                               strerror(errno));
    return check_mode(&found, path, what, e);
}

/* Until the file ends: a pipe may give it in pieces. */
static ssize_t read_all(int fd, char *out, size_t size)
{
    size_t n = 0;
    while (n < size) {
        ssize_t got = read(fd, out + n, size - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        n += (size_t)got;
    }
    return (ssize_t)n;
}

static int read_checked(int fd, const char *path, const char *what, char *out, size_t size,
                        size_t *n_out, struct embd__error *e)
{
    struct stat found;
    if (fstat(fd, &found) == 0 && S_ISREG(found.st_mode) &&
        check_mode(&found, path, what, e) != EMBD_OK)
        return e->status;
    ssize_t n = read_all(fd, out, size - 1);
    if (n < 0)
        return embd__error_set(e, EMBD_INVALID, "%.200s: cannot read the %s: %s", path, what,
                               strerror(errno));
    out[n] = '\0';
    *n_out = (size_t)n;
    return EMBD_OK;
}

int embd__secret_read(const char *path, const char *what, char *out, size_t size, size_t *n_out,
                      struct embd__error *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return embd__error_set(e, EMBD_INVALID, "%.200s: cannot open the %s: %s", path, what,
                               strerror(errno));
    int status = read_checked(fd, path, what, out, size, n_out, e);
    close(fd);
    return status;
}
