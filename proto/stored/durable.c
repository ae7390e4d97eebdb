/* durable.c - files and directories that are complete on disk or do not exist.
 *
 * The happy path is embd__durable_stage, then create, write and finish for each file, then
 * embd__durable_publish. Every system call can fail: a full disk shows in write or fsync, an
 * existing target in stage, or in publish if another process was faster. The caller then calls
 * embd__durable_discard and nothing is left. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "proto/stored/durable.h"
#include "proto/stored/plainfile.h"

/* Bytes after which the kernel is asked to begin writing them out, so that the final fsync waits
 * for little. */
#define FLUSH_BYTES (32u << 20)
#define PIECES_MAX  64

static int fail(struct embd__error *e, const char *path, const char *what)
{
    return embd__error_set(e, EMBD_IO, "%s: %s: %s", path, what, strerror(errno));
}

/* ---- files ---- */

int embd__durable_create(struct durable_file *file, const char *directory, const char *name,
                         struct embd__error *e)
{
    if (embd__durable_create_plain(file, directory, name, e))
        return e->status;
    file->hash = XXH3_createState();
    if (!file->hash)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for the checksum of %s", file->path);
    XXH3_64bits_reset(file->hash);
    return EMBD_OK;
}

int embd__durable_create_plain(struct durable_file *file, const char *directory, const char *name,
                               struct embd__error *e)
{
    *file = (struct durable_file){.fd = -1};
    file->path = embd__plain_path(directory, name, e);
    if (!file->path)
        return e->status;
    file->fd = open(file->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (file->fd < 0)
        return fail(e, file->path, "cannot create");
    return EMBD_OK;
}

/* Drops `written` bytes from the front of the list. */
static void advance(struct iovec **list, int *n, size_t written)
{
    while (*n > 0 && written >= (*list)->iov_len) {
        written -= (*list)->iov_len;
        (*list)++;
        (*n)--;
    }
    if (*n > 0) {
        (*list)->iov_base = (uint8_t *)(*list)->iov_base + written;
        (*list)->iov_len -= written;
    }
}

static int write_list(struct durable_file *file, struct iovec *list, int n, struct embd__error *e)
{
    while (n > 0) {
        ssize_t written = writev(file->fd, list, n);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return fail(e, file->path, "cannot write");
        file->bytes += (uint64_t)written;
        advance(&list, &n, (size_t)written);
    }
    return EMBD_OK;
}

/* A hint; fsync reports errors on the way to the disk. */
void embd__durable_flush(struct durable_file *file)
{
    uint64_t waiting = file->bytes - file->flushing;
    (void)sync_file_range(file->fd, (off_t)file->flushing, (off_t)waiting, SYNC_FILE_RANGE_WRITE);
    file->flushing = file->bytes;
}

int embd__durable_write(struct durable_file *file, const struct msg_piece *pieces,
                        uint32_t n_pieces, struct embd__error *e)
{
    struct iovec list[PIECES_MAX];
    int n = 0;
    for (uint32_t i = 0; i < n_pieces; i++) {
        if (pieces[i].bytes == 0)
            continue;
        if (file->hash)
            XXH3_64bits_update(file->hash, pieces[i].data, pieces[i].bytes);
        list[n++] = (struct iovec){.iov_base = (void *)(uintptr_t)pieces[i].data,
                                   .iov_len = pieces[i].bytes};
        if (n == PIECES_MAX) {
            if (write_list(file, list, n, e))
                return e->status;
            n = 0;
        }
    }
    if (write_list(file, list, n, e))
        return e->status;
    if (file->bytes - file->flushing >= FLUSH_BYTES)
        embd__durable_flush(file);
    return EMBD_OK;
}

int embd__durable_finish(struct durable_file *file, struct embd__error *e)
{
    file->xxh3 = file->hash ? XXH3_64bits_digest(file->hash) : 0;
    if (fsync(file->fd))
        return fail(e, file->path, "cannot sync");
    int closed = close(file->fd);
    file->fd = -1;
    return closed ? fail(e, file->path, "cannot close") : EMBD_OK;
}

void embd__durable_fini(struct durable_file *file)
{
    if (!file->path)
        return;
    if (file->fd >= 0)
        close(file->fd);
    XXH3_freeState(file->hash);
    free(file->path);
    *file = (struct durable_file){.fd = -1};
}

/* ---- directories ---- */

static int sync_directory(const char *path, struct embd__error *e)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return fail(e, path, "cannot open");
    int failed = fsync(fd);
    if (failed)
        fail(e, path, "cannot sync the directory");
    close(fd);
    return failed ? e->status : EMBD_OK;
}

static int refuse_existing(const char *target, struct embd__error *e)
{
    return embd__error_set(e, EMBD_EXISTS,
                           "%s exists; name a directory that does not, or remove it first", target);
}

int embd__durable_stage(const char *target, char **staged_out, struct embd__error *e)
{
    struct stat st;
    if (!target[0])
        return embd__error_set(e, EMBD_INVALID, "the name of the directory is empty");
    if (lstat(target, &st) == 0)
        return refuse_existing(target, e);
    size_t bytes = strlen(target) + 32, n = strlen(target);
    while (n > 1 && target[n - 1] == '/')
        n--;
    char *staged = malloc(bytes);
    if (!staged)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for the path of %s", target);
    snprintf(staged, bytes, "%.*s.tmp-%ld", (int)n, target, (long)getpid());
    if (mkdir(staged, 0777)) {
        fail(e, staged,
             errno == EEXIST ? "is left from an earlier dump, or another thread writes it"
                             : "cannot create the directory");
        free(staged);
        return e->status;
    }
    *staged_out = staged;
    return EMBD_OK;
}

static int sync_parent(const char *path, struct embd__error *e)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    while (n > 0 && path[n - 1] != '/')
        n--;
    char *parent = n ? strndup(path, n) : strdup(".");
    if (!parent)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for the parent of %s", path);
    sync_directory(parent, e);
    free(parent);
    return e->status;
}

/* rename() would replace an empty directory; not every file system knows how not to. */
static int rename_new(const char *from, const char *to)
{
    int failed = renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE);
    if (failed && (errno == EINVAL || errno == ENOSYS))
        failed = rename(from, to);
    return failed;
}

int embd__durable_publish(const char *staged, const char *target, struct embd__error *e)
{
    if (sync_directory(staged, e))
        return e->status;
    if (rename_new(staged, target)) {
        if (errno == EEXIST || errno == ENOTEMPTY)
            return refuse_existing(target, e);
        return fail(e, target, "cannot rename the finished directory to this name");
    }
    return sync_parent(target, e);
}

int embd__durable_publish_file(const char *staged, const char *name, const char *target,
                               struct embd__error *e)
{
    char *from = embd__plain_path(staged, name, e);
    if (from && rename_new(from, target)) {
        if (errno == EEXIST)
            embd__error_set(e, EMBD_EXISTS, "%s exists; remove it first", target);
        else
            fail(e, target, "cannot rename the finished file to this name");
    }
    free(from);
    return e->status;
}

void embd__durable_discard(const char *staged)
{
    DIR *list = opendir(staged);
    if (!list)
        return;
    for (struct dirent *entry; (entry = readdir(list)) != NULL;)
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
            unlinkat(dirfd(list), entry->d_name, 0);
    closedir(list);
    rmdir(staged);
}
