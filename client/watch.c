/* watch.c - what operators look at while a cluster works: hot keys, and the stages of requests. */
#include <string.h>

#include "client/formats/admin.h"
#include "client/client.h"

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
        return status;
    read_hot(answer, max_keys, keys_out, counts_out, &report);
    status = embd__admin_end(client, shard, METHOD_HOT, answer);
    if (status == EMBD_OK)
        *report_out = report;
    return status;
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
        return status;
    int stopped = visit_traces(&answer->reader, visit, arg);
    if (stopped != 0) {
        embd__answer_free(answer);
        return stopped;
    }
    return embd__admin_end(client, shard, METHOD_TRACE, answer);
}
