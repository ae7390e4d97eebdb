/* cut_reading.c - see cut_reading.h. */
#include "client/formats/cut_reading.h"

#include <inttypes.h>
#include <stdio.h>

#include "client/core/client.h"
#include "client/formats/admin.h"

#define RENEW_NS UINT64_C(2000000000)

/* Until the server has let the cut go, another one would find it busy. Keeps the error. */
static void await_end(embd_client *client, struct job_told *job)
{
    struct embd__error kept = client->error;
    client->error = (struct embd__error){0};
    embd__job_await(client, job, NULL);
    client->error = kept;
}

/* The server may have begun the job even if its answer was lost. */
static void end_unread(embd_client *client, const char *name)
{
    struct embd__error kept = client->error;
    struct job_told job;
    client->error = (struct embd__error){0};
    if (embd__job_look(client, name, &job) == EMBD_OK && embd__job_runs(&job) &&
        embd__job_cancel(client, name, &job) == EMBD_OK)
        await_end(client, &job);
    client->error = kept;
}

int embd__cut_open(embd_client *client, const char *table, struct cut_reading *out)
{
    char name[64];
    uint64_t number = 0;
    uv_random(NULL, NULL, &number, sizeof number, 0, NULL);
    snprintf(name, sizeof name, "dump-%016" PRIx64, number);
    const struct job_ask ask = {.name = name, .table = table, .is_read = true};
    out->renewed_ns = uv_hrtime();
    int status = embd__job_start(client, &ask, &out->job);
    if (status == EMBD_OK)
        status = embd__job_await(client, &out->job, "read");
    if (status == EMBD_OK && embd__client_catch_up(client)) {
        end_unread(client, name);
        status =
            embd__error_set(embd__client_error(client), EMBD_BUSY,
                            "shards were added to the cluster meanwhile, or left it; try again");
    }
    if (status != EMBD_OK && status != EMBD_BUSY)
        end_unread(client, name);
    return status;
}

int embd__cut_renew(embd_client *client, struct cut_reading *cut)
{
    uint64_t now_ns = uv_hrtime();
    struct embd__error *e = embd__client_error(client);
    if (cut->is_mark || now_ns < cut->renewed_ns + RENEW_NS)
        return EMBD_OK;
    cut->renewed_ns = now_ns;
    if (embd__job_look(client, cut->job.name, &cut->job) != EMBD_OK || embd__job_runs(&cut->job))
        return e->status;
    return embd__error_set(e, EMBD_CLOSED, "the cut has ended before all its rows were fetched: %s",
                           cut->job.error.text);
}

/* Cancelling ends the cut whatever state it is in; who has all rows says so. */
void embd__cut_close(embd_client *client, struct cut_reading *cut)
{
    struct embd__error *e = embd__client_error(client), kept = *e;
    *e = (struct embd__error){0};
    if (kept.status != EMBD_OK)
        end_unread(client, cut->job.name);
    else if (embd__job_go(client, &cut->job) == EMBD_OK)
        await_end(client, &cut->job);
    *e = kept;
}

static void read_table(struct reader *r, const msgpack_object *item, struct cut_table *out)
{
    struct fields f;
    embd__list_map(r, item, &f, "table of a cut");
    embd__field_str(&f, "table", out->name, sizeof out->name, NULL);
    out->rows = embd__field_uint(&f, "rows", 0, UINT64_MAX, FIELD_REQUIRED);
    out->candidates = embd__field_uint(&f, "candidates", 0, UINT64_MAX, FIELD_REQUIRED);
    out->step = embd__field_uint(&f, "step", 0, UINT64_MAX, FIELD_REQUIRED);
    embd__fields_end(&f);
}

static int visit_tables(struct answer *answer, uint32_t shard,
                        int (*visit)(void *arg, uint32_t shard, const struct cut_table *table),
                        void *arg)
{
    struct fields f;
    const msgpack_object *items = NULL;
    int stop = 0;
    embd__read_fields(&f, &answer->reader, "scan");
    uint32_t n = embd__field_list_required(&f, "tables", LIMIT_TABLES, &items);
    embd__fields_end(&f);
    for (uint32_t i = 0; i < n && stop == 0 && answer->reader.error->status == EMBD_OK; i++) {
        struct cut_table table;
        read_table(&answer->reader, &items[i], &table);
        if (answer->reader.error->status == EMBD_OK)
            stop = visit(arg, shard, &table);
    }
    return stop;
}

int embd__cut_tables(embd_client *client, const struct cut_reading *cut, uint32_t shard,
                     int (*visit)(void *arg, uint32_t shard, const struct cut_table *table),
                     void *arg)
{
    struct answer *answer;
    struct msg *m = embd__admin_begin(client, METHOD_SCAN);
    embd__msg_map(m, 1);
    embd__msg_field_uint(m, "cut", cut->job.id);
    int status = embd__request(client, shard, LISTENER_ADMIN, &answer);
    if (status != EMBD_OK)
        return status;
    int stop = visit_tables(answer, shard, visit, arg);
    if (stop != 0) { /* the visitor has set the error */
        embd__answer_free(answer);
        return stop;
    }
    return embd__admin_end(client, shard, METHOD_SCAN, answer);
}
