/* dumpdir.c - reads the directories of dumps and snapshots.
 *
 * The happy path: read DIR/manifest.json; without one, read SUB/manifest.json of every
 * sub-directory; then compare the shares with each other. Part files are not touched here
 * (partread.h). What can fail: no manifest at all, one that cannot be understood, shares of
 * different clusters. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/stored/dumpdir.h"
#include "proto/stored/plainfile.h"
#include "embd/admin.h"

/* 256 tables of 1024 parts at about 200 bytes, and their slot sizes. */
#define MANIFEST_BYTES_MAX (128u << 20)

/* ---- one manifest ---- */

static int read_all(int fd, const char *path, char *to, size_t bytes, struct embd__error *e)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = read(fd, to + done, bytes - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return embd__error_set(e, EMBD_IO, "%s: cannot read: %s", path, strerror(errno));
        if (n == 0)
            return embd__error_set(e, EMBD_IO, "%s: became shorter while it was read", path);
        done += (size_t)n;
    }
    return EMBD_OK;
}

/* An open file's text, malloc'd. */
static char *read_text(int fd, const char *path, size_t *bytes_out, struct embd__error *e)
{
    struct stat st;
    if (fstat(fd, &st)) {
        embd__error_set(e, EMBD_IO, "%s: cannot stat: %s", path, strerror(errno));
        return NULL;
    }
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size > MANIFEST_BYTES_MAX) {
        embd__error_set(e, EMBD_CORRUPT, "%s: %s", path,
                        S_ISREG(st.st_mode) ? "is too large for a manifest"
                                            : "is not a regular file");
        return NULL;
    }
    size_t bytes = (size_t)st.st_size;
    char *text = malloc(bytes + 1);
    if (!text) {
        embd__error_set(e, EMBD_NO_MEMORY, "%s: no memory for its %zu bytes", path, bytes);
        return NULL;
    }
    if (read_all(fd, path, text, bytes, e)) {
        free(text);
        return NULL;
    }
    text[bytes] = '\0';
    *bytes_out = bytes;
    return text;
}

static int parse_manifest(int fd, const char *path, struct manifest *out, struct embd__error *e)
{
    size_t bytes = 0;
    char *text = read_text(fd, path, &bytes, e);
    if (!text)
        return e->status;
    struct embd__error inner = {0};
    int status = embd__manifest_read(text, bytes, out, &inner);
    free(text);
    if (status == EMBD_OK)
        return EMBD_OK;
    bool is_damage = status != EMBD_NO_MEMORY && status != EMBD_UNSUPPORTED;
    return embd__error_set(e, is_damage ? EMBD_CORRUPT : status, "%s: %s", path, inner.text);
}

/* 1: read; 0: manifest.json does not exist; negative: an error. */
static int read_manifest(const char *directory, struct manifest *out, struct embd__error *e)
{
    char *path = embd__plain_path(directory, "manifest.json", e);
    if (!path)
        return e->status;
    int status = 1,
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO would wait for its writer */
    if (fd >= 0) {
        if (parse_manifest(fd, path, out, e))
            status = e->status;
        close(fd);
    } else if (errno == ENOENT || errno == ENOTDIR) {
        status = 0;
    } else {
        status = embd__error_set(e, EMBD_IO, "%s: cannot open: %s", path, strerror(errno));
    }
    free(path);
    return status;
}

/* ---- the shares ---- */

/* Adds `path`'s share, if it has a manifest. */
static int add_share(struct dump_dir *dir, const char *path, struct embd__error *e)
{
    struct manifest manifest = {0};
    int found = read_manifest(path, &manifest, e);
    if (found <= 0)
        return found;
    struct dump_share *grown = realloc(dir->shares, (dir->n_shares + 1) * sizeof *grown);
    char *copy = strdup(path);
    if (grown)
        dir->shares = grown;
    if (!grown || !copy) {
        free(copy);
        embd__manifest_fini(&manifest);
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for the manifest of %s", path);
    }
    dir->shares[dir->n_shares++] = (struct dump_share){.path = copy, .manifest = manifest};
    return EMBD_OK;
}

/* NULL: that was the last, or an error. */
static struct dirent *next_entry(const struct dump_dir *dir, DIR *list, struct embd__error *e)
{
    errno = 0;
    struct dirent *entry = readdir(list);
    if (!entry && errno)
        embd__error_set(e, EMBD_IO, "%s: cannot read the directory: %s", dir->path,
                        strerror(errno));
    return entry;
}

static int add_children(struct dump_dir *dir, struct embd__error *e)
{
    DIR *list = opendir(dir->path);
    if (!list)
        return embd__error_set(e, EMBD_IO, "%s: cannot open the directory: %s", dir->path,
                               strerror(errno));
    for (struct dirent *entry; !e->status && (entry = next_entry(dir, list, e)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        char *path = embd__plain_path(dir->path, entry->d_name, e);
        if (path)
            add_share(dir, path, e);
        free(path);
    }
    closedir(list);
    return e->status;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct dump_share *)a)->path, ((const struct dump_share *)b)->path);
}

static int read_shares(struct dump_dir *dir, struct embd__error *e)
{
    if (add_share(dir, dir->path, e))
        return e->status;
    if (dir->n_shares == 0 && add_children(dir, e))
        return e->status;
    if (dir->n_shares == 0)
        return embd__error_set(e, EMBD_CORRUPT,
                               "%s: has no manifest.json; it is not a dump, or an incomplete one",
                               dir->path);
    qsort(dir->shares, dir->n_shares, sizeof *dir->shares, by_path);
    return EMBD_OK;
}

/* ---- do they belong together? ---- */

static bool has_shard(const struct manifest_table *table, uint32_t shard)
{
    for (uint32_t i = 0; i < table->n_parts; i++)
        if (table->parts[i].shard == shard)
            return true;
    return false;
}

/* Two shares' views of one table. */
static int compare_tables(const struct dump_share *a, const struct manifest_table *x,
                          const struct dump_share *b, const struct manifest_table *y,
                          struct embd__error *e)
{
    const char *differs = embd__schema_fixed_difference(&x->schema.s, &y->schema.s);
    if (differs)
        return embd__error_set(
            e, EMBD_CORRUPT,
            "%s and %s: table '%s' differs in %s; they do not belong to the same snapshot", a->path,
            b->path, x->schema.s.name, differs);
    for (uint32_t i = 0; i < x->n_parts; i++)
        if (has_shard(y, x->parts[i].shard))
            return embd__error_set(e, EMBD_CORRUPT,
                                   "%s and %s: both hold shard %" PRIu32 " of table '%s'", a->path,
                                   b->path, x->parts[i].shard, x->schema.s.name);
    return EMBD_OK;
}

static int compare_blobs(const struct dump_share *a, const struct dump_share *b,
                         struct embd__error *e)
{
    for (uint32_t i = 0; i < a->manifest.n_blobs; i++)
        for (uint32_t j = 0; j < b->manifest.n_blobs; j++)
            if (!strcmp(a->manifest.blobs[i].name, b->manifest.blobs[j].name))
                return embd__error_set(e, EMBD_CORRUPT, "%s and %s: both hold blob '%s'", a->path,
                                       b->path, a->manifest.blobs[i].name);
    return EMBD_OK;
}

static int compare_shares(const struct dump_share *a, const struct dump_share *b,
                          struct embd__error *e)
{
    if (a->manifest.id != b->manifest.id)
        return embd__error_set(e, EMBD_CORRUPT,
                               "%s is of the cut %016" PRIx64 ", %s of %016" PRIx64
                               "; they do not belong to the same snapshot",
                               a->path, a->manifest.id, b->path, b->manifest.id);
    if (a->manifest.base.id != b->manifest.base.id ||
        strcmp(a->manifest.base.name, b->manifest.base.name))
        return embd__error_set(
            e, EMBD_CORRUPT,
            "%s and %s have different bases; they do not belong to the same snapshot", a->path,
            b->path);
    if (!embd__scope_is_same(&a->manifest.scope, &b->manifest.scope))
        return embd__error_set(
            e, EMBD_CORRUPT,
            "%s and %s are of different tables or jobs; they do not belong to the same snapshot",
            a->path, b->path);
    struct placement placement;
    embd__manifest_placement(&b->manifest, &placement);
    if (!embd__manifest_is_placed(&a->manifest, &placement) &&
        a->manifest.n_shards == b->manifest.n_shards)
        return embd__error_set(e, EMBD_CORRUPT,
                               "%s and %s have different placements of keys on shards", a->path,
                               b->path);
    if (a->manifest.n_shards != b->manifest.n_shards)
        return embd__error_set(e, EMBD_CORRUPT,
                               "%s is of %" PRIu32 " shards, %s of %" PRIu32
                               "; they do not belong to the same snapshot",
                               a->path, a->manifest.n_shards, b->path, b->manifest.n_shards);
    for (uint32_t i = 0; i < a->manifest.n_tables && !e->status; i++) {
        const struct manifest_table *x = &a->manifest.tables[i];
        const struct manifest_table *y = embd__dumpdir_table(b, x->schema.s.name);
        if (y)
            compare_tables(a, x, b, y, e);
    }
    return e->status ? e->status : compare_blobs(a, b, e);
}

static int check_shares(const struct dump_dir *dir, struct embd__error *e)
{
    for (uint32_t i = 0; i < dir->n_shares; i++)
        for (uint32_t j = 0; j < i; j++)
            if (compare_shares(&dir->shares[j], &dir->shares[i], e))
                return e->status;
    return EMBD_OK;
}

int embd__dumpdir_open(const char *path, struct dump_dir *out, struct embd__error *e)
{
    struct stat st;
    struct dump_dir dir = {.path = path};
    *out = (struct dump_dir){0};
    if (stat(path, &st))
        return embd__error_set(e, EMBD_IO, "%s: cannot open: %s", path, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return embd__error_set(e, EMBD_IO, "%s: is not a directory", path);
    if (read_shares(&dir, e) || check_shares(&dir, e)) {
        embd__dumpdir_fini(&dir);
        return e->status;
    }
    *out = dir;
    return EMBD_OK;
}

void embd__dumpdir_fini(struct dump_dir *dir)
{
    for (uint32_t i = 0; i < dir->n_shares; i++) {
        free(dir->shares[i].path);
        embd__manifest_fini(&dir->shares[i].manifest);
    }
    free(dir->shares);
    *dir = (struct dump_dir){0};
}

/* ---- what is in it ---- */

const struct manifest_table *embd__dumpdir_table(const struct dump_share *share, const char *name)
{
    for (uint32_t i = 0; i < share->manifest.n_tables; i++)
        if (!strcmp(share->manifest.tables[i].schema.s.name, name))
            return &share->manifest.tables[i];
    return NULL;
}

const struct manifest_table *embd__dumpdir_find(const struct dump_dir *dir, const char *name)
{
    const struct manifest_table *table = NULL;
    for (uint32_t i = 0; i < dir->n_shares && !table; i++)
        table = embd__dumpdir_table(&dir->shares[i], name);
    return table;
}

int embd__dumpdir_each(const struct dump_dir *dir, const char *only, dumpdir_visit *visit,
                       void *arg)
{
    int stop = 0;
    for (uint32_t i = 0; i < dir->n_shares && !stop; i++) {
        const struct manifest *manifest = &dir->shares[i].manifest;
        for (uint32_t j = 0; j < manifest->n_tables && !stop; j++) {
            const struct manifest_table *table = &manifest->tables[j];
            bool wanted = !only || !strcmp(only, table->schema.s.name);
            if (wanted && embd__dumpdir_find(dir, table->schema.s.name) == table)
                stop = visit(arg, table);
        }
    }
    return stop;
}

void *embd__blob_read(const struct dump_share *share, const struct manifest_blob *blob,
                      struct embd__error *e)
{
    char name[MANIFEST_BLOB_FILE];
    embd__manifest_blob_file(name, blob->name);
    return embd__plain_load(share->path, name, blob->bytes, blob->xxh3, e);
}

void embd__dumpdir_totals(const struct dump_dir *dir, const char *only, embd_dump_report *out)
{
    *out = (embd_dump_report){0};
    for (uint32_t i = 0; i < dir->n_shares; i++) {
        const struct manifest *manifest = &dir->shares[i].manifest;
        for (uint32_t j = 0; j < manifest->n_tables; j++) {
            const struct manifest_table *table = &manifest->tables[j];
            if (only && strcmp(only, table->schema.s.name))
                continue;
            for (uint32_t k = 0; k < table->n_parts; k++) {
                out->rows += table->parts[k].rows;
                out->bytes += table->parts[k].bytes;
            }
        }
        for (uint32_t j = 0; !only && j < manifest->n_blobs; j++)
            out->bytes += manifest->blobs[j].bytes;
        for (uint32_t j = 0; !only && j < manifest->n_streams; j++)
            out->bytes += manifest->streams[j].bytes;
    }
}

struct looking {
    const struct dump_dir *dir;
    struct dump_missing *out;
};

static int find_missing(void *arg, const struct manifest_table *table)
{
    const struct looking *l = arg;
    const char *name = table->schema.s.name;
    uint32_t n_shards = l->dir->shares[0].manifest.n_shards;
    for (uint32_t shard = 0; shard < n_shards; shard++) {
        bool found = false;
        for (uint32_t i = 0; i < l->dir->n_shares && !found; i++) {
            const struct manifest_table *share = embd__dumpdir_table(&l->dir->shares[i], name);
            found = share && has_shard(share, shard);
        }
        if (!found) {
            *l->out = (struct dump_missing){shard, n_shards, name};
            return 1;
        }
    }
    return 0;
}

bool embd__dumpdir_missing(const struct dump_dir *dir, struct dump_missing *out)
{
    struct looking l = {dir, out};
    return embd__dumpdir_each(dir, NULL, find_missing, &l) != 0;
}

int embd__dumpdir_complete(const struct dump_dir *dir, struct embd__error *e)
{
    struct dump_missing missing;
    if (!embd__dumpdir_missing(dir, &missing))
        return EMBD_OK;
    return embd__error_set(e, EMBD_INVALID,
                           "%s: shard %" PRIu32 " of %" PRIu32 " of table '%s' is in no manifest; "
                           "gather the snapshot directories of all processes in one directory and "
                           "name that",
                           dir->path, missing.shard, missing.n_shards, missing.table);
}
