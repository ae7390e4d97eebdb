/* checkpoints.c - see checkpoints.h. */
#include "client/formats/checkpoints.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/stored/dumpdir.h"

#define PATH_BYTES CHECKPOINT_PATH_BYTES

int embd__checkpoint_path(const struct checkpoints *c, const struct checkpoint_share *share,
                          char out[CHECKPOINT_PATH_BYTES], struct embd__error *e)
{
    const char *directory = c->directories[share->directory];
    int n = snprintf(out, PATH_BYTES, "%s/%s", directory, share->name);
    if (n >= 0 && n < (int)PATH_BYTES)
        return EMBD_OK;
    return embd__error_set(e, EMBD_IO, "%s: %s", directory, strerror(ENAMETOOLONG));
}

/* ---- shares ---- */

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), n_end = strlen(end);
    return n >= n_end && !strcmp(name + n - n_end, end);
}

static int keep(struct checkpoints *c, const struct checkpoint_share *share, struct embd__error *e)
{
    void *more = reallocarray(c->shares, c->n_shares + 1, sizeof *c->shares);
    if (more == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for the checkpoints of job '%s'",
                               c->job);
    c->shares = more;
    c->shares[c->n_shares++] = *share;
    return EMBD_OK;
}

/* JOB-STEP, or JOB-STEP-rN: as job.c calls the checkpoints of this job, and no other. */
static bool is_named_by_job(const struct checkpoints *c, const char *name)
{
    size_t n = strlen(c->job);
    if (strncmp(name, c->job, n) != 0 || name[n] != '-')
        return false;
    name += n + 1;
    size_t digits = strspn(name, "0123456789");
    return digits > 0 && (name[digits] == '\0' || strncmp(name + digits, "-r", 2) == 0);
}

static bool is_same_directory(const struct checkpoint_share *a, const struct stat *b)
{
    return a->inode == b->st_ino && a->device == b->st_dev;
}

/* The same directory may be given twice, by a link for example. */
static bool is_seen(const struct checkpoints *c, const struct stat *is)
{
    for (uint32_t i = 0; i < c->n_shares; i++)
        if (is_same_directory(&c->shares[i], is))
            return true;
    return false;
}

/* Whether a directory of that name has a manifest of its own. A checkpoint of this job that cannot
 * be read may be the newest: it is not passed over. */
static bool has_manifest(const char *path, struct stat *is)
{
    char manifest[PATH_BYTES + 16];
    snprintf(manifest, sizeof manifest, "%s/manifest.json", path);
    return stat(path, is) == 0 && S_ISDIR(is->st_mode) &&
           (access(manifest, F_OK) == 0 || errno == EACCES);
}

static int see(struct checkpoints *c, uint32_t directory, const char *name, struct embd__error *e)
{
    struct embd__error why = {0};
    struct checkpoint_share share = {.directory = directory};
    struct dump_dir dir;
    struct stat is;
    char path[PATH_BYTES];
    if (name[0] == '.' || strlen(name) >= sizeof share.name || ends_with(name, ".tmp") ||
        ends_with(name, ".gone"))
        return EMBD_OK;
    snprintf(share.name, sizeof share.name, "%s", name);
    if (embd__checkpoint_path(c, &share, path, e) != EMBD_OK)
        return e->status;
    if (!has_manifest(path, &is) || is_seen(c, &is))
        return EMBD_OK;
    if (embd__dumpdir_open(path, &dir, &why) == EMBD_OK) {
        const struct manifest *m = &dir.shares[0].manifest;
        share.id = m->id;
        share.sequence = m->sequence;
        share.device = is.st_dev;
        share.inode = is.st_ino;
        if (!strcmp(m->scope.job, c->job))
            keep(c, &share, e);
    } else if (is_named_by_job(c, name)) {
        embd__error_set(e, why.status,
                        "job '%s': the checkpoint '%s' cannot be read, and may be the newest: %s; "
                        "remove it to go back to the one before",
                        c->job, name, why.text);
    }
    embd__dumpdir_fini(&dir);
    return e->status;
}

static int see_all(struct checkpoints *c, uint32_t directory, struct embd__error *e)
{
    DIR *dir = opendir(c->directories[directory]);
    if (!dir)
        return embd__error_set(e, EMBD_IO, "%s: %s", c->directories[directory], strerror(errno));
    for (struct dirent *entry; e->status == EMBD_OK && (entry = readdir(dir)) != NULL;)
        see(c, directory, entry->d_name, e);
    closedir(dir);
    return e->status;
}

/* The newest first, and shares of one snapshot together. */
static int by_age(const void *a, const void *b)
{
    const struct checkpoint_share *x = a, *y = b;
    if (x->sequence != y->sequence)
        return x->sequence > y->sequence ? -1 : 1;
    int names = strcmp(y->name, x->name);
    if (names != 0)
        return names;
    if (x->id != y->id)
        return x->id > y->id ? -1 : 1;
    return (x->directory > y->directory) - (x->directory < y->directory);
}

static uint32_t count_same(const struct checkpoints *c, uint32_t first)
{
    uint32_t n = 1;
    while (first + n < c->n_shares && c->shares[first + n].id == c->shares[first].id &&
           !strcmp(c->shares[first + n].name, c->shares[first].name))
        n++;
    return n;
}

/* ---- one directory with all shares of a checkpoint ---- */

static int link_share(const struct checkpoints *c, struct checkpoint *found, struct embd__error *e)
{
    char path[PATH_BYTES], at[PATH_BYTES + 16];
    if (embd__checkpoint_path(c, &found->shares[found->n_links], path, e) != EMBD_OK)
        return e->status;
    char *absolute = realpath(path, NULL);
    snprintf(at, sizeof at, "%s/%" PRIu32, found->temporary, found->n_links);
    if (absolute == NULL || symlink(absolute, at) != 0)
        embd__error_set(e, EMBD_IO, "%s: %s", path, strerror(errno));
    else
        found->n_links++;
    free(absolute);
    return e->status;
}

void embd__checkpoint_leave(struct checkpoint *found)
{
    char at[PATH_BYTES + 16];
    for (uint32_t i = 0; i < found->n_links; i++) {
        snprintf(at, sizeof at, "%s/%" PRIu32, found->temporary, i);
        unlink(at);
    }
    if (found->temporary)
        rmdir(found->temporary);
    *found = (struct checkpoint){0};
}

static int gather(const struct checkpoints *c, struct checkpoint *found, struct embd__error *e)
{
    const char *tmp = getenv("TMPDIR");
    if (found->n_shares == 1)
        return embd__checkpoint_path(c, found->shares, found->path, e);
    snprintf(found->path, sizeof found->path, "%s/embd-job-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    found->temporary = mkdtemp(found->path);
    if (!found->temporary)
        return embd__error_set(e, EMBD_IO, "%s: %s", found->path, strerror(errno));
    while (found->n_links < found->n_shares && e->status == EMBD_OK)
        link_share(c, found, e);
    return e->status;
}

/* ---- the newest one ---- */

/* Says what it lacks. */
static bool is_complete(const struct checkpoint *found, struct embd__error *why)
{
    struct dump_dir dir;
    struct dump_missing missing;
    if (embd__dumpdir_open(found->path, &dir, why) == EMBD_OK &&
        embd__dumpdir_missing(&dir, &missing))
        embd__error_set(why, EMBD_INVALID,
                        "shard %" PRIu32 " of %" PRIu32 " of table '%s' is in none of the "
                        "directories",
                        missing.shard, missing.n_shards, missing.table);
    embd__dumpdir_fini(&dir);
    return why->status == EMBD_OK;
}

/* A first checkpoint that servers died over is none: the job pushes behind it. */
static bool is_behind_first_step(const struct checkpoints *c, const struct checkpoint_share *share)
{
    return !is_named_by_job(c, share->name) ||
           strtoull(share->name + strlen(c->job) + 1, NULL, 10) > 0;
}

static int refuse(const struct checkpoints *c, const struct checkpoint *newest, const char *why,
                  struct embd__error *e)
{
    char where[512] = "";
    size_t n = 0;
    for (uint32_t i = 0; i < newest->n_shares && n < sizeof where; i++)
        n += (size_t)snprintf(where + n, sizeof where - n, "%s%s", i > 0 ? ", " : "",
                              c->directories[newest->shares[i].directory]);
    return embd__error_set(e, EMBD_INVALID,
                           "job '%s' has no complete checkpoint in the directories given: of '%s', "
                           "with shares in %.300s, %.300s. Give the data directories of all server "
                           "processes",
                           c->job, newest->shares->name, where, why);
}

static int choose(const struct checkpoints *c, struct checkpoint *out, struct embd__error *e)
{
    struct embd__error lacks = {0};
    struct checkpoint newest = {0}; /* behind the first step */
    for (uint32_t first = 0; first < c->n_shares; first += out->n_shares) {
        struct embd__error why = {0};
        out->shares = &c->shares[first];
        out->n_shares = count_same(c, first);
        if (gather(c, out, e) != EMBD_OK)
            return e->status;
        if (is_complete(out, &why))
            return EMBD_OK;
        uint32_t n = out->n_shares;
        embd__checkpoint_leave(out);
        out->n_shares = n;
        if (newest.shares == NULL && is_behind_first_step(c, &c->shares[first])) {
            newest.shares = &c->shares[first];
            newest.n_shares = n;
            lacks = why;
        }
    }
    *out = (struct checkpoint){0};
    return newest.shares != NULL ? refuse(c, &newest, lacks.text, e) : EMBD_OK;
}

int embd__checkpoints_newest(struct checkpoints *c, struct checkpoint *out, struct embd__error *e)
{
    *out = (struct checkpoint){0};
    if (c->n_directories == 0)
        return embd__error_set(e, EMBD_INVALID,
                               "job '%s' has no directories: checkpoints are read from the data "
                               "directories of the servers",
                               c->job);
    for (uint32_t i = 0; i < c->n_directories; i++)
        if (see_all(c, i, e) != EMBD_OK)
            return e->status;
    if (c->n_shares > 0)
        qsort(c->shares, c->n_shares, sizeof *c->shares, by_age);
    return choose(c, out, e);
}

void embd__checkpoints_fini(struct checkpoints *c)
{
    free(c->shares);
    c->shares = NULL;
    c->n_shares = 0;
}
