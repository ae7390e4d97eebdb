/* run.c - one workload and what embd reached.
 *
 * Shards run on the first processors, clients on those after them, all in turn where there are more
 * than processors. */
#include "client/bench/run.h"

#include "client/bench/embd_side.h"
#include "client/bench/measure.h"
#include "client/bench/report.h"

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
    [CPU_NS] = {"cpu_ns_per_key", "cpu ns/key", "%.1f", 1},
    [FOREIGN] = {"foreign_cores", "foreign", "%.2f", 1},
    [STEAL] = {"stolen_cores", "stolen", "%.2f", 1},
};

/* Bytes of rows or gradients that a key stands for. */
static double row_bytes(const struct workload_spec *spec)
{
    double bytes = (double)spec->dim * sizeof(float);
    return spec->mix == MIX_TRAIN ? 2 * bytes : bytes / spec->keys_per_row;
}

static void add_row(struct report_table *t, const struct contender *c, const struct options *o)
{
    struct report_cell *row = report_row(t);
    struct spread keys = measure_spread(c, o->rounds, measure_keys_per_s);
    snprintf(row[WHAT].text, sizeof row[WHAT].text, "%s", c->name);
    row[KEYS].number = keys.median;
    row[KEYS_MIN].number = keys.min;
    row[KEYS_MAX].number = keys.max;
    row[ROW_BYTES].number = keys.median * row_bytes(&o->work);
    row[P50].number = histogram_quantile(&c->latencies, 0.5) * 1e-3;
    row[P99].number = histogram_quantile(&c->latencies, 0.99) * 1e-3;
    row[P999].number = histogram_quantile(&c->latencies, 0.999) * 1e-3;
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
        {"transport", o->transport, 0},
        {"lent", o->lent ? "yes" : "no", 0},
        {"durability", embd_durability_name(o->durability), 0},
        {"shards", NULL, o->servers ? (double)NAN : o->shards},
        {"clients", NULL, o->clients},
        {"in_flight", NULL, o->in_flight},
        {"rate", NULL, o->rate > 0 ? o->rate : (double)NAN},
        {"rounds", NULL, o->rounds},
        {"seconds", NULL, o->seconds},
        {"embd_version", embd_version(), 0},
    };
    int rc = o->json ? report_print_json(stdout, facts, sizeof facts / sizeof *facts, t, 1)
                     : report_print(stdout, t, 1);
    return rc ? FAILED : DONE;
}

/* Opens a client for each thread and has them all move the workload. */
static int measure_side(const struct side *side, const struct workload *w, const struct options *o,
                        struct contender *c)
{
    const struct measure_plan plan = {o->rounds, o->seconds, o->rate, &side->process.pid,
                                      side->process.pid > 0};
    struct cpu_list cpus;
    int code = DONE;
    cpu_list_place(&cpus, &o->client_cpus, &o->allowed, o->servers ? 0 : o->shards, o->clients);
    *c = (struct contender){.name = "embd", .workload = w};
    while (code == DONE && c->n_movers < o->clients) {
        code = side_mover_open(side, w, o, o->plan, &c->movers[c->n_movers]);
        c->cpus[c->n_movers] = cpus.ids[c->n_movers];
        c->n_movers += code == DONE;
    }
    if (code == DONE)
        code = measure(c, 1, &plan);
    contender_close(c);
    return code;
}

static int report(const struct options *o, const struct contender *c)
{
    struct report_table table = {"results", columns, N_COLUMNS, NULL, 0};
    add_row(&table, c, o);
    int code = print(o, &table);
    report_fini(&table);
    return code;
}

int run_workload(const struct options *options)
{
    struct side side;
    struct workload w = {0};
    struct cpu_list cpus;
    struct contender *c = calloc(1, sizeof *c);
    if (!c || workload_init(&w, &options->work)) {
        fprintf(stderr, "embd-bench: out of memory for %u batches of %u keys\n", WORKLOAD_BATCHES,
                options->work.batch);
        free(c);
        return FAILED;
    }
    cpu_list_place(&cpus, &options->server_cpus, &options->allowed, 0, options->shards);
    int code = side_open(&side, options, options->work.table_keys, options->work.dim,
                         options->shards, &cpus);
    if (code == DONE) {
        code = measure_side(&side, &w, options, c);
        side_close(&side);
    }
    if (code == DONE)
        code = report(options, c);
    workload_fini(&w);
    free(c);
    return code;
}
