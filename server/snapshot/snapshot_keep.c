/* snapshot_keep.c - lists complete snapshots, and removes all but the newest.
 *
 * A snapshot is renamed to NAME.gone first, and that is on disk before its first file is removed:
 * so a directory with the name of a snapshot is complete at every moment. A server that ended in
 * between left a NAME.gone, which the next removal removes too. Anything that is not a snapshot, or
 * cannot be read as one, is not touched. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "server/files/safe_open.h"
#include "server/log/log.h"
#include "server/snapshot/snapshot.h"
#include "server/snapshot/snapshot_use.h"

#define GONE         ".gone"
#define GONE_NAME    (SNAPSHOT_NAME_MAX + sizeof GONE)
#define MANIFEST_MAX (128u << 20) /* as its readers take */

static int fail(const char *file, const char *what, struct embd__error *e)
{
    return embd__error_set(e, EMBD_IO, "snapshot '%s': cannot %s: %s", file, what, strerror(errno));
}

/* ---- which there are ---- */

/* The file's text, malloc'd, with a zero behind it; NULL: an error, or the file cannot be a
 * manifest. */
static char *read_text(int fd, const char *name, uint64_t *bytes_out, struct timespec *when,
                       struct embd__error *e)
{
    struct stat st;
    uint64_t done = 0;
    if (fstat(fd, &st) != 0) {
        fail(name, "look at its manifest", e);
        return NULL;
    }
    *when = st.st_mtim;
    *bytes_out = (uint64_t)st.st_size;
    if (*bytes_out > MANIFEST_MAX)
        return NULL;
    char *text = calloc(*bytes_out + 1, 1);
    if (text == NULL)
        embd__error_set(e, EMBD_NO_MEMORY, "no memory for a manifest");
    while (e->status == EMBD_OK && done < *bytes_out) {
        ssize_t n = read(fd, text + done, (size_t)(*bytes_out - done));
        if (n == 0)
            break;
        if (n < 0 && errno != EINTR)
            fail(name, "read its manifest", e);
        done += n > 0 ? (uint64_t)n : 0;
    }
    if (e->status == EMBD_OK)
        return text;
    free(text);
    return NULL;
}

/* A link leads to files of others, and only a regular file can be a manifest. */
static bool is_none_of_ours(void)
{
    return errno == ENOENT || errno == ENOTDIR || errno == ELOOP || errno == EINVAL ||
           errno == ENXIO;
}

/* EMBD_DENIED: it is somebody else's. */
static void cannot_open(const char *name, const char *what, struct embd__error *e)
{
    bool is_denied = errno == EACCES;
    if (!is_none_of_ours())
        fail(name, what, e);
    if (e->status == EMBD_IO && is_denied)
        e->status = EMBD_DENIED;
}

/* False: a directory of that name has no such file, or an error. */
static bool open_manifest(int data_dir, const char *name, int *fd_out, struct embd__error *e)
{
    int dir = safe_open(data_dir, name, O_RDONLY | O_DIRECTORY, 0);
    *fd_out = -1;
    if (dir < 0)
        cannot_open(name, "open the directory", e);
    if (dir < 0)
        return false;
    *fd_out = safe_open(dir, "manifest.json", O_RDONLY, 0);
    if (*fd_out < 0)
        cannot_open(name, "open its manifest", e);
    close(dir);
    return *fd_out >= 0;
}

/* Whether the directory is a complete snapshot; then its manifest's content, and when it was
 * written. `why`: the error of an existing manifest. */
static bool read_snapshot(int data_dir, const char *name, struct manifest *out,
                          struct timespec *when, struct embd__error *why, struct embd__error *e)
{
    struct embd__error ignored = {.status = EMBD_OK};
    uint64_t bytes = 0;
    int fd;
    if (snapshot_check_name(name, &ignored) != EMBD_OK || !open_manifest(data_dir, name, &fd, e))
        return false;
    char *text = read_text(fd, name, &bytes, when, e);
    close(fd);
    bool is_read = text != NULL && embd__manifest_read(text, (size_t)bytes, out, why) == EMBD_OK;
    free(text);
    if (is_read && strcmp(out->kind, "snapshot") == 0)
        return true;
    if (is_read)
        embd__manifest_fini(out);
    return false;
}

static uint64_t bytes_of(const struct manifest *manifest)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < manifest->n_tables; i++)
        for (uint32_t k = 0; k < manifest->tables[i].n_parts; k++)
            bytes += manifest->tables[i].parts[k].bytes;
    for (uint32_t i = 0; i < manifest->n_streams; i++)
        bytes += manifest->streams[i].bytes;
    for (uint32_t i = 0; i < manifest->n_blobs; i++)
        bytes += manifest->blobs[i].bytes;
    return bytes;
}

static bool passes_over(const struct snapshot_list *list, const char *name,
                        const struct embd__error *why, const struct embd__error *e)
{
    if (list->passes_over && why->status != EMBD_OK)
        log_event(LOG_WARN, "snapshot_passed_over", "snapshot=%s why=\"manifest.json: %s\"", name,
                  why->text);
    if (e->status != EMBD_DENIED && !(list->passes_over && e->status == EMBD_IO))
        return false;
    log_event(LOG_WARN, "snapshot_passed_over", "snapshot=%s why=\"%s\"", name, e->text);
    return true;
}

static int add(struct snapshot_list *kept, int data_dir, const char *name, struct embd__error *e)
{
    struct manifest manifest;
    struct timespec when;
    struct embd__error own = {.status = EMBD_OK}, why = {.status = EMBD_OK};
    if (!read_snapshot(data_dir, name, &manifest, &when, &why, &own)) {
        if (why.status == EMBD_NO_MEMORY) /* which says nothing of the snapshot */
            *e = why;
        else if (!passes_over(kept, name, &why, &own) && own.status != EMBD_OK)
            *e = own;
        return e->status;
    }
    struct snapshot_kept found = {
        .sequence = manifest.sequence,
        .when = when,
        .id = manifest.id,
        .base = manifest.base,
        .scope = manifest.scope,
        .bytes = bytes_of(&manifest),
    };
    embd__manifest_fini(&manifest);
    strcpy(found.name, name); /* its form, and so its length, was checked */
    struct snapshot_kept *grown = realloc(kept->list, (kept->n + 1) * sizeof *grown);
    if (grown == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for a list of snapshots");
    kept->list = grown;
    grown[kept->n++] = found;
    return EMBD_OK;
}

/* A clock that was wrong once makes none older or newer, but those that have nothing else. */
static int by_age(const void *a, const void *b)
{
    const struct snapshot_kept *x = a, *y = b;
    if (x->sequence != y->sequence)
        return x->sequence > y->sequence ? -1 : 1;
    if (x->when.tv_sec != y->when.tv_sec)
        return x->when.tv_sec > y->when.tv_sec ? -1 : 1;
    if (x->when.tv_nsec != y->when.tv_nsec)
        return x->when.tv_nsec > y->when.tv_nsec ? -1 : 1;
    return strcmp(y->name, x->name);
}

static DIR *open_list(int data_dir, struct embd__error *e)
{
    int fd = openat(data_dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    if (list == NULL) {
        fail(".", "list the data directory", e);
        if (fd >= 0)
            close(fd);
    }
    return list;
}

/* NULL: that was the last, or an error. */
static struct dirent *next_entry(DIR *list, struct embd__error *e)
{
    errno = 0;
    struct dirent *entry = readdir(list);
    if (entry == NULL && errno != 0)
        fail(".", "list the data directory", e);
    return entry;
}

int snapshot_list(int data_dir, struct snapshot_list *out, struct embd__error *e)
{
    DIR *list = open_list(data_dir, e);
    if (list == NULL)
        return e->status;
    for (struct dirent *entry; e->status == EMBD_OK && (entry = next_entry(list, e)) != NULL;)
        add(out, data_dir, entry->d_name, e);
    closedir(list);
    if (out->n > 0)
        qsort(out->list, out->n, sizeof *out->list, by_age);
    return e->status;
}

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static int find_least(int data_dir, struct snapshot_use *use, uint64_t *out, struct embd__error *e)
{
    struct snapshot_list all = {.n = 0};
    *out = 1;
    if (snapshot_list(data_dir, &all, e) == EMBD_OK && all.n > 0)
        *out = all.list[0].sequence + 1;
    if (use != NULL && e->status == EMBD_OK)
        snapshot_use_take(use, &all);
    if (*out == 0)
        embd__error_set(
            e, EMBD_UNSUPPORTED,
            "snapshot '%s' has the sequence 2^64 - 1, the maximum: none can be made after it",
            all.list[0].name);
    free(all.list);
    return e->status;
}

int snapshot_least_sequence(int data_dir, uint64_t *out, struct embd__error *e)
{
    return find_least(data_dir, NULL, out, e);
}

int snapshot_next_sequence(int data_dir, struct snapshot_use *use, uint64_t *out,
                           struct embd__error *e)
{
    const uint64_t now = now_ms();
    if (find_least(data_dir, use, out, e) == EMBD_OK && *out < now)
        *out = now;
    return e->status;
}

/* ---- removing ---- */

static bool is_gone(const char *name)
{
    size_t n = strlen(name), end = strlen(GONE);
    return n > end && n < GONE_NAME && strcmp(name + n - end, GONE) == 0;
}

/* Completes interrupted removals. */
static int remove_gone(int data_dir, struct embd__error *e)
{
    DIR *list = open_list(data_dir, e);
    if (list == NULL)
        return e->status;
    for (struct dirent *entry; e->status == EMBD_OK && (entry = next_entry(list, e)) != NULL;)
        if (is_gone(entry->d_name))
            snapshot_remove_directory(data_dir, entry->d_name, e);
    closedir(list);
    return e->status;
}

static int remove_one(int data_dir, const char *name, struct embd__error *e)
{
    char gone[GONE_NAME];
    snprintf(gone, sizeof gone, "%s" GONE, name);
    if (renameat(data_dir, name, data_dir, gone) != 0)
        return fail(name, "rename it", e);
    if (fsync(data_dir) != 0)
        return fail(gone, "sync the data directory", e);
    return snapshot_remove_directory(data_dir, gone, e);
}

/* A snapshot needs its base. The newest comes first: a base is older, whatever the clock said of
 * one without a sequence, so this repeats until nothing is added. */
static void keep_bases(struct snapshot_list *kept)
{
    for (bool is_new = true; is_new;) {
        is_new = false;
        for (uint32_t i = 0; i < kept->n; i++)
            for (uint32_t j = 0; kept->list[i].stays && j < kept->n; j++)
                if (!kept->list[j].stays && kept->list[i].base.id != 0 &&
                    strcmp(kept->list[i].base.name, kept->list[j].name) == 0)
                    kept->list[j].stays = is_new = true;
    }
}

static const struct table_scope *scope_of(const struct snapshot_list *kept, const char *name)
{
    for (uint32_t i = 0; i < kept->n; i++)
        if (strcmp(kept->list[i].name, name) == 0)
            return &kept->list[i].scope;
    return NULL;
}

/* Those of other jobs stay, and those with tables that `name` does not cover. If it is not in the
 * list, it cannot be read, and all stay. */
static void choose(struct snapshot_list *kept, const char *name, uint32_t n)
{
    uint32_t others = n - 1;
    const struct table_scope *scope = scope_of(kept, name);
    for (uint32_t i = 0; i < kept->n; i++) {
        struct snapshot_kept *one = &kept->list[i];
        bool is_it = strcmp(one->name, name) == 0;
        bool counts = !is_it && scope != NULL && embd__scope_includes(scope, &one->scope);
        one->stays = !counts || others > 0;
        others -= counts && others > 0;
    }
    keep_bases(kept);
}

/* Its rows are all that the increment does not have. */
static int check_scope(const char *name, const struct table_scope *base,
                       const struct table_scope *scope, struct embd__error *e)
{
    char its[SCOPE_TEXT], wanted[SCOPE_TEXT];
    if (embd__scope_is_same(base, scope))
        return EMBD_OK;
    embd__scope_text(base, its);
    embd__scope_text(scope, wanted);
    return embd__error_set(e, EMBD_UNSUPPORTED,
                           "snapshot base '%s' is of %s, and this snapshot of %s; name the same "
                           "tables and job, or make a snapshot of all rows",
                           name, its, wanted);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

static int copy_names(const struct manifest *manifest, struct base_tables *out,
                      struct embd__error *e)
{
    out->n = manifest->n_tables;
    out->names = malloc(((size_t)out->n + 1) * sizeof *out->names);
    if (out->names == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for the tables of a base");
    for (uint32_t i = 0; i < out->n; i++)
        strcpy(out->names[i], manifest->tables[i].schema.s.name);
    qsort(out->names, out->n, sizeof *out->names, by_name);
    return EMBD_OK;
}

bool base_tables_has(const struct base_tables *tables, const char *name)
{
    return tables->n > 0 &&
           bsearch(name, tables->names, tables->n, sizeof *tables->names, by_name) != NULL;
}

int snapshot_base(int data_dir, const char *name, const struct table_scope *scope,
                  struct manifest_base *out, struct base_tables *tables_out, struct embd__error *e)
{
    struct manifest manifest;
    struct timespec when;
    struct embd__error ignored = {.status = EMBD_OK};
    if (snapshot_check_name(name, e) != EMBD_OK)
        return e->status;
    bool is_read = read_snapshot(data_dir, name, &manifest, &when, &ignored, e);
    if (e->status == EMBD_DENIED) /* which would say it of the client */
        e->status = EMBD_IO;
    if (!is_read)
        return embd__error_set(e, EMBD_UNSUPPORTED,
                               "snapshot base '%s' does not exist or cannot be read", name);
    *out = (struct manifest_base){.id = manifest.id, .xxh3 = manifest.xxh3};
    strcpy(out->name, name); /* its form, and so its length, was checked */
    const struct table_scope found = manifest.scope;
    if (tables_out != NULL)
        copy_names(&manifest, tables_out, e);
    embd__manifest_fini(&manifest);
    if (e->status != EMBD_OK || check_scope(name, &found, scope, e) != EMBD_OK)
        return e->status;
    if (out->id == 0 || out->xxh3 == 0)
        return embd__error_set(e, EMBD_UNSUPPORTED,
                               "snapshot base '%s' is of an earlier version and has no cut id; "
                               "make a snapshot of all rows",
                               name);
    return EMBD_OK;
}

static int check_job(const struct snapshot_list *kept, const char *name, const char *job,
                     struct embd__error *e)
{
    const struct table_scope *scope = scope_of(kept, name);
    if (job[0] == '\0' || scope == NULL || strcmp(scope->job, job) == 0)
        return EMBD_OK;
    return embd__error_set(e, EMBD_DENIED, "snapshot keep: '%s' is not of job '%s'", name, job);
}

/* Of what was listed, those that were not removed. */
static void take_kept(struct snapshot_use *use, struct snapshot_list *kept)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < kept->n; i++)
        if (kept->list[i].stays)
            kept->list[n++] = kept->list[i];
    kept->n = n;
    snapshot_use_take(use, kept);
}

int snapshot_keep(int data_dir, const char *name, const char *job, uint32_t n,
                  struct snapshot_use *use, uint32_t *removed_out, struct embd__error *e)
{
    struct snapshot_list kept = {0};
    *removed_out = 0;
    if (remove_gone(data_dir, e) == EMBD_OK && snapshot_list(data_dir, &kept, e) == EMBD_OK)
        check_job(&kept, name, job, e);
    choose(&kept, name, n);
    for (uint32_t i = 0; i < kept.n && e->status == EMBD_OK; i++) /* bases after their increments */
        if (!kept.list[i].stays && remove_one(data_dir, kept.list[i].name, e) == EMBD_OK)
            ++*removed_out;
    if (e->status == EMBD_OK)
        take_kept(use, &kept);
    free(kept.list);
    return e->status;
}
