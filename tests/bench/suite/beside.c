/* beside.c - one workload and its table: what each side reached, and embd as a share of it.
 *
 * Shares are of throughput, or of the median latency where latency is what was asked for (--small,
 * --rate). */
#include "tests/bench/suite/beside.h"

#include "client/bench/mover.h"
#include "client/bench/report.h"
#include "tests/bench/suite/stage.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum column {
    WHAT,
    KEYS,
    KEYS_MIN,
    KEYS_MAX,
    ROW_BYTES,
    P50,
    P99,
    P999,
    SHARE,
    SHARE_MIN,
    SHARE_MAX,
    CPU_NS,
    FOREIGN,
    STEAL,
    N_COLUMNS
};

static const struct report_column columns[N_COLUMNS] = {
    [WHAT] = {"what", "", NULL, 0},
    [KEYS] = {"keys_per_s", "M keys/s", "%.2f", 1e-6},
    [KEYS_MIN] = {"keys_per_s_min", "min", "%.2f", 1e-6},
    [KEYS_MAX] = {"keys_per_s_max", "max", "%.2f", 1e-6},
    [ROW_BYTES] = {"row_bytes_per_s", "GB/s", "%.2f", 1e-9},
    [P50] = {"p50_us", "p50 us", "%.1f", 1},
    [P99] = {"p99_us", "p99", "%.1f", 1},
    [P999] = {"p999_us", "p999", "%.1f", 1},
    [SHARE] = {"embd_ratio", "embd/this", "%.3f", 1},
    [SHARE_MIN] = {"embd_ratio_min", "min", "%.3f", 1},
    [SHARE_MAX] = {"embd_ratio_max", "max", "%.3f", 1},
    [CPU_NS] = {"cpu_ns_per_key", "cpu ns/key", "%.1f", 1},
    [FOREIGN] = {"foreign_cores", "foreign", "%.2f", 1},
    [STEAL] = {"stolen_cores", "stolen", "%.2f", 1},
};

static bool is_about_latency(const struct options *o)
{
    return o->small || o->rate > 0;
}

/* Bytes of rows or gradients that a key stands for. */
static double row_bytes(const struct workload_spec *spec)
{
    double bytes = (double)spec->dim * sizeof(float);
    return spec->mix == MIX_TRAIN ? 2 * bytes : bytes / spec->keys_per_row;
}

static void add_row(struct report_table *t, const struct contender *c, const struct contender *embd,
                    const struct options *o)
{
    struct report_cell *row = report_row(t);
    struct spread keys = measure_spread(c, o->rounds, measure_keys_per_s);
    bool has_latency = c->latencies.n > 0;
    struct spread share = {NAN, NAN, NAN};
    if (!is_about_latency(o) && c != embd)
        share = measure_ratio(embd, c, o->rounds, measure_keys_per_s);
    else if (has_latency && c != embd)
        share = measure_ratio(embd, c, o->rounds, measure_p50_us);
    snprintf(row[WHAT].text, sizeof row[WHAT].text, "%s", c->name);
    row[KEYS].number = keys.median;
    row[KEYS_MIN].number = keys.min;
    row[KEYS_MAX].number = keys.max;
    row[ROW_BYTES].number = keys.median * row_bytes(&o->work);
    row[P50].number = histogram_quantile(&c->latencies, 0.5) * 1e-3;
    row[P99].number = histogram_quantile(&c->latencies, 0.99) * 1e-3;
    row[P999].number = histogram_quantile(&c->latencies, 0.999) * 1e-3;
    row[SHARE].number = share.median;
    row[SHARE_MIN].number = share.min;
    row[SHARE_MAX].number = share.max;
    row[CPU_NS].number = measure_spread(c, o->rounds, measure_cpu_ns).median;
    row[FOREIGN].number = measure_spread(c, o->rounds, measure_foreign).median;
    row[STEAL].number = measure_spread(c, o->rounds, measure_steal).median;
}

static int print(const struct options *o, const struct report_table *t)
{
    static const char *const plans[] = {"auto", "pooled", "rows"};
    const struct workload_spec *w = &o->work;
    const struct report_fact facts[] = {
        {"mix", workload_mix_name(w->mix), 0},
        {"table_keys", NULL, (double)w->table_keys},
        {"dim", NULL, w->dim},
        {"batch", NULL, w->batch},
        {"keys_per_row", NULL, w->keys_per_row},
        {"zipf", NULL, w->zipf},
        {"dtype", embd_dtype_name(o->dtype), 0},
        {"wire", embd_dtype_name(o->wire), 0},
        {"plan", plans[o->plan], 0},
        {"durability", embd_durability_name(o->durability), 0},
        {"shards", NULL, o->servers ? (double)NAN : o->shards},
        {"clients", NULL, o->clients},
        {"in_flight", NULL, o->in_flight},
        {"rate", NULL, o->rate > 0 ? o->rate : (double)NAN},
        {"rounds", NULL, o->rounds},
        {"seconds", NULL, o->seconds},
        {"ratio_of", is_about_latency(o) ? "p50_us" : "keys_per_s", 0},
        {"embd_version", embd_version(), 0},
    };
    int rc = o->json ? report_print_json(stdout, facts, sizeof facts / sizeof *facts, t, 1)
                     : report_print(stdout, t, 1);
    return rc ? FAILED : DONE;
}

/* The gather has no requests, so it has no latency to compare. */
static uint32_t choose_roles(const struct options *o, enum stage_role roles[4])
{
    uint32_t n = 0;
    roles[n++] = ROLE_BARE;
    roles[n++] = ROLE_CEILING;
    if (o->work.mix != MIX_PUSH && !is_about_latency(o))
        roles[n++] = ROLE_MEMORY;
    roles[n++] = ROLE_EMBD;
    return n;
}

int beside_run(const struct options *options)
{
    enum stage_role roles[4];
    uint32_t n = choose_roles(options, roles);
    struct stage *stage = malloc(sizeof *stage);
    struct contender *contenders = calloc(n, sizeof *contenders);
    struct report_table table = {"results", columns, N_COLUMNS, NULL, 0};
    int code = stage && contenders
                   ? stage_open(stage, options, options->work.table_keys, options->work.dim,
                                options->shards, options->clients, true)
                   : FAILED;
    if (code == DONE) {
        code = stage_run(stage, &options->work, roles, n, contenders);
        stage_close(stage);
    }
    for (uint32_t i = 0; i < n && code == DONE; i++)
        add_row(&table, &contenders[i], &contenders[n - 1], options);
    if (code == DONE)
        code = print(options, &table);
    report_fini(&table);
    free(contenders);
    free(stage);
    return code;
}
