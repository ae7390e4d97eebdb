/* coordinate.c - see coordinate.h.
 *
 * The happy path: `start`, then `progress` at growing intervals until the job has ended. What can
 * fail: the job, whose report has the cause; the connection, which is made again, since the job
 * goes on without it; the coordinating server, with which the job ends. */
#include "client/formats/coordinate.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/core/client.h"
#include "client/formats/admin.h"
#include "proto/placement_wire.h"

#define LOOK_MIN_NS 1000000u
#define LOOK_MAX_NS 100000000u

/* A server that cannot be connected to for so long: on this host it has died. */
#define GONE_HERE_NS UINT64_C(500000000)
#define GONE_FAR_NS  UINT64_C(5000000000)

bool embd__job_runs(const struct job_told *job)
{
    return strcmp(job->state, "running") == 0;
}

/* ---- answers ---- */

static void read_error(struct fields *f, struct job_told *out)
{
    uint64_t number = embd__field_uint(f, "error", 1, INT32_MAX, 0);
    char text[LIMIT_ERROR_TEXT];
    embd__field_str(f, "text", text, sizeof text, "");
    if (number != 0)
        embd__error_set(&out->error, -(int)number, "%s", text);
}

static int take_told(embd_client *client, struct answer *answer, struct job_told *out)
{
    struct fields f;
    *out = (struct job_told){.id = 0};
    embd__read_fields(&f, &answer->reader, "snapshot");
    out->id = embd__field_uint(&f, "job", 1, UINT64_MAX, FIELD_REQUIRED);
    embd__field_str(&f, "name", out->name, sizeof out->name, NULL);
    embd__field_str(&f, "state", out->state, sizeof out->state, NULL);
    embd__field_str(&f, "phase", out->phase, sizeof out->phase, NULL);
    out->is_read = embd__field_bool(&f, "read", false);
    out->shards_done = (uint32_t)embd__field_uint(&f, "shards_done", 0, UINT32_MAX, 0);
    out->rows = embd__field_uint(&f, "rows", 0, UINT64_MAX, 0);
    out->bytes = embd__field_uint(&f, "bytes", 0, UINT64_MAX, 0);
    out->pause_us = embd__field_uint(&f, "pause_us", 0, UINT64_MAX, 0);
    out->elapsed_us = embd__field_uint(&f, "elapsed_us", 0, UINT64_MAX, 0);
    read_error(&f, out);
    embd__fields_end(&f);
    return embd__admin_end(client, 0, METHOD_SNAPSHOT, answer);
}

/* A server of an earlier version does not know the phase, or the field. */
static int name_old_server(embd_client *client, const char *mark, const char *what)
{
    struct embd__error *e = embd__client_error(client), inner = *e;
    if (e->status != EMBD_INVALID || strstr(e->text, mark) == NULL)
        return e->status;
    *e = (struct embd__error){0};
    return embd__error_set(e, EMBD_UNSUPPORTED, "%.200s; the server's version does not %s",
                           inner.text, what);
}

#define NO_RATE "know rates: upgrade it, or move keys without one"

static int ask(embd_client *client, struct job_told *out)
{
    struct answer *answer;
    if (embd__request(client, 0, LISTENER_ADMIN, &answer) != EMBD_OK)
        return name_old_server(client, "phase",
                               "coordinate snapshots: use the embctl of that version");
    return take_told(client, answer, out);
}

/* ---- requests ---- */

static struct msg *begin(embd_client *client, const char *name, const char *phase, uint32_t n_more)
{
    struct msg *m = embd__admin_begin(client, METHOD_SNAPSHOT);
    embd__msg_map(m, 2 + n_more);
    embd__msg_field_str(m, "name", name);
    embd__msg_field_str(m, "phase", phase);
    return m;
}

static uint32_t count_proof(const struct credentials_copy *proof)
{
    return (uint32_t)(proof->token != NULL) + (uint32_t)(proof->ca != NULL) +
           (uint32_t)proof->believes_system;
}

/* The last fields of the map, and the bin. */
static void write_proof(struct msg *m, const struct credentials_copy *proof)
{
    if (proof->token != NULL)
        embd__msg_field_str(m, "token", proof->token);
    if (proof->believes_system)
        embd__msg_field_bool(m, "system_ca", true);
    if (proof->ca != NULL) {
        embd__msg_field_bool(m, "ca", true);
        embd__msg_bin(m, proof->ca, proof->ca_bytes);
    }
}

static void write_added(struct msg *m, const struct job_ask *a)
{
    embd__msg_field_uint(m, "shards", a->place->n_shards);
    embd__msg_str(m, "members");
    embd__msg_array(m, a->n_added);
    for (uint32_t i = 0; i < a->n_added; i++)
        embd__shard_entry_write(m, a->added[i].address, a->added[i].admin, a->added[i].admin_tcp);
}

int embd__job_start(embd_client *client, const struct job_ask *a, struct job_told *out)
{
    struct credentials_copy proof;
    if (embd__credentials_copy(&client->credentials, &proof, embd__client_error(client)) != EMBD_OK)
        return client->error.status;
    uint32_t n = (uint32_t)(a->base != NULL) + (uint32_t)(a->table != NULL) +
                 (uint32_t)(a->keep != 0) + (uint32_t)a->has_files + (uint32_t)a->is_read +
                 embd__scope_fields(&a->scope) + 2 * (uint32_t)(a->staged != 0) +
                 (uint32_t)(a->place != NULL) + 2 * (uint32_t)(a->n_added != 0) +
                 (uint32_t)(a->rate != 0) + 2 * (uint32_t)a->retires;
    struct msg *m = begin(client, a->name, "start", n + count_proof(&proof));
    if (a->base != NULL)
        embd__msg_field_str(m, "base", a->base);
    if (a->table != NULL)
        embd__msg_field_str(m, "table", a->table);
    if (a->keep != 0)
        embd__msg_field_uint(m, "keep", a->keep);
    if (a->has_files)
        embd__msg_field_bool(m, "files", true);
    if (a->is_read)
        embd__msg_field_bool(m, "read", true);
    embd__scope_write(m, &a->scope);
    if (a->staged != 0) {
        embd__msg_field_uint(m, "staged", a->staged);
        embd__msg_field_uint(m, "staged_tables", a->n_staged);
    }
    if (a->place != NULL)
        embd__placement_write(m, a->place);
    if (a->n_added != 0)
        write_added(m, a);
    if (a->rate != 0)
        embd__msg_field_uint(m, "rate", a->rate);
    if (a->retires) {
        embd__msg_field_uint(m, "shards", a->place->n_shards);
        embd__msg_field_bool(m, "retires", true);
    }
    write_proof(m, &proof);
    int status = ask(client, out);
    if (a->rate != 0)
        status = name_old_server(client, "unknown field 'rate'", NO_RATE);
    embd__credentials_copy_fini(&proof);
    return status;
}

int embd__job_look(embd_client *client, const char *name, struct job_told *out)
{
    begin(client, name, "progress", 0);
    return ask(client, out);
}

int embd__job_go(embd_client *client, const struct job_told *job)
{
    struct answer *answer;
    embd__msg_field_uint(begin(client, job->name, "go", 1), "job", job->id);
    int status = embd__request(client, 0, LISTENER_ADMIN, &answer);
    return status != EMBD_OK ? status : embd__admin_end(client, 0, METHOD_SNAPSHOT, answer);
}

int embd__job_cancel(embd_client *client, const char *name, struct job_told *out)
{
    struct credentials_copy proof;
    if (embd__credentials_copy(&client->credentials, &proof, embd__client_error(client)) != EMBD_OK)
        return client->error.status;
    write_proof(begin(client, name, "cancel", count_proof(&proof)), &proof);
    int status = ask(client, out);
    embd__credentials_copy_fini(&proof);
    return status;
}

int embd__job_rate(embd_client *client, const char *name, const uint64_t *rate,
                   struct job_rate *out)
{
    struct answer *answer;
    struct fields f;
    char found[64 + 1];
    struct msg *m = begin(client, name, "rate", rate != NULL);
    if (rate != NULL)
        embd__msg_field_uint(m, "rate", *rate);
    if (embd__request(client, 0, LISTENER_ADMIN, &answer) != EMBD_OK)
        return name_old_server(client, "phase", NO_RATE);
    embd__read_fields(&f, &answer->reader, "snapshot");
    embd__field_uint(&f, "job", 1, UINT64_MAX, FIELD_REQUIRED);
    embd__field_str(&f, "name", found, sizeof found, NULL);
    out->rate = embd__field_uint(&f, "rate", 0, UINT64_MAX - 1, FIELD_REQUIRED);
    out->expected_rows = embd__field_uint(&f, "expected_rows", 0, UINT64_MAX - 1, FIELD_REQUIRED);
    out->expected_bytes = embd__field_uint(&f, "expected_bytes", 0, UINT64_MAX - 1, FIELD_REQUIRED);
    embd__fields_end(&f);
    return embd__admin_end(client, 0, METHOD_SNAPSHOT, answer);
}

/* ---- waiting ---- */

static int name_loss(embd_client *client, const char *name)
{
    struct embd__error *e = embd__client_error(client), inner = *e;
    if (inner.status == EMBD_DENIED || inner.status == EMBD_PROTOCOL)
        return inner.status;
    *e = (struct embd__error){0};
    return embd__error_set(e, inner.status,
                           "%.200s; if that server lives, it completes '%.64s' without this "
                           "connection: see embctl snapshot --status",
                           inner.text, name);
}

int embd__job_forgotten(embd_client *client, const char *name)
{
    struct embd__error *e = embd__client_error(client);
    *e = (struct embd__error){0};
    return embd__error_set(e, EMBD_CLOSED,
                           "%s: the server that coordinated '%s' was restarted, or has coordinated "
                           "eight others since; the snapshot may or may not be complete",
                           embd_shard_address(client, 0), name);
}

static bool may_pass(int status)
{
    return status == EMBD_CLOSED || status == EMBD_UNREACHABLE || status == EMBD_DEADLINE;
}

static uint64_t patience_ns(const embd_client *client)
{
    const struct link *admin = client->shards[0].admin;
    return admin != NULL && embd__link_address(admin)[0] == '/' ? GONE_HERE_NS : GONE_FAR_NS;
}

/* The connection may be made again: the job goes on meanwhile. */
static int look_again(embd_client *client, struct job_told *job)
{
    struct embd__error *e = embd__client_error(client);
    uint64_t end_ns = uv_hrtime() + patience_ns(client);
    uint64_t id = job->id;
    char name[sizeof job->name];
    memcpy(name, job->name, sizeof name);
    while (embd__job_look(client, name, job) != EMBD_OK && may_pass(e->status) &&
           uv_hrtime() < end_ns) {
        *e = (struct embd__error){0};
        nanosleep(&(struct timespec){0, LOOK_MAX_NS}, NULL);
    }
    if (e->status == EMBD_OK && job->id == id)
        return EMBD_OK;
    if (e->status != EMBD_OK && e->status != EMBD_INVALID)
        return name_loss(client, name);
    return embd__job_forgotten(client, name);
}

int embd__job_await(embd_client *client, struct job_told *job, const char *phase)
{
    struct embd__error *e = embd__client_error(client);
    uint64_t pause_ns = LOOK_MIN_NS;
    while (embd__job_runs(job) && (phase == NULL || strcmp(job->phase, phase) != 0)) {
        nanosleep(&(struct timespec){0, (long)pause_ns}, NULL);
        pause_ns = pause_ns * 3 / 2 < LOOK_MAX_NS ? pause_ns * 3 / 2 : LOOK_MAX_NS;
        if (look_again(client, job) != EMBD_OK)
            return e->status;
    }
    if (job->error.status != EMBD_OK)
        return embd__error_set(e, job->error.status, "%s", job->error.text);
    return EMBD_OK;
}

/* ---- another number of shards ---- */

int embd__resize(embd_client *client, const char *what, uint32_t n_shards, struct job_ask *ask,
                 embd_rebalance_report *out)
{
    char name[32];
    struct job_told job;
    struct placement next;
    bool is_newer;
    embd__placement_resize(&next, &client->placement, n_shards);
    next.version = client->next_placement > next.version ? client->next_placement : next.version;
    snprintf(name, sizeof name, "%s-%" PRIu64, what, next.version);
    ask->name = name;
    ask->place = &next;
    if (embd__job_start(client, ask, &job) != EMBD_OK ||
        embd__job_await(client, &job, NULL) != EMBD_OK)
        return client->error.status;
    out->version = next.version;
    out->pause_us = job.pause_us;
    out->elapsed_us = job.elapsed_us;
    return embd__placement_learn(client, 0, 0, &is_newer);
}
