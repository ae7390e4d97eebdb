/* plainfile.c - see plainfile.h. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "proto/stored/plainfile.h"

char *embd__plain_path(const char *directory, const char *name, struct embd__error *e)
{
    size_t bytes = strlen(directory) + strlen(name) + 2;
    char *path = malloc(bytes);
    if (!path) {
        embd__error_set(e, EMBD_NO_MEMORY, "no memory for the path of %s", name);
        return NULL;
    }
    snprintf(path, bytes, "%s/%s", directory, name);
    return path;
}

/* Not blocking: opening a FIFO would wait for its writer. Reads of regular files do not care. */
static int open_regular(struct plain_file *file, struct embd__error *e)
{
    struct stat st;
    file->fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file->fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return embd__error_set(e, EMBD_CORRUPT, "%s: is missing", file->path);
    if (file->fd < 0)
        return embd__error_set(e, EMBD_IO, "%s: cannot open: %s", file->path, strerror(errno));
    if (fstat(file->fd, &st))
        return embd__error_set(e, EMBD_IO, "%s: cannot stat: %s", file->path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return embd__error_set(e, EMBD_CORRUPT, "%s: is not a regular file", file->path);
    file->bytes = (uint64_t)st.st_size;
    (void)posix_fadvise(file->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    return EMBD_OK;
}

int embd__plain_open(struct plain_file *file, const char *directory, const char *name,
                     struct embd__error *e)
{
    *file = (struct plain_file){.fd = -1};
    if (directory)
        file->path = embd__plain_path(directory, name, e);
    else if (!(file->path = strdup(name)))
        embd__error_set(e, EMBD_NO_MEMORY, "no memory for the path of %s", name);
    if (!file->path || open_regular(file, e))
        embd__plain_close(file);
    return e->status;
}

int embd__plain_read(const struct plain_file *file, uint64_t at, void *to, uint64_t bytes,
                     struct embd__error *e)
{
    for (uint64_t done = 0; done < bytes;) {
        ssize_t n = pread(file->fd, (uint8_t *)to + done, bytes - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return embd__error_set(e, EMBD_IO, "%s: cannot read: %s", file->path, strerror(errno));
        if (n == 0)
            return embd__error_set(e, EMBD_CORRUPT,
                                   "%s: ends at byte %" PRIu64 ", it had %" PRIu64
                                   " when it was opened",
                                   file->path, at + done, file->bytes);
        done += (uint64_t)n;
    }
    return EMBD_OK;
}

static int read_checked(const struct plain_file *file, uint64_t xxh3, uint8_t *to,
                        struct embd__error *e)
{
    if (embd__plain_read(file, 0, to, file->bytes, e))
        return e->status;
    uint64_t found = XXH3_64bits(to, (size_t)file->bytes);
    if (found == xxh3)
        return EMBD_OK;
    return embd__error_set(e, EMBD_CORRUPT,
                           "%s: has the checksum %016" PRIx64 ", the manifest says %016" PRIx64,
                           file->path, found, xxh3);
}

uint8_t *embd__plain_load(const char *directory, const char *name, uint64_t bytes, uint64_t xxh3,
                          struct embd__error *e)
{
    struct plain_file file;
    uint8_t *data = NULL;
    if (embd__plain_open(&file, directory, name, e))
        return NULL;
    if (file.bytes != bytes)
        embd__error_set(e, EMBD_CORRUPT, "%s: has %" PRIu64 " bytes, the manifest says %" PRIu64,
                        file.path, file.bytes, bytes);
    else if (!(data = malloc((size_t)bytes + 1)))
        embd__error_set(e, EMBD_NO_MEMORY, "%s: no memory for its %" PRIu64 " bytes", file.path,
                        bytes);
    else if (read_checked(&file, xxh3, data, e) == EMBD_OK)
        data[bytes] = '\0';
    embd__plain_close(&file);
    if (e->status) {
        free(data);
        data = NULL;
    }
    return data;
}

void embd__plain_close(struct plain_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    free(file->path);
    *file = (struct plain_file){.fd = -1};
}
