/* job.c - embd/job.h: checkpoints are snapshots of a job's tables, and a resume is a load that
 * replaces them.
 *
 * The happy path of a checkpoint: the caller's blobs and one with the step, and embd_snapshot.
 * That of a resume: the newest snapshot of the job whose shares are there for all shards; these
 * gathered in one directory; tables that it does not have dropped; embd_load_tables.
 *
 * A server that was killed may have left a checkpoint's name: what is incomplete is removed, and
 * what is complete keeps it, the next one of that step being called JOB-STEP-r1. */
#include "embd/job.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <uv.h>

#include "client/core/client.h"
#include "client/formats/checkpoints.h"
#include "proto/scope.h"
#include "proto/stored/dumpdir.h"
#include "proto/structs.h"

#define STEP_BLOB        "embd-step"
#define ASKED_NAME_BYTES 96u /* more than servers take: they refuse it */
#define ATTEMPTS         100u
#define PATIENCE_S       60u /* for another snapshot, or what a trainer that died has begun */
#define PAUSE_NS         50000000u

struct named_job {
    embd_client *client;
    struct embd__error *e; /* the client's */
    embd_job given;
    struct checkpoints kept;
    bool is_cancelled;              /* somebody cancelled the snapshot */
    char prefix[EMBD_NAME_MAX + 4]; /* "JOB--*": its tables */
};

/* ---- the job ---- */

static int check_name(const char *name, struct embd__error *e)
{
    struct table_scope scope = {.n_names = 0};
    size_t n = name ? strlen(name) : 0;
    if (embd__scope_set_job(&scope, name ? name : "", n, e))
        return e->status;
    if (n + 3 > EMBD_NAME_MAX)
        return embd__error_set(e, EMBD_INVALID,
                               "job '%s' has %zu characters, the limit is %u: its tables are "
                               "called JOB--NAME",
                               name, n, EMBD_NAME_MAX - 3);
    if (strstr(name, "--") || name[n - 1] == '-')
        return embd__error_set(e, EMBD_INVALID,
                               "job '%s': '--' separates its name from those of its tables", name);
    return EMBD_OK;
}

static int take(embd_client *client, const embd_job *job, struct named_job *out)
{
    *out = (struct named_job){.client = client, .e = &client->error};
    *out->e = (struct embd__error){0};
    if (embd__take(embd_job, &out->given, job, out->e) || check_name(out->given.name, out->e))
        return out->e->status;
    if (out->given.n_directories > EMBD_DIRECTORIES_MAX)
        return embd__error_set(out->e, EMBD_TOO_LARGE, "%" PRIu32 " directories, the limit is %u",
                               out->given.n_directories, EMBD_DIRECTORIES_MAX);
    out->kept = (struct checkpoints){.job = out->given.name,
                                     .directories = out->given.directories,
                                     .n_directories = out->given.n_directories};
    snprintf(out->prefix, sizeof out->prefix, "%s--*", out->given.name);
    return EMBD_OK;
}

EMBD_API int embd_job_table_name(const embd_job *job, const char *table, char *out)
{
    struct embd__error e = {0};
    embd_job own = {0};
    if (embd__take(embd_job, &own, job, &e) || check_name(own.name, &e))
        return embd__error_keep(&e, e.status);
    int n = snprintf(out, EMBD_NAME_MAX + 1, "%s--%s", own.name, table);
    if (n > EMBD_NAME_MAX)
        embd__error_set(&e, EMBD_INVALID, "table '%s--%s' has %d characters, the limit is %u",
                        own.name, table, n, EMBD_NAME_MAX);
    return embd__error_keep(&e, e.status);
}

/* How long a status may last before the call fails: another snapshot may be under way, and a server
 * that cannot be reached, or ends, may be on its way back. */
static uint64_t patience_ns(const struct named_job *j, int status)
{
    switch (status) {
    case EMBD_BUSY:
        return PATIENCE_S * 1000000000ull;
    case EMBD_UNREACHABLE:
    case EMBD_DRAINING:
    case EMBD_CLOSED:
        return j->is_cancelled ? 0 : (uint64_t)j->client->options.deadline_ms * 1000000;
    default:
        return 0;
    }
}

/* Calls `act` again as long as that may help. */
static int patiently(struct named_job *j, int (*act)(struct named_job *j, const void *arg),
                     const void *arg)
{
    uint64_t start = uv_hrtime();
    for (;;) {
        int status = act(j, arg);
        if (uv_hrtime() - start >= patience_ns(j, status))
            return status;
        nanosleep(&(struct timespec){0, PAUSE_NS}, NULL);
    }
}

/* ---- making one ---- */

struct making {
    char name[ASKED_NAME_BYTES];
    const embd_blob *blobs;
    uint32_t n_blobs;
    embd_dump_report *report_out;
};

/* Keeps the client's error. A coordinator that was restarted does not know it. */
static bool was_cancelled(struct named_job *j, const char *name)
{
    struct embd__error kept = *j->e;
    embd_snapshot_report report = {.struct_bytes = sizeof report};
    int status = embd_snapshot_status(j->client, name, &report);
    *j->e = kept;
    embd__error_keep(j->e, kept.status);
    return status == EMBD_OK && !report.is_running && report.status == EMBD_CLOSED;
}

static int make(struct named_job *j, const void *arg)
{
    const struct making *making = arg;
    const char *const tables[] = {j->prefix};
    embd_snapshot_options options =
        EMBD_SNAPSHOT_OPTIONS(.n_blobs = making->n_blobs, .blobs = making->blobs,
                              .keep = j->given.keep, .job = j->given.name, .n_tables = 1,
                              .tables = tables);
    int status = embd_snapshot(j->client, making->name, &options, making->report_out);
    j->is_cancelled = status == EMBD_CLOSED && was_cancelled(j, making->name);
    return status;
}

static int clear(struct named_job *j, const void *name)
{
    return embd_snapshot_cancel(j->client, name);
}

/* EMBD_EXISTS: a complete one has the name. */
static int make_once(struct named_job *j, const struct making *making)
{
    int status = patiently(j, make, making);
    if (status != EMBD_EXISTS)
        return status;
    status = patiently(j, clear, making->name);
    return status ? status : patiently(j, make, making);
}

static int make_named(struct named_job *j, uint64_t step, struct making *making)
{
    int status = EMBD_EXISTS;
    for (uint32_t i = 0; i < ATTEMPTS && status == EMBD_EXISTS; i++) {
        int n = snprintf(making->name, ASKED_NAME_BYTES, "%s-%" PRIu64, j->given.name, step);
        if (i > 0)
            snprintf(making->name + n, ASKED_NAME_BYTES - (size_t)n, "-r%" PRIu32, i);
        status = make_once(j, making);
    }
    return status;
}

/* A blob that is there twice would look like a name that is taken. */
static int check_blobs(const embd_blob *blobs, uint32_t n, struct embd__error *e)
{
    if (n > EMBD_BLOBS_MAX - 1)
        return embd__error_set(e, EMBD_TOO_LARGE, "%" PRIu32 " blobs, the limit is %u", n,
                               EMBD_BLOBS_MAX - 1);
    for (uint32_t i = 0; i < n; i++) {
        const char *name = blobs[i].name ? blobs[i].name : "";
        bool is_taken = !strcmp(name, STEP_BLOB);
        for (uint32_t k = 0; k < i && !is_taken; k++)
            is_taken = blobs[k].name && !strcmp(name, blobs[k].name);
        if (is_taken)
            return embd__error_set(e, EMBD_EXISTS, "blob '%s' is there twice", name);
    }
    return EMBD_OK;
}

EMBD_API int embd_job_checkpoint(embd_client *client, const embd_job *job, uint64_t step,
                                 const embd_blob *blobs, uint32_t n_blobs,
                                 embd_dump_report *report_out)
{
    struct named_job j;
    char text[24];
    embd_blob all[EMBD_BLOBS_MAX];
    if (take(client, job, &j) || check_blobs(blobs, n_blobs, j.e))
        return embd__error_keep(j.e, j.e->status);
    int n = snprintf(text, sizeof text, "%" PRIu64, step);
    for (uint32_t i = 0; i < n_blobs; i++)
        all[i] = blobs[i];
    all[n_blobs] = (embd_blob){.name = STEP_BLOB, .data = text, .bytes = (uint64_t)n};
    struct making making = {.blobs = all, .n_blobs = n_blobs + 1, .report_out = report_out};
    return make_named(&j, step, &making);
}

/* ---- going back ---- */

struct extras {
    const char *prefix;
    const struct dump_dir *dir;
    char (*names)[EMBD_NAME_MAX + 1]; /* [n] tables of the job that the checkpoint does not have */
    uint32_t n;
};

static int see_table(void *arg, const char *name)
{
    struct extras *x = arg;
    if (!embd__scope_name_covers(x->prefix, name) || embd__dumpdir_find(x->dir, name))
        return 0;
    void *more = reallocarray(x->names, x->n + 1, sizeof *x->names);
    if (!more)
        return EMBD_NO_MEMORY;
    x->names = more;
    snprintf(x->names[x->n++], sizeof *x->names, "%s", name);
    return 0;
}

/* One that another worker has dropped meanwhile is gone, too. */
static int drop_extras(struct named_job *j, const struct extras *x)
{
    int status = EMBD_OK;
    for (uint32_t i = 0; i < x->n && !status; i++) {
        status = embd_table_drop(j->client, x->names[i]);
        if (status == EMBD_UNKNOWN_TABLE)
            status = EMBD_OK;
    }
    return status;
}

static int keep_only(struct named_job *j, const char *path)
{
    struct dump_dir dir;
    struct extras x = {.prefix = j->prefix, .dir = &dir};
    if (embd__dumpdir_open(path, &dir, j->e))
        return embd__error_keep(j->e, j->e->status);
    int status = embd_table_list(j->client, see_table, &x);
    if (status == EMBD_OK)
        status = drop_extras(j, &x);
    free(x.names);
    embd__dumpdir_fini(&dir);
    return status;
}

static int replace(struct named_job *j, const void *path)
{
    embd_load_options options = EMBD_LOAD_OPTIONS(.replace = true);
    return embd_load_tables(j->client, path, &options, NULL);
}

/* The directory that has the blobs, and the step out of these. */
static int read_step(struct named_job *j, const struct checkpoint *found, embd_checkpoint *at)
{
    void *text = NULL;
    uint64_t bytes;
    int status = EMBD_INVALID;
    for (uint32_t i = 0; i < found->n_shares && status == EMBD_INVALID; i++) {
        status = embd__checkpoint_path(&j->kept, &found->shares[i], at->path, j->e);
        if (status == EMBD_OK)
            status = embd_blob_read(at->path, STEP_BLOB, &text, &bytes);
    }
    if (status == EMBD_OK)
        at->step = strtoull(text, NULL, 10);
    free(text);
    return status;
}

static int go_back(struct named_job *j, const struct checkpoint *found, embd_checkpoint *at)
{
    int status = keep_only(j, found->path);
    if (status == EMBD_OK)
        status = patiently(j, replace, found->path);
    snprintf(at->name, sizeof at->name, "%s", found->shares->name);
    return status ? status : read_step(j, found, at);
}

EMBD_API int embd_job_resume(embd_client *client, const embd_job *job, embd_checkpoint *at)
{
    struct named_job j;
    struct checkpoint newest;
    embd_checkpoint out = {.struct_bytes = sizeof out};
    if (take(client, job, &j))
        return embd__error_keep(j.e, j.e->status);
    int status = embd__error_keep(j.e, embd__checkpoints_newest(&j.kept, &newest, j.e));
    out.is_there = newest.shares != NULL;
    if (status == EMBD_OK && out.is_there)
        status = go_back(&j, &newest, &out);
    embd__checkpoint_leave(&newest);
    embd__checkpoints_fini(&j.kept);
    if (status == EMBD_OK)
        embd__struct_give(at, at->struct_bytes, &out, sizeof out);
    return status;
}
