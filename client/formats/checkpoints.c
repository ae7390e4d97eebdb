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

/* ---- the newest one ---- */

struct newest {
    uint64_t sequence;
    char name[CHECKPOINT_NAME_BYTES]; /* "": there is none */
};

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), n_end = strlen(end);
    return n >= n_end && !strcmp(name + n - n_end, end);
}

/* A snapshot that cannot be read is not complete. */
static bool is_of_job(const struct checkpoints *c, const char *path, uint64_t *id_out,
                      uint64_t *sequence_out)
{
    struct embd__error ignored = {0};
    struct dump_dir dir;
    bool is = embd__dumpdir_open(path, &dir, &ignored) == EMBD_OK;
    if (is) {
        const struct manifest *m = &dir.shares[0].manifest;
        is = !strcmp(m->scope.job, c->job);
        *id_out = m->id;
        *sequence_out = m->sequence;
    }
    embd__dumpdir_fini(&dir);
    return is;
}

static bool is_complete(const struct checkpoints *c, const char *name, uint64_t *sequence_out)
{
    uint64_t first = 0, id;
    char path[PATH_BYTES];
    for (uint32_t i = 0; i < c->n_directories; i++) {
        int n = snprintf(path, sizeof path, "%s/%s", c->directories[i], name);
        if (n >= (int)sizeof path || !is_of_job(c, path, &id, sequence_out))
            return false;
        if (i > 0 && id != first)
            return false;
        first = id;
    }
    return true;
}

static void see(const struct checkpoints *c, const char *name, struct newest *out)
{
    uint64_t sequence;
    bool is_kept = name[0] != '.' && strlen(name) < CHECKPOINT_NAME_BYTES &&
                   !ends_with(name, ".tmp") && !ends_with(name, ".gone");
    if (!is_kept || !is_complete(c, name, &sequence))
        return;
    if (out->name[0] &&
        (sequence < out->sequence || (sequence == out->sequence && strcmp(name, out->name) < 0)))
        return;
    out->sequence = sequence;
    snprintf(out->name, sizeof out->name, "%s", name);
}

int embd__checkpoints_newest(const struct checkpoints *c, char out[CHECKPOINT_NAME_BYTES],
                             struct embd__error *e)
{
    struct newest newest = {0};
    if (c->n_directories == 0)
        return embd__error_set(e, EMBD_INVALID,
                               "job '%s' has no directories: checkpoints are read from the data "
                               "directories of the servers",
                               c->job);
    DIR *dir = opendir(c->directories[0]);
    if (!dir)
        return embd__error_set(e, EMBD_IO, "%s: %s", c->directories[0], strerror(errno));
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        see(c, entry->d_name, &newest);
    closedir(dir);
    memcpy(out, newest.name, sizeof newest.name);
    return EMBD_OK;
}

/* ---- one directory with the shares of all processes ---- */

static int link_share(const struct checkpoints *c, const char *name, struct gathered *g,
                      struct embd__error *e)
{
    char to[PATH_BYTES], at[PATH_BYTES + 16];
    uint32_t i = g->n_links;
    char *absolute = realpath(c->directories[i], NULL);
    int n = absolute ? snprintf(to, sizeof to, "%s/%s", absolute, name) : -1;
    free(absolute);
    snprintf(at, sizeof at, "%s/%" PRIu32, g->temporary, i);
    if (n < 0 || n >= (int)sizeof to || symlink(to, at) != 0)
        return embd__error_set(e, EMBD_IO, "%s: %s", c->directories[i], strerror(errno));
    g->n_links++;
    return EMBD_OK;
}

void embd__checkpoints_scatter(struct gathered *g)
{
    char at[PATH_BYTES + 16];
    for (uint32_t i = 0; i < g->n_links; i++) {
        snprintf(at, sizeof at, "%s/%" PRIu32, g->temporary, i);
        unlink(at);
    }
    if (g->temporary)
        rmdir(g->temporary);
}

int embd__checkpoints_gather(const struct checkpoints *c, const char *name, struct gathered *g,
                             struct embd__error *e)
{
    const char *tmp = getenv("TMPDIR");
    *g = (struct gathered){.temporary = NULL};
    if (c->n_directories == 1) {
        snprintf(g->path, sizeof g->path, "%s/%s", c->directories[0], name);
        return EMBD_OK;
    }
    snprintf(g->path, sizeof g->path, "%s/embd-job-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    g->temporary = mkdtemp(g->path);
    if (!g->temporary)
        return embd__error_set(e, EMBD_IO, "%s: %s", g->path, strerror(errno));
    while (g->n_links < c->n_directories && e->status == EMBD_OK)
        link_share(c, name, g, e);
    return e->status;
}
