/* checkpoints.c - see checkpoints.h. */
#include "client/formats/checkpoints.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

/* What cannot be read is no share. */
static int see(struct checkpoints *c, uint32_t directory, const char *name, struct embd__error *e)
{
    struct embd__error ignored = {0};
    struct checkpoint_share share = {.directory = directory};
    struct dump_dir dir;
    char path[PATH_BYTES];
    if (name[0] == '.' || strlen(name) >= sizeof share.name || ends_with(name, ".tmp") ||
        ends_with(name, ".gone"))
        return EMBD_OK;
    snprintf(share.name, sizeof share.name, "%s", name);
    if (embd__checkpoint_path(c, &share, path, e) != EMBD_OK)
        return e->status;
    if (embd__dumpdir_open(path, &dir, &ignored) == EMBD_OK) {
        const struct manifest *m = &dir.shares[0].manifest;
        share.id = m->id;
        share.sequence = m->sequence;
        if (!strcmp(m->scope.job, c->job))
            keep(c, &share, e);
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

/* JOB-STEP, as job.c calls them: before its first step nothing is lost. */
static bool is_behind_first_step(const struct checkpoints *c, const char *name)
{
    size_t n = strlen(c->job);
    return strncmp(name, c->job, n) != 0 || name[n] != '-' || strtoull(name + n + 1, NULL, 10) > 0;
}

static int refuse(const struct checkpoints *c, const char *name, const char *why,
                  struct embd__error *e)
{
    return embd__error_set(e, EMBD_INVALID,
                           "job '%s' has no complete checkpoint. Of '%s', the newest, %s: give the "
                           "data directories of all server processes; or, to begin anew, remove "
                           "its checkpoints there",
                           c->job, name, why);
}

static int choose(const struct checkpoints *c, struct checkpoint *out, struct embd__error *e)
{
    struct embd__error why = {0};
    for (uint32_t first = 0; first < c->n_shares; first += out->n_shares) {
        struct embd__error other = {0};
        out->shares = &c->shares[first];
        out->n_shares = count_same(c, first);
        if (gather(c, out, e) != EMBD_OK)
            return e->status;
        if (is_complete(out, first == 0 ? &why : &other))
            return EMBD_OK;
        uint32_t n = out->n_shares;
        embd__checkpoint_leave(out);
        out->n_shares = n;
    }
    *out = (struct checkpoint){0};
    if (c->n_shares > 0 && is_behind_first_step(c, c->shares[0].name))
        return refuse(c, c->shares[0].name, why.text, e);
    return EMBD_OK;
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
