/* snapshot.c - embd_snapshot: asks shard 0's server for a snapshot of the cluster, and watches it.
 *
 * The happy path: `start`; the caller's blobs, once the server has begun, and `go`; then its
 * progress until it is complete. The server does the rest (server/coordinator), even if this
 * process dies: only the blobs must come from here, and without them the server gives up. */
#include <string.h>

#include "client/core/client.h"
#include "client/formats/blobs.h"
#include "client/formats/coordinate.h"
#include "embd/admin.h"
#include "proto/structs.h"

static int send_blobs(embd_client *client, struct job_told *job,
                      const embd_snapshot_options *options, uint64_t *bytes_out)
{
    if (options->n_blobs == 0)
        return EMBD_OK;
    if (embd__job_await(client, job, "files") != EMBD_OK)
        return client->error.status;
    for (uint32_t i = 0; i < options->n_blobs; i++) {
        if (embd__blob_send(client, job->name, &options->blobs[i]) != EMBD_OK)
            return client->error.status;
        *bytes_out += options->blobs[i].bytes;
    }
    return embd__job_go(client, job);
}

/* Leaves the client's error as it is. */
static void give_up(embd_client *client, const char *name)
{
    struct job_told ignored;
    struct embd__error kept = client->error;
    client->error = (struct embd__error){0};
    embd__job_cancel(client, name, &ignored);
    client->error = kept;
}

/* A blob may be refused because the snapshot has failed, or because its server was restarted and
 * knows of none: then that is the error. */
static void name_cause(embd_client *client, struct job_told *job)
{
    struct job_told told;
    struct embd__error kept = client->error;
    client->error = (struct embd__error){0};
    int status = embd__job_look(client, job->name, &told);
    bool is_it = status == EMBD_OK && told.id == job->id;
    bool has_failed = is_it && !embd__job_runs(&told) && told.error.status != EMBD_OK;
    client->error = has_failed ? told.error : kept;
    if (has_failed)
        *job = told;
    else if (!is_it && (status == EMBD_OK || status == EMBD_INVALID))
        embd__job_forgotten(client, job->name);
}

static int take_scope(const embd_snapshot_options *options, struct table_scope *out,
                      struct embd__error *e)
{
    *out = (struct table_scope){.n_names = 0};
    if (options->job != NULL)
        embd__scope_set_job(out, options->job, strlen(options->job), e);
    for (uint32_t i = 0; i < options->n_tables && e->status == EMBD_OK; i++)
        embd__scope_add(out, options->tables[i], strlen(options->tables[i]), e);
    return e->status;
}

static int make(embd_client *client, const char *name, const embd_snapshot_options *options,
                embd_dump_report *report)
{
    struct job_told job;
    uint64_t blob_bytes = 0;
    struct job_ask ask = {.name = name,
                          .base = options->base,
                          .keep = options->keep,
                          .has_files = options->n_blobs > 0};
    if (take_scope(options, &ask.scope, &client->error) ||
        embd__blobs_check(options->blobs, options->n_blobs, &client->error) ||
        embd__job_start(client, &ask, &job))
        return client->error.status;
    if (send_blobs(client, &job, options, &blob_bytes)) {
        name_cause(client, &job);
        if (embd__job_runs(&job))
            give_up(client, name);
        return client->error.status;
    }
    if (embd__job_await(client, &job, NULL))
        return client->error.status;
    *report = (embd_dump_report){
        .rows = job.rows, .bytes = job.bytes + blob_bytes, .pause_us = job.pause_us};
    return EMBD_OK;
}

EMBD_API int embd_snapshot(embd_client *client, const char *name,
                           const embd_snapshot_options *options, embd_dump_report *report_out)
{
    embd_snapshot_options own = {0};
    embd_dump_report report;
    struct embd__error *e = &client->error;
    *e = (struct embd__error){0};
    if (options && embd__take(embd_snapshot_options, &own, options, e))
        return embd__error_keep(e, e->status);
    int status = make(client, name, &own, &report);
    if (status == EMBD_OK && report_out)
        *report_out = report;
    return embd__error_keep(e, status);
}

EMBD_API int embd_snapshot_cancel(embd_client *client, const char *name)
{
    struct job_told job;
    struct embd__error *e = &client->error;
    *e = (struct embd__error){0};
    if (embd__job_cancel(client, name, &job))
        return embd__error_keep(e, e->status);
    bool was_running = strcmp(job.phase, "abort") != 0;
    embd__job_await(client, &job, NULL);
    if (was_running && e->status == EMBD_CLOSED)
        *e = (struct embd__error){0};
    return embd__error_keep(e, e->status);
}

/* Servers of earlier versions do not say it. */
static void add_rate(embd_client *client, embd_snapshot_report *out)
{
    struct job_rate job;
    if (strncmp(out->name, "move-", sizeof "move-" - 1) == 0 &&
        embd__job_rate(client, out->name, NULL, &job) == EMBD_OK) {
        out->rate = job.rate;
        out->expected_rows = job.expected_rows;
        out->expected_bytes = job.expected_bytes;
    }
    client->error = (struct embd__error){0};
}

EMBD_API int embd_snapshot_status(embd_client *client, const char *name, embd_snapshot_report *out)
{
    struct job_told job;
    struct embd__error *e = &client->error;
    *e = (struct embd__error){0};
    if (embd__job_look(client, name ? name : "", &job))
        return embd__error_keep(e, e->status);
    embd_snapshot_report own = {
        .is_running = embd__job_runs(&job),
        .status = job.error.status,
        .shards_done = job.shards_done,
        .rows = job.rows,
        .bytes = job.bytes,
        .pause_us = job.pause_us,
        .elapsed_us = job.elapsed_us,
    };
    memcpy(own.name, job.name, sizeof own.name);
    memcpy(own.phase, job.phase, sizeof own.phase);
    memcpy(own.error, job.error.text, sizeof own.error);
    add_rate(client, &own);
    embd__struct_give(out, out->struct_bytes, &own, sizeof own);
    return EMBD_OK;
}
