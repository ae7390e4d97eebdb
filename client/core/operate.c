/* operate.c - what operators need of a running cluster: ping, figures, hot keys, the stages of
 * requests, and its end. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/core/client.h"
#include "client/core/request.h"
#include "client/formats/admin.h"
#include "embd/admin.h"

static int ask(embd_client *client, uint32_t shard, enum listener listener, enum method method,
               struct answer **answer_out)
{
    struct msg *m = embd__request_begin(client, method);
    embd__msg_map(m, 0);
    return embd__request(client, shard, listener, answer_out);
}

int embd_ping(embd_client *client, uint32_t shard, uint64_t *microseconds_out)
{
    struct answer *answer;
    client->error = (struct embd__error){0};
    uint64_t begin = uv_hrtime();
    int status = ask(client, shard, LISTENER_DATA, METHOD_PING, &answer);
    if (status != EMBD_OK)
        return embd__error_keep(&client->error, status);
    if (microseconds_out != NULL)
        *microseconds_out = (uv_hrtime() - begin) / 1000;
    embd__answer_free(answer);
    return EMBD_OK;
}

/* ---- figures ---- */

#define STAT_NAME_MAX 63u
#define TOKENS_MAX    4096u

struct visitor {
    int (*visit)(void *arg, const char *of, const char *name, uint64_t value);
    void *arg;
};

/* The map `stats` of `fields`: names and unsigned integers, whatever the server counts. */
static int visit_map(struct fields *fields, const char *table, const struct visitor *visitor)
{
    struct fields stats;
    embd__field_map(fields, "stats", &stats, "stats");
    for (uint32_t i = 0; stats.map != NULL && i < stats.map->size; i++) {
        const msgpack_object_kv *kv = &stats.map->ptr[i];
        char name[STAT_NAME_MAX + 1];
        if (kv->key.type != MSGPACK_OBJECT_STR || kv->key.via.str.size > STAT_NAME_MAX ||
            kv->val.type != MSGPACK_OBJECT_POSITIVE_INTEGER)
            return embd__error_set(
                fields->reader->error, EMBD_PROTOCOL,
                "figure %u of stats is not a name of up to %u bytes with an unsigned integer", i,
                STAT_NAME_MAX);
        memcpy(name, kv->key.via.str.ptr, kv->key.via.str.size);
        name[kv->key.via.str.size] = '\0';
        int status = visitor->visit(visitor->arg, table, name, kv->val.via.u64);
        if (status != 0)
            return status;
    }
    return fields->reader->error->status;
}

/* The list `list` of the answer: maps with a name in the field `named`, and figures. */
static int visit_list(struct fields *fields, const char *list, uint32_t max, const char *named,
                      const struct visitor *visitor)
{
    struct reader *r = fields->reader;
    struct fields item;
    const msgpack_object *items;
    int status = EMBD_OK;
    uint32_t n = embd__field_list(fields, list, max, &items);
    for (uint32_t i = 0; i < n && status == EMBD_OK; i++) {
        char name[EMBD_NAME_MAX + 1];
        embd__list_map(r, &items[i], &item, "an item of stats");
        embd__field_str(&item, named, name, sizeof name, NULL);
        if (r->error->status != EMBD_OK)
            return r->error->status;
        status = visit_map(&item, name, visitor);
    }
    return status != EMBD_OK ? status : r->error->status;
}

static int visit_tables(struct fields *fields, const struct visitor *visitor)
{
    int status = visit_map(fields, NULL, visitor);
    return status != EMBD_OK ? status
                             : visit_list(fields, "tables", LIMIT_TABLES, "table", visitor);
}

/* Servers without limits of tokens send no list. */
static int visit_tokens(struct fields *fields, const struct visitor *visitor)
{
    return visit_list(fields, "tokens", TOKENS_MAX, "token", visitor);
}

static int visit_stats(embd_client *client, uint32_t shard,
                       int (*visit_some)(struct fields *fields, const struct visitor *visitor),
                       const struct visitor *visitor)
{
    struct answer *answer;
    struct fields fields;
    client->error = (struct embd__error){0};
    int status = ask(client, shard, LISTENER_DATA, METHOD_STATS, &answer);
    if (status != EMBD_OK)
        return embd__error_keep(&client->error, status);
    embd__read_fields(&fields, &answer->reader, "stats");
    status = visit_some(&fields, visitor);
    embd__answer_free(answer);
    return embd__error_keep(&client->error, status);
}

int embd_stats(embd_client *client, uint32_t shard,
               int (*visit)(void *arg, const char *table, const char *name, uint64_t value),
               void *arg)
{
    struct visitor visitor = {visit, arg};
    return visit_stats(client, shard, visit_tables, &visitor);
}

int embd_token_stats(embd_client *client, uint32_t shard,
                     int (*visit)(void *arg, const char *token, const char *name, uint64_t value),
                     void *arg)
{
    struct visitor visitor = {visit, arg};
    return visit_stats(client, shard, visit_tokens, &visitor);
}

/* ---- hot keys ---- */

static int read_hot(struct answer *answer, uint32_t max_keys, uint64_t *keys_out,
                    uint32_t *counts_out, embd_hot_report *report_out)
{
    struct reader *r = &answer->reader;
    struct fields f;
    embd__read_fields(&f, r, "hot");
    uint32_t n = (uint32_t)embd__field_uint(&f, "keys", 0, max_keys, FIELD_REQUIRED);
    report_out->samples = embd__field_uint(&f, "samples", 0, UINT64_MAX - 1, FIELD_REQUIRED);
    report_out->taken = embd__field_uint(&f, "taken", 0, UINT64_MAX - 1, FIELD_REQUIRED);
    report_out->stride = (uint32_t)embd__field_uint(&f, "stride", 1, UINT32_MAX, FIELD_REQUIRED);
    embd__fields_end(&f);
    const void *keys = embd__read_bin(r, "keys", (uint64_t)n * sizeof *keys_out);
    const void *counts = embd__read_bin(r, "counts", (uint64_t)n * sizeof *counts_out);
    if (r->error->status != EMBD_OK)
        return r->error->status;
    memcpy(keys_out, keys, n * sizeof *keys_out);
    memcpy(counts_out, counts, n * sizeof *counts_out);
    report_out->n_keys = n;
    return EMBD_OK;
}

int embd_hot(embd_client *client, uint32_t shard, const char *table, uint32_t max_keys,
             uint64_t *keys_out, uint32_t *counts_out, embd_hot_report *report_out)
{
    struct answer *answer;
    embd_hot_report report = {0};
    client->error = (struct embd__error){0};
    struct msg *m = embd__admin_begin(client, METHOD_HOT);
    embd__msg_map(m, 2);
    embd__msg_field_str(m, "table", table);
    embd__msg_field_uint(m, "keys", max_keys);
    int status = embd__request(client, shard, LISTENER_ADMIN, &answer);
    if (status != EMBD_OK)
        return embd__error_keep(&client->error, status);
    read_hot(answer, max_keys, keys_out, counts_out, &report);
    status = embd__admin_end(client, shard, METHOD_HOT, answer);
    if (status == EMBD_OK)
        *report_out = report;
    return embd__error_keep(&client->error, status);
}

/* ---- stages ---- */

#define TRACES_MAX 64u

static void read_trace(struct reader *r, const msgpack_object *item, char method[32],
                       embd_trace_report *out)
{
    static const char *const names[EMBD_STAGES] = {"queue_ns", "decode_ns", "store_ns", "encode_ns",
                                                   "send_ns"};
    struct fields f;
    embd__list_map(r, item, &f, "a request of trace");
    embd__field_str(&f, "method", method, 32, NULL);
    out->method = method;
    out->age_us = embd__field_uint(&f, "age_us", 0, UINT64_MAX - 1, FIELD_REQUIRED);
    out->bytes = embd__field_uint(&f, "bytes", 0, UINT64_MAX - 1, FIELD_REQUIRED);
    for (uint32_t i = 0; i < EMBD_STAGES; i++)
        out->stage_ns[i] = embd__field_uint(&f, names[i], 0, UINT64_MAX - 1, FIELD_REQUIRED);
    embd__fields_end(&f);
}

static int visit_traces(struct reader *r, int (*visit)(void *arg, const embd_trace_report *trace),
                        void *arg)
{
    struct fields f;
    const msgpack_object *items;
    int stop = 0;
    embd__read_fields(&f, r, "trace");
    uint32_t n = embd__field_list(&f, "requests", TRACES_MAX, &items);
    embd__fields_end(&f);
    for (uint32_t i = 0; i < n && r->error->status == EMBD_OK && stop == 0; i++) {
        embd_trace_report trace;
        char method[32];
        read_trace(r, &items[i], method, &trace);
        if (r->error->status == EMBD_OK)
            stop = visit(arg, &trace);
    }
    return stop;
}

int embd_trace(embd_client *client, uint32_t shard,
               int (*visit)(void *arg, const embd_trace_report *trace), void *arg)
{
    struct answer *answer;
    client->error = (struct embd__error){0};
    struct msg *m = embd__admin_begin(client, METHOD_TRACE);
    embd__msg_map(m, 0);
    int status = embd__request(client, shard, LISTENER_ADMIN, &answer);
    if (status != EMBD_OK)
        return embd__error_keep(&client->error, status);
    int stopped = visit_traces(&answer->reader, visit, arg);
    if (stopped != 0) {
        embd__answer_free(answer);
        return embd__error_keep(&client->error, stopped);
    }
    return embd__error_keep(&client->error, embd__admin_end(client, shard, METHOD_TRACE, answer));
}

/* ---- drain ---- */

/* Whoever does not answer at once is not waited for. */
static int try(embd_client *client, uint32_t shard, enum listener listener, enum method method)
{
    struct answer *answer;
    struct msg *m = embd__request_begin(client, method);
    client->request.fail_fast = true;
    embd__msg_map(m, 0);
    int status = embd__request(client, shard, listener, &answer);
    if (status == EMBD_OK)
        embd__answer_free(answer);
    return status;
}

/* Every admin socket must exist before the first process gets the request. A server has ended where
 * trainers do not reach it either; *ended_out says which was the last of these, if there is one. */
static int find_ended(embd_client *client, bool *has_ended, struct embd__error *ended_out)
{
    int status = EMBD_OK;
    for (uint32_t i = 0; i < client->n_shards && status == EMBD_OK; i++) {
        status = try(client, i, LISTENER_ADMIN, METHOD_PING);
        struct embd__error admin = client->error;
        client->error = (struct embd__error){0};
        has_ended[i] = status == EMBD_UNREACHABLE &&
                       try(client, i, LISTENER_DATA, METHOD_PING) == EMBD_UNREACHABLE;
        if (has_ended[i]) {
            *ended_out = client->error;
            status = EMBD_OK;
        }
        client->error = status == EMBD_OK ? (struct embd__error){0} : admin;
    }
    return status;
}

/* After the first process got the request, a shard may be gone, or say that it is shutting down,
 * because its process got the request through another of its shards. */
static int drain_others(embd_client *client, const bool *has_ended)
{
    int status = EMBD_OK;
    bool was_asked = false;
    for (uint32_t i = 0; i < client->n_shards && status == EMBD_OK; i++) {
        if (has_ended[i])
            continue;
        status = try(client, i, LISTENER_ADMIN, METHOD_DRAIN);
        bool is_going =
            status == EMBD_CLOSED || status == EMBD_DRAINING || status == EMBD_UNREACHABLE;
        if (was_asked && is_going) {
            client->error = (struct embd__error){0};
            status = EMBD_OK;
        }
        was_asked = true;
    }
    return status;
}

/* Who names such a server means that one. */
static int check_way(embd_client *client)
{
    client->error = (struct embd__error){0};
    if (!client->came_by_left)
        return EMBD_OK;
    return embd__error_set(&client->error, EMBD_INVALID,
                           "drain: the server at the address given has left the cluster (embctl "
                           "shard retire), and the servers that would be stopped are the others: "
                           "stop it by its service, or name another server");
}

int embd_drain(embd_client *client)
{
    if (check_way(client) != EMBD_OK)
        return embd__error_keep(&client->error, client->error.status);
    bool *has_ended = calloc(client->n_shards, sizeof *has_ended);
    struct embd__error ended = {.status = EMBD_OK};
    if (has_ended == NULL)
        return embd__error_keep(&client->error,
                                embd__error_set(&client->error, EMBD_NO_MEMORY,
                                                "no memory for %u shards", client->n_shards));
    int status = find_ended(client, has_ended, &ended);
    if (status == EMBD_OK)
        status = drain_others(client, has_ended);
    free(has_ended);
    if (status == EMBD_OK && ended.status != EMBD_OK)
        client->error = ended;
    return embd__error_keep(&client->error, client->error.status);
}

int embd_drain_shard(embd_client *client, uint32_t shard)
{
    struct answer *answer;
    int status = check_way(client);
    if (status == EMBD_OK)
        status = ask(client, shard, LISTENER_ADMIN, METHOD_DRAIN, &answer);
    if (status == EMBD_OK)
        embd__answer_free(answer);
    return embd__error_keep(&client->error, status);
}

/* ---- promotion ---- */

#define PROMOTE_S    30u
#define PROMOTE_TURN 10000000 /* nanoseconds between two looks */

static int ask_promote(embd_client *client, bool looks, uint64_t max_behind,
                       struct answer **answer_out)
{
    bool forces = max_behind == EMBD_PROMOTE_FORCE;
    struct msg *m = embd__request_begin(client, METHOD_PROMOTE);
    embd__msg_map(m, 3);
    embd__msg_field_bool(m, "look", looks);
    embd__msg_field_bool(m, "force", forces);
    embd__msg_field_uint(m, "max_behind", forces ? 0 : max_behind);
    return embd__request(client, 0, LISTENER_ADMIN, answer_out);
}

/* EMBD_BUSY: it is under way. */
static int read_promote(embd_client *client, struct answer *answer, embd_promote_report *out)
{
    char state[16], why[320];
    struct fields f;
    embd__read_fields(&f, &answer->reader, "promote");
    embd__field_str(&f, "state", state, sizeof state, NULL);
    embd__field_str(&f, "why", why, sizeof why, "");
    out->epoch = embd__field_uint(&f, "epoch", 0, INT64_MAX, 0);
    out->us = embd__field_uint(&f, "us", 0, UINT64_MAX - 1, 0);
    embd__fields_end(&f);
    int status = embd__admin_end(client, 0, METHOD_PROMOTE, answer);
    if (status != EMBD_OK || strcmp(state, "done") == 0)
        return status;
    if (strcmp(state, "asked") == 0 || strcmp(state, "goes") == 0)
        return EMBD_BUSY;
    return embd__error_set(&client->error, EMBD_INVALID, "promote: %s; nothing was promoted",
                           why[0] != '\0' ? why : "it was not asked for");
}

int embd_promote(embd_client *client, uint64_t max_behind, embd_promote_report *report_out)
{
    static const struct timespec turn = {.tv_nsec = PROMOTE_TURN};
    struct answer *answer;
    embd_promote_report report = {0};
    uint64_t until_ns = uv_hrtime() + PROMOTE_S * 1000000000u;
    client->error = (struct embd__error){0};
    int status = ask_promote(client, false, max_behind, &answer);
    if (status != EMBD_OK)
        return embd__error_keep(&client->error, status);
    status = read_promote(client, answer, &report);
    while (status == EMBD_BUSY && uv_hrtime() < until_ns) {
        nanosleep(&turn, NULL);
        status = ask_promote(client, true, max_behind, &answer);
        status = status != EMBD_OK ? status : read_promote(client, answer, &report);
    }
    if (status == EMBD_BUSY)
        embd__error_set(&client->error, EMBD_BUSY, "promote: still under way after %u s",
                        PROMOTE_S);
    if (status == EMBD_OK && report_out != NULL)
        *report_out = report;
    return embd__error_keep(&client->error, status);
}
