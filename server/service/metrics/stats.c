/* stats.c - the answer to `stats`: the lists of report.c as maps. */
#include <stdio.h>

#include "server/service/metrics/figures.h"
#include "server/service/authorize.h"
#include "server/service/state.h"

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
    struct figure figures[REPORT_SHARD_FIGURES];
    uint32_t n = shard_figures(shard, figures);
    embd__msg_map(m, n + METHOD_COUNT);
    write_figures(m, figures, n);
    write_requests(m, &shard->counters);
}

static void write_table(struct msg *m, const struct shard *shard, const struct table *table)
{
    struct figure figures[REPORT_TABLE_FIGURES];
    uint32_t n = table_figures(shard, table, figures);
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
    uint32_t n = 0;
    embd__read_fields(&f, &call->reader, "stats");
    if (call_end(call, &f) != EMBD_OK)
        return call->error.status;
    for (uint32_t i = 0; i < shard->engine.tables.n; i++)
        n += authorizes_table(call, shard->engine.tables.by_name[i]->schema.s.name);
    struct msg *m = call->answer;
    embd__msg_result(m, call->reader.msgid);
    embd__msg_map(m, 2);
    embd__msg_str(m, "stats");
    write_shard(m, shard);
    embd__msg_str(m, "tables");
    embd__msg_array(m, n);
    for (uint32_t i = 0; i < shard->engine.tables.n; i++)
        if (authorizes_table(call, shard->engine.tables.by_name[i]->schema.s.name))
            write_table(m, shard, shard->engine.tables.by_name[i]);
    return EMBD_OK;
}
