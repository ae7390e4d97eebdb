/* report.c - the figures of a shard and of its tables, in base units that their names contain.
 * proto/PROTOCOL.md explains each; server/net/http/http_metrics.c names each for Prometheus. */
#include "server/service/metrics/report.h"

#include <assert.h>
#include <string.h>

#include "server/identity/identity.h"
#include "server/service/compacting.h"
#include "server/service/doubt.h"
#include "server/service/feeding.h"
#include "server/service/following.h"
#include "server/service/metrics/figures.h"
#include "server/service/narrow.h"
#include "server/service/recovery.h"
#include "server/snapshot/snapshot_watch.h"
#include "server/service/state.h"

/* Counted again: nothing is left out. */
static uint64_t memory_bytes(const struct tables *tables)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < tables->n; i++) {
        struct store_stats s;
        tables->ops->stats(tables->by_name[i]->store, &s);
        bytes += s.memory_bytes;
    }
    return bytes;
}

static uint64_t memory_limit(const struct tables *tables)
{
    return tables->memory != NULL ? row_memory_share(tables->memory) : 0;
}

/* 0 too where no table asks for followers. */
static uint64_t replicated_lacks_us(const struct shard *shard)
{
    const struct tables *tables = &shard->engine.tables;
    bool is_any = false;
    for (uint32_t i = 0; i < tables->n && shard->replicated.lacks_ns != 0; i++)
        is_any = is_any || embd__durability_is_replicated(table_durability(tables->by_name[i]));
    return is_any && shard->following == NULL ? (clock_ns() - shard->replicated.lacks_ns) / 1000
                                              : 0;
}

/* Whether or not a table asks for them. */
static uint32_t replicas_missing(const struct shard *shard)
{
    const struct replicated *r = &shard->replicated;
    bool counts = r->lacks_ns != 0 && shard->following == NULL;
    return counts && r->n < shard->config.replicas ? shard->config.replicas - r->n : 0;
}

static bool follows(const struct shard *shard)
{
    return shard->following != NULL || shard->narrow != NULL;
}

static struct following_figures figures_of(const struct shard *shard)
{
    if (shard->narrow != NULL)
        return narrow_figures(shard);
    return shard->following != NULL ? following_figures(shard) : (struct following_figures){0};
}

static uint64_t freshness_us(const struct shard *shard, double quantile)
{
    return shard->narrow != NULL ? narrow_freshness_us(shard, quantile)
                                 : following_freshness_us(shard, quantile);
}

/* Of a follower alone. */
static uint32_t freshness_figures(const struct shard *shard, struct figure *out)
{
    if (!follows(shard))
        return 0;
    out[0] = (struct figure){"follow_freshness_p50_us", freshness_us(shard, 0.5)};
    out[1] = (struct figure){"follow_freshness_p99_us", freshness_us(shard, 0.99)};
    return 2;
}

uint32_t shard_figures(const struct shard *shard, struct figure out[REPORT_SHARD_FIGURES])
{
    const struct counters *c = &shard->counters;
    struct shard_net_stats net = {0};
    if (shard->config.net_stats != NULL)
        shard->config.net_stats(shard->config.net_arg, &net);
    const struct engine_counters *k = &shard->engine.counters;
    struct compacting_figures journal = compacting_figures(shard);
    struct identity_figures identity = {0};
    if (shard->config.identity != NULL)
        identity_figures(shard->config.identity, &identity);
    const struct following_figures behind = figures_of(shard);
    const struct feeding_figures followers = feeding_figures(shard);
    uint64_t loaded, to_load;
    recovery_progress(shard, &loaded, &to_load);
    const struct figure figures[] = {
        {"uptime_us", (clock_ns() - shard->opened_ns) / 1000},
        {"draining", shard->draining},
        {"loading", shard->is_loading},
        {"loading_bytes", loaded},
        {"loading_total_bytes", to_load},
        {"replacement_in_doubt", doubt_is_on(shard)},
        {"restored_cut", shard->restored_cut},
        {"restored_rows", shard->restored_rows},
        {"restored_without_journal", shard->lacked_journal},
        {"directory_refused", identity.is_refused},
        {"directories_accepted", identity.n_accepted},
        {"servers_at_other_cuts", identity.n_other_cuts},
        {"journal_damages", shard->n_damages},
        {"deposed", shard->is_deposed},
        {"follows", follows(shard)},
        {"follow_connected", behind.is_connected},
        {"follow_position", behind.position},
        {"follow_behind_us", behind.us},
        {"follow_behind_records", behind.records},
        {"follow_behind_bytes", behind.bytes},
        {"follow_digests_same", behind.digests_same},
        {"follow_digests_other", behind.digests_other},
        {"follow_digests_failed", behind.digests_failed},
        {"follow_digests_differ", behind.digests_differ},
        {"follow_digest_us", behind.digest_us},
        {"followers", followers.n},
        {"followers_behind_us", followers.us},
        {"followers_behind_bytes", followers.bytes},
        {"recent_records_bytes", followers.recent_bytes},
        {"replicas", shard->replicated.n},
        {"replicas_missing", replicas_missing(shard)},
        {"replicas_lacking_us", replicated_lacks_us(shard)},
        {"replicated_waiting", shard->replicated.n_waiting},
        {"journal_bytes", journal.bytes},
        {"journal_base_bytes", journal.base_bytes},
        {"journal_reserved_bytes", journal.reserved_bytes},
        {"journal_base_age_us", journal.base_age_us},
        {"journal_bases", c->bases},
        {"journal_base_errors", c->base_errors},
        {"journal_errors", shard->commit.n_errors},
        {"journal_syncs", journal.syncs},
        {"journal_sync_us", journal.sync_us},
        {"journal_sync_longest_us", journal.sync_longest_us},
        {"row_memory_bytes", memory_bytes(&shard->engine.tables)},
        {"row_memory_limit_bytes", memory_limit(&shard->engine.tables)},
        {"row_memory_refusals", shard->engine.tables.n_refused},
        {"tables", shard->engine.tables.n},
        {"keys_pulled", c->keys_pulled},
        {"keys_hit", c->keys_hit},
        {"keys_missing", c->keys_missing},
        {"keys_pushed", k->keys_pushed},
        {"keys_inserted", k->keys_inserted},
        {"keys_filtered", k->keys_filtered},
        {"keys_full", k->keys_full},
        {"keys_erased", k->keys_erased},
        {"keys_evicted", k->keys_evicted},
        {"pull_us", c->pull_ns / 1000},
        {"push_us", c->push_ns / 1000},
        {"pushes_held_us", c->pushes_held_us},
        {"materialized_bytes", c->materialized_bytes},
        {"materialized_memory_bytes", shard->materialized_bytes},
        {"snapshots", c->snapshots},
        {"snapshot_errors", c->snapshot_errors},
        {"snapshot_jobs_failed", snapshot_watch_jobs_failed(shard)},
        {"snapshot_age_us", snapshot_watch_age_us(shard)},
        {"round_steps", k->round_steps},
        {"pushes_again", k->pushes_again},
        {"push_streams", shard->engine.pushers.n + shard->engine.journaled_pushers.n},
        {"round_pushes_waiting", shard->engine.rounds.n_waiting},
        {"errors", c->errors},
        {"unknown_methods", c->unknown_methods},
        {"notifications_ignored", c->notifications},
        {"requests_parked", c->parked},
        {"denied", c->denied},
        {"connections", net.connections},
        {"local_connections", net.local_connections},
        {"requests_in_flight", net.requests_in_flight},
        {"bytes_in", net.bytes_in},
        {"bytes_out", net.bytes_out},
        {"frame_memory_bytes", net.frame_memory_bytes},
        {"shared_memory_bytes", net.shared_memory_bytes},
        {"frame_errors", net.frame_errors},
        {"late_us", net.late_us},
        {"late_longest_us", net.late_longest_us},
        {"pull_p50_us", stages_recent_ns(&shard->stages, METHOD_PULL, 0.5) / 1000},
        {"pull_p99_us", stages_recent_ns(&shard->stages, METHOD_PULL, 0.99) / 1000},
        {"push_p50_us", stages_recent_ns(&shard->stages, METHOD_PUSH, 0.5) / 1000},
        {"push_p99_us", stages_recent_ns(&shard->stages, METHOD_PUSH, 0.99) / 1000},
    };
    const uint32_t n = sizeof figures / sizeof *figures;
    _Static_assert(sizeof figures / sizeof *figures + 2 <= REPORT_SHARD_FIGURES,
                   "room for figures");
    memcpy(out, figures, sizeof figures);
    return n + freshness_figures(shard, out + n);
}

uint32_t table_figures(const struct shard *shard, const struct table *table,
                       struct figure out[REPORT_TABLE_FIGURES])
{
    struct store_stats s;
    shard->engine.tables.ops->stats(table->store, &s);
    const struct figure figures[] = {
        {"rows", s.rows},
        {"candidates", s.candidates},
        {"capacity", s.capacity},
        {"row_bytes", s.row_bytes},
        {"index_bytes", s.index_bytes},
        {"index_bytes_per_key",
         s.rows == 0 ? 0 : s.index_bytes / s.rows + (s.index_bytes % s.rows != 0)},
        {"steps", s.steps},
        {"clock_seconds", s.clock},
        {"evicted", s.evicted + table->lost.shrunk},
        {"evicted_lru", table->lost.evicted[EMBD_ON_FULL_EVICT_LRU]},
        {"evicted_lfu", table->lost.evicted[EMBD_ON_FULL_EVICT_LFU]},
        {"evicted_ttl", table->lost.evicted[EMBD_ON_FULL_EVICT_TTL]},
        {"evicted_score", table->lost.evicted[EMBD_ON_FULL_EVICT_SCORE]},
        {"evicted_capacity", table->lost.shrunk},
        {"erased", table->lost.erased},
        {"candidates_forgotten", s.forgotten},
    };
    _Static_assert(sizeof figures / sizeof *figures <= REPORT_TABLE_FIGURES, "room for figures");
    memcpy(out, figures, sizeof figures);
    return sizeof figures / sizeof *figures;
}

static void report_latencies(const struct stages *stages, struct shard_report *out)
{
    memcpy(out->methods, stages->methods, sizeof out->methods);
    memcpy(out->stages, stages->of, sizeof out->stages);
    for (uint32_t i = 0; i < METHOD_COUNT; i++) {
        out->p50_ns[i] = stages_recent_ns(stages, (enum method)i, 0.5);
        out->p99_ns[i] = stages_recent_ns(stages, (enum method)i, 0.99);
    }
}

void shard_report(const struct shard *shard, struct shard_report *out)
{
    const struct tables *tables = &shard->engine.tables;
    out->shard = shard->config.index;
    out->is_draining = shard->draining;
    out->is_loading = shard->is_loading;
    out->is_in_doubt = doubt_is_on(shard);
    out->is_deposed = shard->is_deposed;
    out->follows = follows(shard);
    if (out->follows)
        out->freshness =
            *(shard->narrow != NULL ? narrow_freshness(shard) : following_freshness(shard));
    out->lacks_replicas = replicated_lacks_us(shard) > 0;
    out->store = tables->ops->name;
    out->n_figures = shard_figures(shard, out->figures);
    memcpy(out->requests, shard->counters.requests, sizeof out->requests);
    report_latencies(&shard->stages, out);
    out->n_tables = tables->n;
    for (uint32_t i = 0; i < tables->n; i++) {
        struct table_report *table = &out->tables[i];
        memcpy(table->name, tables->by_name[i]->schema.s.name, sizeof table->name);
        table->n_figures = table_figures(shard, tables->by_name[i], table->figures);
    }
    out->n_tokens = token_use_list(shard, NULL, out->tokens, REPORT_TOKENS);
}
