/* http_metrics.c - /metrics, in Prometheus' text format 0.0.4: base units (seconds, bytes),
 * counters end in _total, labels are shard, table, method and stage, never a key.
 *
 * Each figure of a shard's report has its metric in a table below; one that has none is shown as
 * embd_figure{name=...}, which a test takes for a mistake. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "server/net/http/host.h"
#include "server/net/http/http_pages.h"

enum kind { GAUGE, COUNTER };

struct metric {
    const char *figure; /* of the report */
    const char *name, *help;
    enum kind kind;
    double unit; /* a figure of 1 in the metric's base unit */
};

#define MICROS             1e-6
#define ARCHIVE_LINE_BYTES 8400u /* of a place's name, and more */

static const struct metric shard_metrics[] = {
    {"uptime_us", "embd_shard_uptime_seconds", "Time since the shard started.", GAUGE, MICROS},
    {"draining", "embd_shard_draining", "1 while the shard finishes and takes no new work.", GAUGE,
     1},
    {"loading", "embd_shard_loading",
     "1 while the shard replays its journal or loads a snapshot, and takes no requests.", GAUGE, 1},
    {"loading_bytes", "embd_shard_loading_bytes",
     "Bytes of the journal or snapshot replayed so far.", GAUGE, 1},
    {"loading_total_bytes", "embd_shard_loading_total_bytes",
     "Bytes of the journal or snapshot to replay; 0 once that is done.", GAUGE, 1},
    {"replacement_in_doubt", "embd_shard_replacement_in_doubt",
     "1 while shard 0 has yet to say whether prepared tables take the places of others, or keys "
     "move.",
     GAUGE, 1},
    {"restored_cut", "embd_shard_restored_cut",
     "Cut of the snapshot restored at start; 0: none. It should be the same on all shards.", GAUGE,
     1},
    {"restored_rows", "embd_shard_restored_rows", "Rows restored from the snapshot at start.",
     GAUGE, 1},
    {"restored_without_journal", "embd_shard_restored_without_journal",
     "1 if the start found no journal and restored durable tables from the snapshot as well.",
     GAUGE, 1},
    {"directory_refused", "embd_data_dir_refused",
     "1 while the data directory is another server's, older or empty, and the shard serves "
     "nothing.",
     GAUGE, 1},
    {"directories_accepted", "embd_data_dir_accepted",
     "Times such a data directory was accepted (--accept-empty).", GAUGE, 1},
    {"servers_at_other_cuts", "embd_servers_at_other_cuts",
     "Servers that began with another snapshot than this one, where rows came from either.", GAUGE,
     1},
    {"journal_damages", "embd_journal_damages",
     "Times journal damage was accepted and the changes behind it were dropped.", GAUGE, 1},
    {"deposed", "embd_shard_deposed",
     "1 since another server was promoted in the place of this one, and the shard serves nothing.",
     GAUGE, 1},
    {"follows", "embd_shard_follows",
     "1 while the shard takes the records of another server, and serves no trainer.", GAUGE, 1},
    {"follow_connected", "embd_follow_connected", "1 while the server that is followed answers.",
     GAUGE, 1},
    {"follow_position", "embd_follow_position",
     "Records that this follower has applied; 0 while it takes the base.", GAUGE, 1},
    {"follow_behind_us", "embd_follow_behind_seconds",
     "Time since this follower had all records of the server that it follows.", GAUGE, MICROS},
    {"follow_behind_records", "embd_follow_behind_records",
     "Records that this follower lacked when it was answered last.", GAUGE, 1},
    {"follow_behind_bytes", "embd_follow_behind_bytes",
     "Bytes of records that this follower lacked when it was answered last.", GAUGE, 1},
    {"follow_digests_same", "embd_follow_digests_same_total",
     "Comparisons of this follower's tables with those of its server that found no difference.",
     COUNTER, 1},
    {"follow_digests_other", "embd_follow_digests_other_total",
     "Comparisons of this follower's tables with those of its server that found a difference.",
     COUNTER, 1},
    {"follow_digests_failed", "embd_follow_digests_failed_total",
     "Comparisons that were given up: a side needed its tables for something else.", COUNTER, 1},
    {"follow_digests_differ", "embd_follow_digests_differ",
     "1 since a comparison found a difference, until another one finds none.", GAUGE, 1},
    {"follow_digest_us", "embd_follow_digest_seconds",
     "Time since this follower's tables were compared last; 0: never.", GAUGE, MICROS},
    {"followers", "embd_followers", "Servers that follow this shard and are connected.", GAUGE, 1},
    {"followers_behind_us", "embd_followers_behind_seconds",
     "Longest time that a connected follower has lacked records.", GAUGE, MICROS},
    {"followers_behind_bytes", "embd_followers_behind_bytes",
     "Most bytes of records that a connected follower lacks.", GAUGE, 1},
    {"recent_records_bytes", "embd_recent_records_bytes",
     "Memory of the records written last, which are kept while a server follows.", GAUGE, 1},
    {"replicas", "embd_replicas", "Followers that take the records of this shard's journal now.",
     GAUGE, 1},
    {"replicas_missing", "embd_replicas_missing",
     "How many fewer followers take records than the setting replicas asks for.", GAUGE, 1},
    {"replicas_lacking_us", "embd_replicas_lacking_seconds",
     "Time since fewer followers take records than replicas asks for; 0 without replicated tables.",
     GAUGE, MICROS},
    {"replicated_waiting", "embd_replicated_waiting",
     "Answers to changes of replicated tables that wait for followers.", GAUGE, 1},
    {"journal_bytes", "embd_journal_bytes",
     "Bytes of the journal: its base and the records behind it.", GAUGE, 1},
    {"journal_base_bytes", "embd_journal_base_bytes",
     "Bytes written by the last compaction of the journal; 0: none yet.", GAUGE, 1},
    {"journal_reserved_bytes", "embd_journal_reserved_bytes",
     "Bytes of the disk that are reserved for the next compaction of the journal.", GAUGE, 1},
    {"journal_base_age_us", "embd_journal_base_age_seconds",
     "Time since the last compaction of the journal; 0: none yet, or unknown.", GAUGE, MICROS},
    {"journal_bases", "embd_journal_bases_total", "Compactions of the journal since the start.",
     COUNTER, 1},
    {"journal_base_errors", "embd_journal_base_errors_total",
     "Compactions of the journal that failed; the journal was kept.", COUNTER, 1},
    {"journal_errors", "embd_journal_errors_total",
     "Requests refused because the journal could not be written.", COUNTER, 1},
    {"journal_syncs", "embd_journal_syncs_total", "Times the journal was synced.", COUNTER, 1},
    {"journal_sync_us", "embd_journal_sync_seconds_total", "Time spent syncing the journal.",
     COUNTER, MICROS},
    {"journal_sync_longest_us", "embd_journal_sync_longest_seconds",
     "Longest sync of the journal in the last one to two minutes.", GAUGE, MICROS},
    {"row_memory_bytes", "embd_row_memory_bytes",
     "Memory of rows, optimizer state, keys, candidates and copies for snapshots.", GAUGE, 1},
    {"row_memory_limit_bytes", "embd_row_memory_limit_bytes",
     "This shard's part of row_memory; 0: no limit.", GAUGE, 1},
    {"row_memory_refusals", "embd_row_memory_refusals_total",
     "Requests refused because their rows need more than is left of row_memory.", COUNTER, 1},
    {"tables", "embd_tables", "Tables of the shard.", GAUGE, 1},
    {"keys_pulled", "embd_keys_pulled_total", "Keys pulled.", COUNTER, 1},
    {"keys_hit", "embd_keys_hit_total",
     "Pulled keys that had a row (pulls that ask for statuses only).", COUNTER, 1},
    {"keys_missing", "embd_keys_missing_total",
     "Pulled keys that had no row (pulls that ask for statuses only).", COUNTER, 1},
    {"keys_pushed", "embd_keys_pushed_total", "Keys pushed and applied.", COUNTER, 1},
    {"keys_inserted", "embd_keys_inserted_total", "Keys that got a row.", COUNTER, 1},
    {"keys_filtered", "embd_keys_filtered_total",
     "Keys without a row because they were not seen admit_after times yet.", COUNTER, 1},
    {"keys_full", "embd_keys_full_total", "Keys without a row because the table is full.", COUNTER,
     1},
    {"keys_evicted", "embd_keys_evicted_total",
     "Keys whose row was evicted for other keys (on_full).", COUNTER, 1},
    {"keys_erased", "embd_keys_erased_total", "Keys whose row was erased.", COUNTER, 1},
    {"pull_us", "embd_pull_seconds_total", "Time spent on pulls.", COUNTER, MICROS},
    {"push_us", "embd_push_seconds_total", "Time spent on pushes.", COUNTER, MICROS},
    {"pushes_held_us", "embd_pushes_held_seconds_total", "Time pushes waited for a hold to end.",
     COUNTER, MICROS},
    {"materialized_bytes", "embd_materialized_bytes_total",
     "Bytes of in-flight responses materialized before a write.", COUNTER, 1},
    {"materialized_memory_bytes", "embd_materialized_memory_bytes",
     "Memory of materialized responses that are not sent yet.", GAUGE, 1},
    {"snapshots", "embd_snapshots_total", "Snapshots written.", COUNTER, 1},
    {"snapshot_errors", "embd_snapshot_errors_total", "Snapshot phases that failed.", COUNTER, 1},
    {"snapshot_jobs_failed", "embd_snapshot_jobs_failed_total",
     "Snapshots of the cluster that this process coordinated and that failed, reported by its "
     "first "
     "shard.",
     COUNTER, 1},
    {"snapshot_age_us", "embd_snapshot_age_seconds",
     "Age of the newest snapshot, reported by the first shard of each process; 0: none.", GAUGE,
     MICROS},
    {"round_steps", "embd_round_steps_total",
     "Synchronous rounds applied: one optimizer step from the pushes of several workers.", COUNTER,
     1},
    {"pushes_again", "embd_pushes_again_total",
     "Retried pushes that had been applied before, and were not applied again.", COUNTER, 1},
    {"push_streams", "embd_push_streams", "Streams of numbered pushes that the shard remembers.",
     GAUGE, 1},
    {"round_pushes_waiting", "embd_round_pushes_waiting",
     "Pushes that wait for other workers of their round.", GAUGE, 1},
    {"errors", "embd_errors_total", "Requests answered with an error.", COUNTER, 1},
    {"unknown_methods", "embd_unknown_methods_total", "Requests for unknown methods.", COUNTER, 1},
    {"notifications_ignored", "embd_notifications_ignored_total",
     "Notifications received and ignored.", COUNTER, 1},
    {"requests_parked", "embd_requests_parked_total",
     "Requests that had to wait for a hold, a round or a store.", COUNTER, 1},
    {"denied", "embd_denied_total",
     "Requests refused because token, role or table permission is missing.", COUNTER, 1},
    {"connections", "embd_connections", "Open connections, data and admin.", GAUGE, 1},
    {"local_connections", "embd_local_connections",
     "Open connections of the data socket, of clients on this host.", GAUGE, 1},
    {"requests_in_flight", "embd_requests_in_flight",
     "Requests received in part or whole and not yet completely answered.", GAUGE, 1},
    {"bytes_in", "embd_received_bytes_total", "Bytes received.", COUNTER, 1},
    {"bytes_out", "embd_sent_bytes_total", "Bytes sent.", COUNTER, 1},
    {"shared_memory_bytes", "embd_shared_memory_bytes",
     "Memory that clients on this host share with the server, part of frame_memory.", GAUGE, 1},
    {"frame_memory_bytes", "embd_frame_memory_bytes", "Memory for requests being received.", GAUGE,
     1},
    {"frame_errors", "embd_frame_errors_total",
     "Connections dropped because their bytes were not a valid frame.", COUNTER, 1},
    {"late_us", "embd_shard_late_seconds_total",
     "Time by which the shard's thread came to its sockets too late; requests wait unread "
     "meanwhile.",
     COUNTER, MICROS},
    {"late_longest_us", "embd_shard_late_longest_seconds",
     "Longest such time in the last one to two minutes.", GAUGE, MICROS},
};
#define N_SHARD_METRICS (sizeof shard_metrics / sizeof shard_metrics[0])

static const struct metric table_metrics[] = {
    {"rows", "embd_table_rows", "Rows of the table.", GAUGE, 1},
    {"candidates", "embd_table_candidates",
     "Keys seen fewer than admit_after times, which have no row yet.", GAUGE, 1},
    {"capacity", "embd_table_capacity_rows", "Rows that fit into the memory allocated now.", GAUGE,
     1},
    {"row_bytes", "embd_table_row_bytes", "Memory of rows and optimizer state.", GAUGE, 1},
    {"index_bytes", "embd_table_index_bytes", "Memory of the index.", GAUGE, 1},
    {"steps", "embd_table_steps_total", "Optimizer steps.", COUNTER, 1},
    {"clock_seconds", "embd_table_clock_seconds",
     "Clock of a table whose rows expire by ttl_seconds, as UNIX time; 0: of others.", GAUGE, 1},
    {"evicted", "embd_table_evicted_rows_total", "Rows evicted.", COUNTER, 1},
    {"candidates_forgotten", "embd_table_forgotten_candidates_total",
     "Candidates forgotten because there were too many of them.", COUNTER, 1},
};
#define N_TABLE_METRICS (sizeof table_metrics / sizeof table_metrics[0])

/* The names are labels. */
static const struct metric lost_rows[] = {
    {"evicted_lru", ",reason=\"evict_lru\"", NULL, COUNTER, 1},
    {"evicted_lfu", ",reason=\"evict_lfu\"", NULL, COUNTER, 1},
    {"evicted_ttl", ",reason=\"evict_ttl\"", NULL, COUNTER, 1},
    {"evicted_score", ",reason=\"evict_score\"", NULL, COUNTER, 1},
    {"evicted_capacity", ",reason=\"capacity\"", NULL, COUNTER, 1},
    {"erased", ",reason=\"erase\"", NULL, COUNTER, 1},
};

/* Figures without a metric: quantiles and ratios, which Prometheus computes from the others. */
static const char *const left_out[] = {"index_bytes_per_key",
                                       "pull_p50_us",
                                       "pull_p99_us",
                                       "push_p50_us",
                                       "push_p99_us",
                                       "follow_freshness_p50_us",
                                       "follow_freshness_p99_us"};

static void begin(struct text *out, const char *name, const char *type, const char *help)
{
    text_print(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static const struct figure *find(const struct figure *figures, uint32_t n, const char *name)
{
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(figures[i].name, name) == 0)
            return &figures[i];
    return NULL;
}

/* Counts are exact; only figures with another unit become fractions. */
static void print_value(struct text *out, const struct metric *metric, uint64_t value)
{
    if (metric->unit == 1)
        text_print(out, "%llu\n", (unsigned long long)value);
    else
        text_print(out, "%.9g\n", (double)value * metric->unit);
}

static const char *type_of(const struct metric *metric)
{
    return metric->kind == COUNTER ? "counter" : "gauge";
}

/* ---- figures ---- */

static void write_shard_metric(struct text *out, const struct http_view *view,
                               const struct metric *metric)
{
    begin(out, metric->name, type_of(metric), metric->help);
    for (uint32_t i = 0; i < view->n_shards; i++) {
        const struct shard_report *r = view->shards[i].report;
        const struct figure *figure =
            r != NULL ? find(r->figures, r->n_figures, metric->figure) : NULL;
        if (figure == NULL)
            continue;
        text_print(out, "%s{shard=\"%u\"} ", metric->name, r->shard);
        print_value(out, metric, figure->value);
    }
}

static void write_of_tables(struct text *out, const struct http_view *view, const char *name,
                            const char *of, const struct metric *metric)
{
    for (uint32_t i = 0; i < view->n_shards; i++) {
        const struct shard_report *r = view->shards[i].report;
        for (uint32_t j = 0; r != NULL && j < r->n_tables; j++) {
            const struct table_report *table = &r->tables[j];
            const struct figure *figure = find(table->figures, table->n_figures, metric->figure);
            if (figure == NULL)
                continue;
            text_print(out, "%s{shard=\"%u\",table=\"%s\"%s} ", name, r->shard, table->name, of);
            print_value(out, metric, figure->value);
        }
    }
}

static void write_table_metric(struct text *out, const struct http_view *view,
                               const struct metric *metric)
{
    begin(out, metric->name, type_of(metric), metric->help);
    write_of_tables(out, view, metric->name, "", metric);
}

/* One metric, by reason. */
static void write_lost_rows(struct text *out, const struct http_view *view)
{
    static const char name[] = "embd_table_lost_rows_total";
    begin(out, name, "counter", "Rows that went, by reason.");
    for (size_t i = 0; i < sizeof lost_rows / sizeof *lost_rows; i++)
        write_of_tables(out, view, name, lost_rows[i].name, &lost_rows[i]);
}

/* ---- tokens ---- */

struct token_metric {
    const char *name, *help;
    size_t value; /* its place in struct token_use */
};

static const struct token_metric token_metrics[] = {
    {"embd_token_tables", "Tables under the prefixes of a token that has limits.",
     offsetof(struct token_use, tables)},
    {"embd_token_tables_limit", "Tables that the token may have.",
     offsetof(struct token_use, most_tables)},
    {"embd_token_row_bytes", "Memory of the rows of these tables.",
     offsetof(struct token_use, row_bytes)},
    {"embd_token_row_bytes_limit", "Memory that they may take.",
     offsetof(struct token_use, most_row_bytes)},
    {"embd_token_snapshots",
     "Complete snapshots of the token's jobs in the data directory, reported by the first shard of "
     "each process.",
     offsetof(struct token_use, snapshots)},
    {"embd_token_snapshots_limit", "Snapshots that there may be when one more begins.",
     offsetof(struct token_use, most_snapshots)},
    {"embd_token_snapshot_bytes", "Bytes of the files of these snapshots.",
     offsetof(struct token_use, snapshot_bytes)},
    {"embd_token_snapshot_bytes_limit", "Bytes that they may take.",
     offsetof(struct token_use, most_snapshot_bytes)},
};

/* A limit that a token does not have is left out. */
static void write_token_metric(struct text *out, const struct http_view *view,
                               const struct token_metric *metric)
{
    begin(out, metric->name, "gauge", metric->help);
    for (uint32_t i = 0; i < view->n_shards; i++) {
        const struct shard_report *r = view->shards[i].report;
        for (uint32_t t = 0; r != NULL && t < r->n_tokens; t++) {
            uint64_t value;
            memcpy(&value, (const char *)&r->tokens[t] + metric->value, sizeof value);
            if (value != UINT64_MAX)
                text_print(out, "%s{shard=\"%u\",token=\"%s\"} %llu\n", metric->name, r->shard,
                           r->tokens[t].name, (unsigned long long)value);
        }
    }
}

static bool is_known(const struct metric *metrics, size_t n, const char *figure)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(metrics[i].figure, figure) == 0)
            return true;
    for (size_t i = 0; i < sizeof left_out / sizeof left_out[0]; i++)
        if (strcmp(left_out[i], figure) == 0)
            return true;
    return false;
}

static void write_unnamed(struct text *out, const struct http_view *view)
{
    bool has_begun = false;
    for (uint32_t i = 0; i < view->n_shards; i++) {
        const struct shard_report *r = view->shards[i].report;
        for (uint32_t j = 0; r != NULL && j < r->n_figures; j++) {
            if (is_known(shard_metrics, N_SHARD_METRICS, r->figures[j].name))
                continue;
            if (!has_begun)
                begin(out, "embd_figure", "gauge", "Figures without a metric of their own.");
            has_begun = true;
            text_print(out, "embd_figure{shard=\"%u\",name=\"%s\"} %llu\n", r->shard,
                       r->figures[j].name, (unsigned long long)r->figures[j].value);
        }
    }
}

/* ---- requests and durations ---- */

static void write_requests(struct text *out, const struct http_view *view)
{
    begin(out, "embd_requests_total", "counter", "Requests handled, by method.");
    for (uint32_t i = 0; i < view->n_shards; i++) {
        const struct shard_report *r = view->shards[i].report;
        for (uint32_t m = 0; r != NULL && m < METHOD_COUNT; m++)
            text_print(out, "embd_requests_total{shard=\"%u\",method=\"%s\"} %llu\n", r->shard,
                       embd__method_name((enum method)m), (unsigned long long)r->requests[m]);
    }
}

/* Buckets of every `step`-th power of two from 1 us on. */
static void write_histogram(struct text *out, const char *name, const char *labels,
                            const struct histogram *h, uint32_t step)
{
    for (uint32_t power = 10; power <= HISTOGRAM_HIGH; power += step)
        text_print(out, "%s_bucket{%s,le=\"%.9g\"} %llu\n", name, labels,
                   (double)(UINT64_C(1) << power) / 1e9,
                   (unsigned long long)histogram_up_to(h, power));
    unsigned long long count = histogram_count(h);
    text_print(out, "%s_bucket{%s,le=\"+Inf\"} %llu\n", name, labels, count);
    text_print(out, "%s_sum{%s} %.9g\n", name, labels, (double)h->sum_ns / 1e9);
    text_print(out, "%s_count{%s} %llu\n", name, labels, count);
}

static void write_durations(struct text *out, const struct http_view *view)
{
    begin(out, "embd_request_duration_seconds", "histogram",
          "From the last byte of a request to the last byte of its answer.");
    for (uint32_t i = 0; i < view->n_shards; i++) {
        const struct shard_report *r = view->shards[i].report;
        for (uint32_t m = 0; r != NULL && m < METHOD_COUNT; m++) {
            char labels[96];
            bool is_data = stages_index((int)m) >= 0;
            if (!is_data && r->requests[m] == 0)
                continue;
            snprintf(labels, sizeof labels, "shard=\"%u\",method=\"%s\"", r->shard,
                     embd__method_name((enum method)m));
            write_histogram(out, "embd_request_duration_seconds", labels, &r->methods[m],
                            is_data ? 1 : 4);
        }
    }
}

/* Of followers alone. */
static void write_freshness(struct text *out, const struct http_view *view)
{
    begin(out, "embd_follow_freshness_seconds", "histogram",
          "From the acknowledgement of a change by the server that is followed until this follower "
          "has applied it, at most; each record counts.");
    for (uint32_t i = 0; i < view->n_shards; i++) {
        const struct shard_report *r = view->shards[i].report;
        char labels[32];
        if (r == NULL || !r->follows)
            continue;
        snprintf(labels, sizeof labels, "shard=\"%u\"", r->shard);
        write_histogram(out, "embd_follow_freshness_seconds", labels, &r->freshness, 1);
    }
}

static void write_stages(struct text *out, const struct http_view *view)
{
    begin(out, "embd_stage_duration_seconds", "histogram",
          "Time of pulls and pushes by stage. Of requests below 16 KiB one in 31 is measured and "
          "counted 32 times.");
    for (uint32_t i = 0; i < view->n_shards; i++) {
        const struct shard_report *r = view->shards[i].report;
        for (uint32_t m = 0; r != NULL && m < STAGED_METHODS; m++)
            for (uint32_t s = 0; s < STAGE_COUNT; s++) {
                char labels[96];
                snprintf(labels, sizeof labels, "shard=\"%u\",method=\"%s\",stage=\"%s\"", r->shard,
                         embd__method_name(stages_method(m)), stage_name((enum stage)s));
                write_histogram(out, "embd_stage_duration_seconds", labels, &r->stages[m][s], 2);
            }
    }
}

/* ---- the process ---- */

static void write_gauge(struct text *out, const char *name, const char *help, uint64_t value)
{
    begin(out, name, "gauge", help);
    text_print(out, "%s %llu\n", name, (unsigned long long)value);
}

static void write_host(struct text *out, const struct http_process *process)
{
    struct host_room room;
    write_gauge(out, "embd_process_memory_limit_bytes",
                "Memory the process may use: that of the machine, or the limit of its cgroup.",
                host_memory_limit());
    write_gauge(out, "embd_connections_limit",
                "Data connections a shard accepts (max_connections).", process->max_connections);
    write_gauge(out, "embd_etcd_silent",
                "1 while etcd does not answer; 0 where the cluster does not use etcd.",
                process->etcd_silent != NULL && atomic_load(process->etcd_silent));
    if (process->data_dir == NULL || !host_room_read(process->data_dir, &room))
        return;
    write_gauge(out, "embd_data_dir_free_bytes",
                "Free bytes of the file system that holds the data directory.", room.free_bytes);
    write_gauge(out, "embd_data_dir_size_bytes",
                "Size of the file system that holds the data directory.", room.bytes);
}

/* Those of the program that keeps it, as it has written them. */
static void write_archive(struct text *out, const struct http_process *process)
{
    char line[ARCHIVE_LINE_BYTES];
    if (process->archive_figures == NULL)
        return;
    write_gauge(out, "embd_archive_runs",
                "1 while embctl backup --every runs for this server (the setting archive).",
                process->archive_runs);
    FILE *file = fopen(process->archive_figures, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        text_print(out, "%s", line);
    if (file != NULL)
        fclose(file);
}

static void write_process(struct text *out, const struct http_view *view)
{
    struct process_usage usage;
    const char *store = "";
    process_usage_read(&usage);
    begin(out, "embd_shard_up", "gauge", "1 if the shard answered in time.");
    for (uint32_t i = 0; i < view->n_shards; i++) {
        bool is_up = view->shards[i].report != NULL;
        store = is_up ? view->shards[i].report->store : store;
        text_print(out, "embd_shard_up{shard=\"%u\"} %d\n", view->process->first_shard + i, is_up);
    }
    begin(out, "embd_build_info", "gauge", "Always 1; the labels are the version and the store.");
    text_print(out, "embd_build_info{version=\"%s\",store=\"%s\"} 1\n", EMBD_VERSION, store);
    begin(out, "embd_process_cpu_seconds_total", "counter", "Processor time of the process.");
    text_print(out, "embd_process_cpu_seconds_total %.6f\n", usage.cpu_seconds);
    begin(out, "embd_process_resident_memory_bytes", "gauge", "Memory the process occupies.");
    text_print(out, "embd_process_resident_memory_bytes %llu\n",
               (unsigned long long)usage.resident_bytes);
    begin(out, "embd_process_open_fds", "gauge", "Open file descriptors.");
    text_print(out, "embd_process_open_fds %llu\n", (unsigned long long)usage.open_files);
    begin(out, "embd_certificate_expires_timestamp_seconds", "gauge",
          "Unix time at which the TLS certificate, or one sent with it, expires; 0: no TLS.");
    text_print(out, "embd_certificate_expires_timestamp_seconds %lld\n",
               (long long)view->process->certificate_expires);
    begin(out, "embd_frame_memory_used_bytes", "gauge",
          "Memory charged to frame_memory: connections, requests and answers.");
    text_print(out, "embd_frame_memory_used_bytes %llu\n",
               (unsigned long long)atomic_load(&view->process->quota->used));
    begin(out, "embd_frame_memory_limit_bytes", "gauge", "Limit set by frame_memory.");
    text_print(out, "embd_frame_memory_limit_bytes %llu\n",
               (unsigned long long)view->process->quota->limit);
    write_host(out, view->process);
}

int http_metrics_write(struct text *out, const struct http_view *view)
{
    write_process(out, view);
    write_archive(out, view->process);
    for (size_t i = 0; i < N_SHARD_METRICS; i++)
        write_shard_metric(out, view, &shard_metrics[i]);
    write_requests(out, view);
    write_durations(out, view);
    write_stages(out, view);
    write_freshness(out, view);
    for (size_t i = 0; i < N_TABLE_METRICS; i++)
        write_table_metric(out, view, &table_metrics[i]);
    write_lost_rows(out, view);
    for (size_t i = 0; i < sizeof token_metrics / sizeof *token_metrics; i++)
        write_token_metric(out, view, &token_metrics[i]);
    write_unnamed(out, view);
    return 200;
}
