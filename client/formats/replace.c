/* replace.c - embd_load_tables: tables of a living cluster become those of a directory, all at
 * once.
 *
 * The happy path: open and verify the whole directory; stage each table beside the one that is
 * there, on all shards; load them; send the positions of streams; let shard 0's server have the
 * staged tables take their places on all shards (server/coordinator/cluster_replace.c).
 *
 * What can fail: anything before that changes no table, and the staged ones are dropped, also when
 * this process dies. A server that dies while tables take their places leaves each shard's tables
 * old or new: the error says so, and the same call replaces them on all. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "client/core/client.h"
#include "client/formats/admin.h"
#include "client/formats/coordinate.h"
#include "client/formats/load.h"
#include "proto/structs.h"

/* Staged tables whose loader has died go within a moment. */
#define BUSY_TRIES    30u
#define BUSY_PAUSE_NS 100000000u
#define TURN_PAUSE_NS 50000000u

/* ---- staging ---- */

static int ask_stage(struct load *l, uint32_t shard, const embd_schema *schema,
                     bool *is_journaled_out)
{
    struct answer *answer;
    struct fields f;
    struct msg *m = embd__admin_begin(l->client, METHOD_TABLE_STAGE);
    embd__msg_map(m, 2);
    embd__msg_field_uint(m, "id", l->staged);
    embd__msg_str(m, "schema");
    embd__schema_write(m, schema);
    if (embd__request(l->client, shard, LISTENER_ADMIN, &answer))
        return l->e->status;
    embd__read_fields(&f, &answer->reader, "table_stage");
    *is_journaled_out = embd__field_bool(&f, "journaled", false);
    return embd__admin_end(l->client, shard, METHOD_TABLE_STAGE, answer);
}

static int stage_on(struct load *l, uint32_t shard, const embd_schema *schema,
                    bool *is_journaled_out)
{
    int status = ask_stage(l, shard, schema, is_journaled_out);
    for (uint32_t tries = 1; status == EMBD_BUSY && tries < BUSY_TRIES; tries++) {
        nanosleep(&(struct timespec){0, BUSY_PAUSE_NS}, NULL);
        *l->e = (struct embd__error){0};
        status = ask_stage(l, shard, schema, is_journaled_out);
    }
    return status;
}

static int check_step(const struct load *l, const struct manifest_table *table)
{
    if (table->step <= LIMIT_STEP)
        return EMBD_OK;
    return embd__error_set(l->e, EMBD_INVALID,
                           "%s: table '%s' has step %" PRIu64 ", the limit is %llu", l->dir->path,
                           table->schema.s.name, table->step, LIMIT_STEP);
}

static int stage_table(void *arg, const struct manifest_table *table)
{
    struct load *l = arg;
    struct streams_staged *streams = l->streams;
    const embd_schema *schema = embd__load_schema(l, table);
    bool was_journaled = embd__durability_is_journaled(schema->durability);
    if (check_step(l, table))
        return l->e->status;
    for (uint32_t shard = 0; shard < l->n_shards; shard++) {
        bool is_journaled;
        if (stage_on(l, shard, schema, &is_journaled))
            return l->e->status;
        streams->goes[was_journaled][is_journaled] = true;
    }
    l->n_created++;
    return EMBD_OK;
}

/* After a failure, keeping its error: also servers that cannot be asked drop them. */
static void unstage(struct load *l)
{
    struct embd__error kept = *l->e;
    for (uint32_t shard = 0; shard < l->n_shards; shard++) {
        struct answer *answer;
        *l->e = (struct embd__error){0};
        struct msg *m = embd__admin_begin(l->client, METHOD_TABLE_STAGE);
        embd__msg_map(m, 2);
        embd__msg_field_uint(m, "id", l->staged);
        embd__msg_field_bool(m, "drop", true);
        if (embd__request(l->client, shard, LISTENER_ADMIN, &answer) == EMBD_OK)
            embd__answer_free(answer);
    }
    *l->e = kept;
}

/* ---- replacing ---- */

/* Another job has its turn first: what is loaded waits for ours. */
static int start_patiently(struct load *l, const struct job_ask *ask, struct job_told *job)
{
    uint64_t end_ns = uv_hrtime() + (uint64_t)l->client->options.deadline_ms * 1000000u;
    int status = embd__job_start(l->client, ask, job);
    while (status == EMBD_BUSY && uv_hrtime() < end_ns) {
        nanosleep(&(struct timespec){0, TURN_PAUSE_NS}, NULL);
        *l->e = (struct embd__error){0};
        status = embd__job_start(l->client, ask, job);
    }
    return status;
}

static int take_places(struct load *l)
{
    struct job_told job;
    char name[32];
    snprintf(name, sizeof name, "replace-%016" PRIx64, l->staged);
    const struct job_ask ask = {.name = name, .staged = l->staged, .n_staged = l->n_created};
    if (start_patiently(l, &ask, &job) || embd__job_await(l->client, &job, NULL))
        return l->e->status;
    l->totals.pause_us = job.pause_us;
    return EMBD_OK;
}

static int draw_id(struct load *l)
{
    while (l->staged == 0)
        if (getrandom(&l->staged, sizeof l->staged, 0) != sizeof l->staged)
            return embd__error_set(l->e, EMBD_IO, "the system gives no random numbers");
    return EMBD_OK;
}

static int fill(struct load *l)
{
    struct streams_staged *streams = l->streams;
    int status = embd__load_each(l, stage_table);
    if (status == EMBD_OK)
        status = embd__load_each(l, embd__load_table);
    if (status == EMBD_OK)
        status = embd__streams_load(l->client, l->dir, 0, streams);
    if (status == EMBD_OK)
        status = embd__ticker_end(&l->ticker, l->e);
    return status == EMBD_OK ? take_places(l) : status;
}

/* How the tables in their places are kept does not change. */
static int check_set(const struct load *l)
{
    if (!embd__load_sets(l, "durability"))
        return EMBD_OK;
    return embd__error_set(l->e, EMBD_UNSUPPORTED,
                           "field 'durability' cannot be set by a load that replaces tables: they "
                           "keep theirs; drop the tables, and load without replacing");
}

/* Of tables that take the places of others. */
static int load_replacing(struct load *l, const char *dir, embd_progress *progress, void *arg)
{
    struct streams_staged streams = {.id = 0};
    l->streams = &streams;
    if (check_set(l) || embd__load_open(l, dir, progress, arg) || draw_id(l))
        return l->e->status;
    streams.id = l->staged;
    streams.is_all = embd__load_has_all(l);
    embd__ticker_begin(&l->ticker, progress, arg, l->totals.rows);
    int status = fill(l);
    if (status)
        unstage(l);
    return status;
}

static int check_options(const embd_load_options *options, struct embd__error *e)
{
    if (options->n_tables > 0 && options->tables == NULL)
        return embd__error_set(e, EMBD_INVALID, "options.tables is NULL, n_tables is %" PRIu32,
                               options->n_tables);
    if (options->n_set > 0 && options->set == NULL)
        return embd__error_set(e, EMBD_INVALID, "options.set is NULL, n_set is %" PRIu32,
                               options->n_set);
    return EMBD_OK;
}

EMBD_API int embd_load_tables(embd_client *client, const char *dir,
                              const embd_load_options *options, embd_dump_report *report_out)
{
    embd_load_options own = {0};
    struct load l = {.client = client, .e = embd__client_error(client)};
    *l.e = (struct embd__error){0};
    if (options && (embd__take(embd_load_options, &own, options, l.e) || check_options(&own, l.e)))
        return embd__error_keep(l.e, l.e->status);
    l.tables = own.tables;
    l.n_tables = own.n_tables;
    l.set = own.set;
    l.n_set = own.n_set;
    int status = own.replace ? load_replacing(&l, dir, own.progress, own.arg)
                             : embd__load_new(&l, dir, own.progress, own.arg);
    return embd__load_end(&l, status, report_out);
}
