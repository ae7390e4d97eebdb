/* stream.c - a file read from front to back through one buffer.
 *
 * Plain reads rather than a mapping: a file that is cut short while it is read then is an end, and
 * not a signal. The buffer is small enough to stay in the cache and at least twice the window, so
 * that moving the rest of it to the front is rare. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/data/stream.h"

#define BUFFER_BYTES (256u << 10)

int embd__stream_init(struct stream *s, size_t window, struct embd__error *e)
{
    size_t capacity = 2 * window > BUFFER_BYTES ? 2 * window : BUFFER_BYTES;
    *s = (struct stream){.fd = -1, .buffer = malloc(capacity), .capacity = capacity};
    if (s->buffer == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for a buffer of %zu bytes", capacity);
    return EMBD_OK;
}

void embd__stream_fini(struct stream *s)
{
    embd__stream_close(s);
    free(s->buffer);
    s->buffer = NULL;
}

/* Not blocking: opening a FIFO would wait for its writer. Reads of regular files do not care. */
int embd__regular_open(const char *path, struct embd__error *e)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return embd__error_set(e, EMBD_IO, "%s: cannot open: %s", path, strerror(errno));
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        return fd;
    close(fd);
    return embd__error_set(e, EMBD_IO, "%s: is not a regular file", path);
}

int embd__stream_open(struct stream *s, const char *path, uint64_t offset, struct embd__error *e)
{
    int fd = embd__regular_open(path, e);
    if (fd < 0)
        return e->status;
    if (lseek(fd, (off_t)offset, SEEK_SET) < 0) {
        close(fd);
        return embd__error_set(e, EMBD_IO, "%s: is not a regular file", path);
    }
    posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    s->fd = fd;
    s->path = path;
    s->begin = s->end = 0;
    s->at_end = false;
    return EMBD_OK;
}

void embd__stream_close(struct stream *s)
{
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
}

static int read_some(struct stream *s, struct embd__error *e)
{
    ssize_t n = read(s->fd, s->buffer + s->end, s->capacity - s->end);
    if (n < 0 && errno == EINTR)
        return EMBD_OK;
    if (n < 0)
        return embd__error_set(e, EMBD_IO, "%s: cannot read: %s", s->path, strerror(errno));
    s->end += (size_t)n;
    s->at_end = n == 0;
    return EMBD_OK;
}

int embd__stream_want(struct stream *s, size_t n, struct embd__error *e)
{
    int status = EMBD_OK;
    if (embd__stream_available(s) >= n)
        return EMBD_OK;
    memmove(s->buffer, embd__stream_bytes(s), embd__stream_available(s));
    s->end -= s->begin;
    s->begin = 0;
    while (status == EMBD_OK && s->end < n && !s->at_end)
        status = read_some(s, e);
    return status;
}
