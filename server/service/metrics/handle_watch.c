/* handle_watch.c - what operators ask about requests: hot (a table's most frequent keys) and trace
 * (the stages of requests that are over). */
#include <stdlib.h>
#include <string.h>

#include "server/service/state.h"

#define HOT_KEYS_MAX 1000u

static int write_hot(struct call *call, const struct hot *hot, uint32_t max)
{
    struct msg *m = call->answer;
    size_t bytes = HOT_SAMPLES * sizeof(uint64_t) + max * (sizeof(struct hot_key) + 12);
    uint64_t *samples = call->work->memory = malloc(bytes);
    if (samples == NULL)
        return embd__error_set(&call->error, EMBD_NO_MEMORY, "no memory for %u keys", max);
    struct hot_key *list = (struct hot_key *)(samples + HOT_SAMPLES);
    uint64_t *keys = (uint64_t *)(list + max);
    uint32_t *counts = (uint32_t *)(keys + max), n = hot_list(hot, samples, max, list);
    for (uint32_t i = 0; i < n; i++) {
        keys[i] = list[i].key;
        counts[i] = list[i].n;
    }
    embd__msg_result(m, call->reader.msgid);
    embd__msg_map(m, 4);
    embd__msg_field_uint(m, "keys", n);
    embd__msg_field_uint(m, "samples", hot->n_taken < HOT_SAMPLES ? hot->n_taken : HOT_SAMPLES);
    embd__msg_field_uint(m, "taken", hot->n_taken);
    embd__msg_field_uint(m, "stride", HOT_STRIDE);
    embd__msg_bin(m, keys, n * sizeof *keys);
    embd__msg_bin(m, counts, n * sizeof *counts);
    return EMBD_OK;
}

int handle_hot(struct call *call)
{
    struct fields f;
    char name[EMBD_NAME_MAX + 1];
    embd__read_fields(&f, &call->reader, "hot");
    embd__field_str(&f, "table", name, sizeof name, NULL);
    uint64_t max = embd__field_uint(&f, "keys", 1, HOT_KEYS_MAX, 10);
    if (call_end(call, &f) != EMBD_OK)
        return call->error.status;
    const struct table *table = tables_find(&call->shard->engine.tables, name, &call->error);
    return table == NULL ? call->error.status : write_hot(call, &table->hot, (uint32_t)max);
}

static void write_trace(struct msg *m, const struct trace *trace, uint64_t now_ns)
{
    embd__msg_map(m, 3 + STAGE_COUNT);
    embd__msg_field_str(m, "method", embd__method_name((enum method)trace->method));
    embd__msg_field_uint(m, "age_us", (now_ns - trace->sent_ns) / 1000);
    embd__msg_field_uint(m, "bytes", trace->bytes);
    for (uint32_t i = 0; i < STAGE_COUNT; i++) {
        static const char *const names[STAGE_COUNT] = {"queue_ns", "decode_ns", "store_ns",
                                                       "encode_ns", "send_ns"};
        embd__msg_field_uint(m, names[i], trace->ns[i]);
    }
}

int handle_trace(struct call *call)
{
    const struct stages *stages = &call->shard->stages;
    struct fields f;
    embd__read_fields(&f, &call->reader, "trace");
    uint64_t max = embd__field_uint(&f, "requests", 1, STAGES_TRACES, STAGES_TRACES);
    if (call_end(call, &f) != EMBD_OK)
        return call->error.status;
    uint64_t n = stages->n_traces < max ? stages->n_traces : max, now_ns = clock_ns();
    embd__msg_result(call->answer, call->reader.msgid);
    embd__msg_map(call->answer, 1);
    embd__msg_str(call->answer, "requests");
    embd__msg_array(call->answer, (uint32_t)n);
    for (uint64_t i = 1; i <= n; i++)
        write_trace(call->answer, &stages->traces[(stages->n_traces - i) % STAGES_TRACES], now_ns);
    return EMBD_OK;
}
