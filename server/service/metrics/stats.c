/* stats.c - the answer to `stats`: the lists of report.c as maps. */
#include <stdio.h>
#include <string.h>

#include "server/service/metrics/figures.h"
#include "server/service/authorize.h"
#include "server/service/state.h"

static void write_figures(struct msg *m, const struct figure *figures, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        embd__msg_field_uint(m, figures[i].name, figures[i].value);
}

/* Clients take 128 figures at most: methods for admins alone are named once they were asked for. */
static bool is_named(const struct counters *counters, uint32_t method)
{
    return counters->requests[method] > 0 ||
           embd__method_listener((enum method)method) != LISTENER_ADMIN;
}

static uint32_t count_named(const struct counters *counters)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < METHOD_COUNT; i++)
        n += is_named(counters, i);
    return n;
}

static void write_requests(struct msg *m, const struct counters *counters)
{
    for (uint32_t i = 0; i < METHOD_COUNT; i++) {
        char name[48];
        if (!is_named(counters, i))
            continue;
        snprintf(name, sizeof name, "requests_%s", embd__method_name((enum method)i));
        embd__msg_field_uint(m, name, counters->requests[i]);
    }
}

static void write_whole(struct msg *m, const struct shard *shard)
{
    struct figure figures[REPORT_SHARD_FIGURES];
    uint32_t n = shard_figures(shard, figures);
    embd__msg_map(m, n + count_named(&shard->counters));
    write_figures(m, figures, n);
    write_requests(m, &shard->counters);
}

/* ---- for a token that is not for all tables: nothing that others do shows ---- */

/* The figures that a client has to know: whether the server is ready, and what it began with. */
static bool is_for_everybody(const char *figure)
{
    static const char *const names[] = {"uptime_us",
                                        "draining",
                                        "loading",
                                        "loading_bytes",
                                        "loading_total_bytes",
                                        "restored_cut",
                                        "directory_refused",
                                        "restored_without_journal",
                                        "replacement_in_doubt",
                                        "deposed",
                                        "follows"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(figure, names[i]) == 0)
            return true;
    return false;
}

static void write_own(struct msg *m, const struct shard *shard, const struct grant *grant)
{
    struct token_use use = token_use_of(&shard->engine.tables, grant);
    struct figure figures[REPORT_SHARD_FIGURES];
    uint32_t n_all = shard_figures(shard, figures), n = 0;
    for (uint32_t i = 0; i < n_all; i++)
        if (is_for_everybody(figures[i].name))
            figures[n++] = figures[i];
    embd__msg_map(m, n + 2);
    write_figures(m, figures, n);
    embd__msg_field_uint(m, "tables", use.tables);
    embd__msg_field_uint(m, "row_memory_bytes", use.row_bytes);
}

/* ---- tokens ---- */

/* Leaves out figures that are not known, and limits that are not set. */
static void write_token(struct msg *m, const struct token_use *use)
{
    const struct figure figures[] = {
        {"tables", use->tables},
        {"tables_limit", use->most_tables},
        {"row_bytes", use->row_bytes},
        {"row_bytes_limit", use->most_row_bytes},
        {"snapshots", use->snapshots},
        {"snapshots_limit", use->most_snapshots},
        {"snapshot_bytes", use->snapshot_bytes},
        {"snapshot_bytes_limit", use->most_snapshot_bytes},
    };
    struct figure told[sizeof figures / sizeof *figures];
    uint32_t n = 0;
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        if (figures[i].value != UINT64_MAX)
            told[n++] = figures[i];
    embd__msg_map(m, 2);
    embd__msg_field_str(m, "token", use->name);
    embd__msg_str(m, "stats");
    embd__msg_map(m, n);
    write_figures(m, told, n);
}

/* ---- all ---- */

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
    struct token_use uses[REPORT_TOKENS];
    uint32_t n = 0;
    embd__read_fields(&f, &call->reader, "stats");
    if (call_end(call, &f) != EMBD_OK)
        return call->error.status;
    bool sees_all = authorizes_table(call, "");
    const struct grant *only = authorizes_tokens(call) ? NULL : call->request->session->grant;
    uint32_t n_tokens = token_use_list(shard, only, uses, REPORT_TOKENS);
    for (uint32_t i = 0; i < shard->engine.tables.n; i++)
        n += authorizes_table(call, shard->engine.tables.by_name[i]->schema.s.name);
    struct msg *m = call->answer;
    embd__msg_result(m, call->reader.msgid);
    embd__msg_map(m, n_tokens > 0 ? 3 : 2);
    embd__msg_str(m, "stats");
    if (sees_all)
        write_whole(m, shard);
    else
        write_own(m, shard, call->request->session->grant);
    embd__msg_str(m, "tables");
    embd__msg_array(m, n);
    for (uint32_t i = 0; i < shard->engine.tables.n; i++)
        if (authorizes_table(call, shard->engine.tables.by_name[i]->schema.s.name))
            write_table(m, shard, shard->engine.tables.by_name[i]);
    if (n_tokens > 0) {
        embd__msg_str(m, "tokens");
        embd__msg_array(m, n_tokens);
    }
    for (uint32_t i = 0; i < n_tokens; i++)
        write_token(m, &uses[i]);
    return EMBD_OK;
}
