/* place_dir.c - backups in a directory. Files are as they are in a snapshot, so that embctl load
 * and embctl inspect read a backup's directory too. A file of one piece appears whole: it is
 * written under another name first. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/backup/place.h"
#include "embd/embd.h"

#define NEW   ".new"
#define DEPTH 3 /* BACKUP/SHARE/FILE */

struct place_dir {
    struct place base;
    int fd;     /* of the directory */
    int file;   /* being written, or -1 */
    char *path; /* of the directory */
};

static int fail(const struct place_dir *p, const char *name, const char *what,
                struct embd__error *e)
{
    return embd__error_set(e, EMBD_IO, "%s/%s: cannot %s: %s", p->path, name, what,
                           strerror(errno));
}

/* ---- writing ---- */

static int sync_directory_of(const struct place_dir *p, const char *name, struct embd__error *e)
{
    char parent[PLACE_NAME_BYTES];
    const char *slash = strrchr(name, '/');
    if (p->base.is_temporary)
        return EMBD_OK;
    snprintf(parent, sizeof parent, "%.*s", slash ? (int)(slash - name) : 1, slash ? name : ".");
    int fd = openat(p->fd, parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || fsync(fd) != 0)
        fail(p, parent, "sync", e);
    if (fd >= 0)
        close(fd);
    return e->status;
}

/* The directories in front of the file's name. */
static int make_parents(const struct place_dir *p, const char *name, struct embd__error *e)
{
    char parent[PLACE_NAME_BYTES];
    for (const char *at = strchr(name, '/'); at != NULL; at = strchr(at + 1, '/')) {
        snprintf(parent, sizeof parent, "%.*s", (int)(at - name), name);
        int failed = mkdirat(p->fd, parent, 0777);
        if (failed && errno != EEXIST)
            return fail(p, parent, "create", e);
        if (!failed && sync_directory_of(p, parent, e) != EMBD_OK)
            return e->status;
    }
    return EMBD_OK;
}

static int begin_file(struct place_dir *p, const char *name, const char *staged,
                      struct embd__error *e)
{
    if (p->file >= 0)
        close(p->file);
    if (make_parents(p, name, e) != EMBD_OK)
        return e->status;
    p->file = openat(p->fd, staged, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    return p->file >= 0 ? EMBD_OK : fail(p, staged, "create", e);
}

static int write_all(struct place_dir *p, const char *name, const uint8_t *data, size_t bytes,
                     struct embd__error *e)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = write(p->file, data + done, bytes - done);
        if (n < 0 && errno != EINTR)
            return fail(p, name, "write", e);
        done += n > 0 ? (size_t)n : 0;
    }
    /* a hint, so that the sync at the end waits for little; it reports errors */
    (void)sync_file_range(p->file, 0, 0, SYNC_FILE_RANGE_WRITE);
    return EMBD_OK;
}

static int finish_file(struct place_dir *p, const char *name, const char *staged,
                       struct embd__error *e)
{
    if (!p->base.is_temporary && fsync(p->file) != 0)
        fail(p, name, "sync", e);
    if (close(p->file) != 0)
        fail(p, name, "close", e);
    p->file = -1;
    if (e->status == EMBD_OK && renameat(p->fd, staged, p->fd, name) != 0)
        fail(p, name, "rename the finished file to this name", e);
    return e->status == EMBD_OK ? sync_directory_of(p, name, e) : e->status;
}

static int put(struct place *place, const char *name, uint32_t piece, bool is_last,
               const void *data, size_t bytes, struct embd__error *e)
{
    struct place_dir *p = (struct place_dir *)place;
    char staged[PLACE_NAME_BYTES + sizeof NEW];
    snprintf(staged, sizeof staged, "%s" NEW, name);
    if (piece == 0 && begin_file(p, name, staged, e) != EMBD_OK)
        return e->status;
    if (write_all(p, name, data, bytes, e) != EMBD_OK)
        return e->status;
    return is_last ? finish_file(p, name, staged, e) : EMBD_OK;
}

/* ---- reading ---- */

/* -1 and errno ENOENT: there is no such file. */
static int open_file(const struct place_dir *p, const char *name, uint64_t *bytes_out,
                     struct embd__error *e)
{
    struct stat st;
    int fd = openat(p->fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR)) {
        errno = ENOENT;
        return -1;
    }
    if (fd < 0 || fstat(fd, &st) != 0) {
        fail(p, name, "open", e);
    } else if (!S_ISREG(st.st_mode)) {
        embd__error_set(e, EMBD_CORRUPT, "%s/%s: is not a regular file", p->path, name);
    } else {
        *bytes_out = (uint64_t)st.st_size;
        return fd;
    }
    if (fd >= 0)
        close(fd);
    return -1;
}

static int read_at(const struct place_dir *p, const char *name, int fd, uint64_t at, uint8_t *to,
                   size_t bytes, struct embd__error *e)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pread(fd, to + done, bytes - done, (off_t)(at + done));
        if (n < 0 && errno != EINTR)
            return fail(p, name, "read", e);
        if (n == 0)
            return embd__error_set(e, EMBD_CORRUPT, "%s/%s: became shorter while it was read",
                                   p->path, name);
        done += n > 0 ? (size_t)n : 0;
    }
    return EMBD_OK;
}

static int get(struct place *place, const char *name, uint32_t piece, uint64_t file_bytes, void *to,
               struct embd__error *e)
{
    const struct place_dir *p = (const struct place_dir *)place;
    uint64_t bytes = 0;
    int fd = open_file(p, name, &bytes, e);
    if (fd < 0)
        return embd__error_set(e, EMBD_CORRUPT, "%s/%s: does not exist", p->path, name);
    if (bytes != file_bytes)
        embd__error_set(e, EMBD_CORRUPT, "%s/%s: has %llu bytes, the backup has %llu", p->path,
                        name, (unsigned long long)bytes, (unsigned long long)file_bytes);
    else
        read_at(p, name, fd, (uint64_t)piece * PLACE_PIECE_BYTES, to,
                place_piece_bytes(file_bytes, piece), e);
    close(fd);
    return e->status;
}

static void *read_whole(struct place *place, const char *name, size_t *bytes_out,
                        struct embd__error *e)
{
    const struct place_dir *p = (const struct place_dir *)place;
    uint64_t bytes = 0;
    uint8_t *data = NULL;
    int fd = open_file(p, name, &bytes, e);
    if (fd < 0)
        return NULL;
    if (bytes > PLACE_PIECE_BYTES)
        embd__error_set(e, EMBD_CORRUPT, "%s/%s: has %llu bytes, the limit is %u", p->path, name,
                        (unsigned long long)bytes, PLACE_PIECE_BYTES);
    else if ((data = malloc((size_t)bytes + 1)) == NULL)
        embd__error_set(e, EMBD_NO_MEMORY, "no memory for %s/%s", p->path, name);
    else if (read_at(p, name, fd, 0, data, (size_t)bytes, e) == EMBD_OK)
        data[bytes] = 0;
    close(fd);
    *bytes_out = (size_t)bytes;
    if (e->status == EMBD_OK)
        return data;
    free(data);
    return NULL;
}

/* ---- listing and removing ---- */

struct walk {
    const struct place_dir *p;
    place_visit *visit;
    void *arg;
    struct embd__error *e;
};

static int walk_directory(const struct walk *w, const char *name, int depth);

static int walk_entry(const struct walk *w, const char *name, int depth)
{
    struct stat st;
    if (!place_is_name(name) || fstatat(w->p->fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return 0;
    if (S_ISDIR(st.st_mode))
        return depth < DEPTH ? walk_directory(w, name, depth) : 0;
    return S_ISREG(st.st_mode) && depth > 1 ? w->visit(w->arg, name) : 0;
}

/* `name`: "": the place itself. */
static int walk_directory(const struct walk *w, const char *name, int depth)
{
    char child[PLACE_NAME_BYTES * 2 + 2];
    int stop = 0, fd = openat(w->p->fd, name[0] ? name : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    if (list == NULL) {
        fail(w->p, name, "list", w->e);
        if (fd >= 0)
            close(fd);
        return w->e->status;
    }
    errno = 0;
    for (struct dirent *entry; !stop && (entry = readdir(list)) != NULL; errno = 0) {
        snprintf(child, sizeof child, "%s%s%s", name, name[0] ? "/" : "", entry->d_name);
        stop = walk_entry(w, child, depth + 1);
    }
    if (!stop && errno != 0)
        stop = fail(w->p, name, "list", w->e);
    closedir(list);
    return stop;
}

static int list_files(struct place *place, place_visit *visit, void *arg, struct embd__error *e)
{
    const struct walk w = {(const struct place_dir *)place, visit, arg, e};
    return walk_directory(&w, "", 0);
}

static int remove_file(struct place *place, const char *name, struct embd__error *e)
{
    const struct place_dir *p = (const struct place_dir *)place;
    char parent[PLACE_NAME_BYTES];
    if (unlinkat(p->fd, name, 0) != 0 && errno != ENOENT && errno != ENOTDIR)
        return fail(p, name, "remove", e);
    snprintf(parent, sizeof parent, "%s", name);
    for (char *slash; (slash = strrchr(parent, '/')) != NULL;) {
        *slash = '\0';
        if (unlinkat(p->fd, parent, AT_REMOVEDIR) != 0)
            break;
    }
    return EMBD_OK;
}

/* ---- opening ---- */

/* A new directory outlives a crash of the machine, as what is put there does. */
static int make_directory(const char *path, struct embd__error *e)
{
    if (mkdir(path, 0777) != 0)
        return errno == EEXIST
                   ? EMBD_OK
                   : embd__error_set(e, EMBD_IO, "%s: cannot create: %s", path, strerror(errno));
    const char *slash = strrchr(path, '/');
    char *parent = slash == NULL ? strdup(".") : strndup(path, (size_t)(slash - path) + 1);
    int fd = parent == NULL ? -1 : open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) != 0)
        embd__error_set(e, EMBD_IO, "%s: cannot sync its name: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    free(parent);
    return e->status;
}

static void close_place(struct place *place)
{
    struct place_dir *p = (struct place_dir *)place;
    if (p->file >= 0)
        close(p->file);
    if (p->fd >= 0)
        close(p->fd);
    free(p->path);
    free(p);
}

static const struct place_ops ops = {put, get, read_whole, list_files, remove_file, close_place};

int place_open_directory(const char *path, bool makes, struct place **out, struct embd__error *e)
{
    struct place_dir *p = calloc(1, sizeof *p);
    char *own = strdup(path);
    if (p == NULL || own == NULL) {
        free(own);
        free(p);
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for %s", path);
    }
    *p = (struct place_dir){.base = {.ops = &ops, .dir = own}, .file = -1, .path = own};
    if (makes)
        make_directory(path, e);
    p->fd = e->status ? -1 : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (p->fd < 0) {
        embd__error_set(e, EMBD_IO, "%s: cannot open: %s", path, strerror(errno));
        close_place(&p->base);
        return e->status;
    }
    *out = &p->base;
    return EMBD_OK;
}
