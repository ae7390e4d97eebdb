/* stats.c - the figures of a shard and of its tables, in base units that their names tell.
 * proto/PROTOCOL.md explains each. */
#include <stdio.h>

#include "state.h"

struct figure {
    const char *name;
    uint64_t value;
};

static void write_figures(struct msg *m, const struct figure *figures, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        embd__msg_field_uint(m, figures[i].name, figures[i].value);
}

static void write_requests(struct msg *m, const struct counters *counters)
{
    for (uint32_t i = 0; i < METHOD_COUNT; i++) {
        char name[48];
        snprintf(name, sizeof name, "requests_%s", embd__method_name((enum method)i));
        embd__msg_field_uint(m, name, counters->requests[i]);
    }
}

static void write_shard(struct msg *m, const struct shard *shard)
{
    const struct counters *c = &shard->counters;
    struct shard_net_stats net = {0};
    if (shard->config.net_stats != NULL)
        shard->config.net_stats(shard->config.net_arg, &net);
    const struct figure figures[] = {
        {"uptime_us", (clock_ns() - shard->opened_ns) / 1000},
        {"draining", shard->draining},
        {"tables", shard->tables.n},
        {"keys_pulled", c->keys_pulled},
        {"keys_hit", c->keys_hit},
        {"keys_missing", c->keys_missing},
        {"keys_pushed", c->keys_pushed},
        {"keys_inserted", c->keys_inserted},
        {"keys_filtered", c->keys_filtered},
        {"keys_full", c->keys_full},
        {"pull_us", c->pull_us},
        {"push_us", c->push_us},
        {"pushes_held_us", c->pushes_held_us},
        {"settled_bytes", c->settled_bytes},
        {"settled_memory_bytes", shard->settled_bytes},
        {"snapshots", c->snapshots},
        {"errors", c->errors},
        {"unknown_methods", c->unknown_methods},
        {"notifications_ignored", c->notifications},
        {"requests_parked", c->parked},
        {"connections", net.connections},
        {"requests_in_flight", net.requests_in_flight},
        {"bytes_in", net.bytes_in},
        {"bytes_out", net.bytes_out},
        {"frame_memory_bytes", net.frame_memory_bytes},
        {"frame_errors", net.frame_errors},
    };
    uint32_t n = sizeof figures / sizeof figures[0];
    embd__msg_map(m, n + METHOD_COUNT);
    write_figures(m, figures, n);
    write_requests(m, c);
}

static void write_table(struct msg *m, const struct shard *shard, const struct table *table)
{
    struct store_stats s;
    shard->tables.ops->stats(table->store, &s);
    const struct figure figures[] = {
        {"rows", s.rows},
        {"candidates", s.candidates},
        {"capacity", s.capacity},
        {"row_bytes", s.row_bytes},
        {"index_bytes", s.index_bytes},
        {"index_bytes_per_key",
         s.rows == 0 ? 0 : s.index_bytes / s.rows + (s.index_bytes % s.rows != 0)},
        {"steps", s.steps},
    };
    uint32_t n = sizeof figures / sizeof figures[0];
    embd__msg_map(m, 2);
    embd__msg_field_str(m, "table", table->schema.s.name);
    embd__msg_str(m, "stats");
    embd__msg_map(m, n);
    write_figures(m, figures, n);
}

int handle_stats(struct call *call)
{
    const struct shard *shard = call->shard;
    struct fields f;
    embd__read_fields(&f, &call->reader, "stats");
    if (call_end(call, &f) != EMBD_OK)
        return call->error.status;
    struct msg *m = call->answer;
    embd__msg_result(m, call->reader.msgid);
    embd__msg_map(m, 2);
    embd__msg_str(m, "stats");
    write_shard(m, shard);
    embd__msg_str(m, "tables");
    embd__msg_array(m, shard->tables.n);
    for (uint32_t i = 0; i < shard->tables.n; i++)
        write_table(m, shard, shard->tables.by_name[i]);
    return EMBD_OK;
}
