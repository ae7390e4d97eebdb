/* file_list.c - reads the list of the files of a norm data set.
 *
 * Line 1 is a count, and as many lines with a path follow; blank ones may come after them. A list
 * that promises more paths than it has, or has more than it promises, was not written to its end or
 * was edited by hand: it is refused rather than half the data trained on.
 *
 * HugeCTR opens relative paths from the working directory; our own writer names files in the list's
 * folder. All paths of a list are relative to one of the two: where its first file lies that is
 * there at all. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/data/file_list.h"
#include "client/data/stream.h"

#define LIMIT_FILES (1u << 20)

/* One list being read. */
struct reading {
    const char *path;
    FILE *file;
    char *line; /* of getline */
    size_t room;
    uint64_t number; /* of the line, from 1 */
    uint64_t first;  /* this list's first path in the list in memory */
};

static int no_memory(struct embd__error *e, const char *path)
{
    return embd__error_set(e, EMBD_NO_MEMORY, "%s: no memory for the list of files", path);
}

static int wrong(const struct reading *r, const char *what, struct embd__error *e)
{
    return embd__error_set(e, EMBD_CORRUPT, "%s, line %" PRIu64 ": %s", r->path, r->number, what);
}

/* A line without its end. False: none. */
static bool next_line(struct reading *r)
{
    ssize_t n = getline(&r->line, &r->room, r->file);
    r->number++;
    while (n > 0 && strchr("\r\n \t", r->line[n - 1]) != NULL)
        r->line[--n] = '\0';
    return n >= 0;
}

/* ---- the list in memory ---------------------------------------------------------------------- */

static int take(struct file_list *list, char *path, struct embd__error *e)
{
    if (path == NULL)
        return no_memory(e, "files");
    if (list->n == list->room) {
        uint64_t room = 2 * list->room + 8;
        char **paths = realloc(list->paths, room * sizeof *paths);
        if (paths == NULL) {
            free(path);
            return no_memory(e, "files");
        }
        list->paths = paths;
        list->room = room;
    }
    list->paths[list->n++] = path;
    return EMBD_OK;
}

int embd__file_list_add(struct file_list *list, const char *path, struct embd__error *e)
{
    return take(list, strdup(path), e);
}

void embd__file_list_keep(struct file_list *list, uint32_t worker, uint32_t n_workers)
{
    uint64_t kept = 0;
    for (uint64_t i = 0; i < list->n; i++)
        if (i % n_workers == worker)
            list->paths[kept++] = list->paths[i];
        else
            free(list->paths[i]);
    list->n = kept;
}

void embd__file_list_free(struct file_list *list)
{
    for (uint64_t i = 0; i < list->n; i++)
        free(list->paths[i]);
    free(list->paths);
    *list = (struct file_list){0};
}

/* ---- the list on disk ------------------------------------------------------------------------ */

static int read_count(struct reading *r, uint64_t *count_out, struct embd__error *e)
{
    char *end;
    if (!next_line(r))
        return wrong(r, "the file is empty; it begins with the number of files", e);
    errno = 0;
    *count_out = strtoull(r->line, &end, 10);
    if (r->line[0] < '0' || r->line[0] > '9' || *end != '\0' || errno != 0 ||
        *count_out > LIMIT_FILES)
        return wrong(r, "is not a number of files from 0 to 1048576", e);
    return EMBD_OK;
}

static int read_lines(struct reading *r, struct file_list *list, struct embd__error *e)
{
    uint64_t count = 0;
    int status = read_count(r, &count, e);
    while (status == EMBD_OK && list->n - r->first < count) {
        if (!next_line(r) || r->line[0] == '\0')
            return embd__error_set(e, EMBD_CORRUPT,
                                   "%s, line %" PRIu64 ": no path; line 1 promises %" PRIu64
                                   " files, and %" PRIu64 " are named",
                                   r->path, r->number, count, list->n - r->first);
        status = embd__file_list_add(list, r->line, e);
    }
    while (status == EMBD_OK && next_line(r))
        if (r->line[0] != '\0')
            status = wrong(r, "more files than line 1 promises", e);
    if (status == EMBD_OK && ferror(r->file))
        status = embd__error_set(e, EMBD_IO, "%s: cannot read: %s", r->path, strerror(errno));
    return status;
}

/* ---- what paths are relative to -------------------------------------------------------------- */

/* `path` in the folder of the list; malloc'd. */
static char *beside(const struct reading *r, const char *path)
{
    const char *slash = strrchr(r->path, '/');
    char *found;
    int n = asprintf(&found, "%.*s%s", slash ? (int)(slash + 1 - r->path) : 0, r->path, path);
    return n < 0 ? NULL : found;
}

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Sets *base to where `path` lies, if it is there. */
static int look_for(const struct reading *r, const char *path, embd_data_paths *base,
                    struct embd__error *e)
{
    struct stat here, there;
    char *full = beside(r, path);
    if (full == NULL)
        return no_memory(e, r->path);
    bool is_here = stat(path, &here) == 0, is_there = stat(full, &there) == 0;
    if (is_here && is_there && !is_same(&here, &there))
        embd__error_set(e, EMBD_INVALID,
                        "%s names '%s', which is one file in the working directory and another in "
                        "the list's folder: set the option 'paths' to working_directory or list",
                        r->path, path);
    else if (is_here || is_there)
        *base = is_there ? EMBD_DATA_PATHS_LIST : EMBD_DATA_PATHS_WORKING_DIRECTORY;
    free(full);
    return e->status;
}

static int find_base(const struct reading *r, const struct file_list *list, embd_data_paths *base,
                     struct embd__error *e)
{
    for (uint64_t i = r->first; i < list->n && *base == EMBD_DATA_PATHS_FOUND; i++)
        if (list->paths[i][0] != '/' && look_for(r, list->paths[i], base, e) != EMBD_OK)
            return e->status;
    return EMBD_OK;
}

/* Paths as the process can open them. */
static int resolve(const struct reading *r, struct file_list *list, embd_data_paths base,
                   struct embd__error *e)
{
    if (find_base(r, list, &base, e) != EMBD_OK)
        return e->status;
    if (base == EMBD_DATA_PATHS_WORKING_DIRECTORY)
        return EMBD_OK;
    for (uint64_t i = r->first; i < list->n; i++) {
        char *path = list->paths[i][0] == '/' ? list->paths[i] : beside(r, list->paths[i]);
        if (path == NULL)
            return no_memory(e, r->path);
        if (path != list->paths[i])
            free(list->paths[i]);
        list->paths[i] = path;
    }
    return EMBD_OK;
}

int embd__file_list_read(struct file_list *list, const char *path, embd_data_paths base,
                         struct embd__error *e)
{
    struct reading r = {.path = path, .first = list->n};
    int fd = embd__regular_open(path, e);
    if (fd < 0)
        return e->status;
    r.file = fdopen(fd, "re");
    if (r.file == NULL) {
        close(fd);
        return no_memory(e, path);
    }
    int status = read_lines(&r, list, e);
    if (status == EMBD_OK)
        status = resolve(&r, list, base, e);
    fclose(r.file);
    free(r.line);
    return status;
}
