/* suite.c - the bars: what is measured, against what, and how much of it embd must reach.
 *
 * One server thread on one core and one client thread on another, batches of 65,536 keys, tables of
 * 1 M and 10 M rows, dim 16 and 64, uniform and Zipf 1.05; each ratio is the median over
 * alternating rounds. For each table size and dim one stage is built, and on it:
 * - pull: raw rows against the gather ceiling; at dim 64 also against the bare transport
 * - pooled: eight keys a row against the peer that adds eight rows
 * - push: one sgd step against the peer that adds each row
 * - plans: the default plan against the better of the two forced ones, 1 and 8 keys a row
 * - small: 64 keys at a time, dim 16: median latency against the bare round trip
 * And with two stages beside each other:
 * - shards: two shards and two clients against one and one, total throughput */
#include "tests/bench/suite/suite.h"

#include "client/bench/mover.h"
#include "client/bench/report.h"
#include "tests/bench/suite/stage.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define POOLED_KEYS 8u
#define SMALL_KEYS  64u
#define SMALL_DIM   16u
#define ZIPF        1.05
#define ROLES_MAX   4u

enum column {
    WHAT,
    TABLE_KEYS,
    DIM,
    KEYS_DRAWN,
    AGAINST,
    SENSE,
    BAR,
    STRETCH,
    MEDIAN,
    MIN,
    MAX,
    VERDICT,
    EMBD,
    OTHER,
    FOREIGN,
    STEAL,
    N_COLUMNS
};

static const struct report_column columns[N_COLUMNS] = {
    [WHAT] = {"what", "what", NULL, 0},
    [TABLE_KEYS] = {"table_keys", "M rows", "%g", 1e-6},
    [DIM] = {"dim", "dim", "%.0f", 1},
    [KEYS_DRAWN] = {"keys", "keys", NULL, 0},
    [AGAINST] = {"against", "against", NULL, 0},
    [SENSE] = {"sense", "", NULL, 0},
    [BAR] = {"bar", "bar", "%.2f", 1},
    [STRETCH] = {"stretch", "stretch", "%.2f", 1},
    [MEDIAN] = {"ratio", "ratio", "%.3f", 1},
    [MIN] = {"ratio_min", "min", "%.3f", 1},
    [MAX] = {"ratio_max", "max", "%.3f", 1},
    [VERDICT] = {"verdict", "", NULL, 0},
    [EMBD] = {"embd", "embd", "%.4g", 1},
    [OTHER] = {"other", "other", "%.4g", 1},
    [FOREIGN] = {"foreign_cores", "foreign", "%.2f", 1},
    [STEAL] = {"stolen_cores", "stolen", "%.2f", 1},
};

/* What embd is held to. */
struct bar {
    const char *what, *against;
    bool at_most; /* else at least */
    double bar, stretch;
};

static const struct bar pull_bar = {"pull", "gather ceiling", false, 0.80, 1.0};
static const struct bar wire_bar = {"pull", "bare transport", false, 0.45, 0.6};
static const struct bar pooled_bar = {"pull, 8 keys a row", "pooling ceiling", false, 0.75, 1.0};
static const struct bar push_bar = {"push", "adding ceiling", false, 0.70, 0.9};
static const struct bar plan_bars[2] = {
    {"auto plan", "best forced plan", false, 0.95, 1.0},
    {"auto plan, 8 keys a row", "best forced plan", false, 0.95, 1.0}};
static const struct bar shards_bar = {"2 shards, 2 clients", "1 shard, 1 client", false, 1.0, NAN};
static const struct bar small_bar = {"pull of 64 keys, p50 us", "bare round trip", true, 1.5, 1.2};

/* One run of the suite. */
struct suite {
    const struct options *options;
    const char *parts;
    struct report_table table;
    struct contender *contenders; /* [ROLES_MAX] */
    uint32_t missed;
};

static const char *const part_names[] = {"pull", "pooled", "push", "plans", "small", "shards"};

/* Whether `name` stands in the comma-separated list. */
static bool lists(const char *list, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || at[length] == '\0'))
            return true;
    }
    return false;
}

bool suite_has(const char *parts)
{
    size_t known = 0, commas = 0;
    for (size_t i = 0; i < sizeof part_names / sizeof *part_names; i++)
        known += lists(parts, part_names[i]);
    for (const char *at = parts; *at; at++)
        commas += *at == ',';
    return *parts == '\0' || known == commas + 1;
}

static bool wants(const struct suite *s, const char *part)
{
    return *s->parts == '\0' || lists(s->parts, part);
}

/* ---- verdicts -------------------------------------------------------------------------------- */

static bool reaches(const struct bar *bar, double ratio, double goal)
{
    return bar->at_most ? ratio <= goal : ratio >= goal;
}

static const char *judge(struct suite *s, const struct bar *bar, double ratio)
{
    if (!reaches(bar, ratio, bar->bar)) {
        s->missed++;
        return "missed";
    }
    return !isnan(bar->stretch) && reaches(bar, ratio, bar->stretch) ? "stretch" : "met";
}

static void put_text(struct report_cell *cell, const char *text)
{
    snprintf(cell->text, sizeof cell->text, "%s", text);
}

static void put_spread(struct report_cell *row, struct spread ratio)
{
    row[MEDIAN].number = ratio.median;
    row[MIN].number = ratio.min;
    row[MAX].number = ratio.max;
}

/* A line as soon as it is known: the suite takes minutes. */
static void show(const struct report_cell *row)
{
    fprintf(stderr, "%s, %g M rows, dim %.0f, %s: %.3f of %s (bar %.2f): %s\n", row[WHAT].text,
            row[TABLE_KEYS].number * 1e-6, row[DIM].number, row[KEYS_DRAWN].text,
            row[MEDIAN].number, row[AGAINST].text, row[BAR].number, row[VERDICT].text);
}

/* embd is contenders[0]; `ratio` is against contenders[other]. */
static void add_result(struct suite *s, const struct bar *bar, const struct workload_spec *spec,
                       struct spread ratio, uint32_t other, measure_figure *figure)
{
    const struct contender *c = s->contenders;
    uint32_t rounds = s->options->rounds;
    double scale = figure == measure_keys_per_s ? 1e-6 : 1;
    struct report_cell *row = report_row(&s->table);
    put_text(&row[WHAT], bar->what);
    row[TABLE_KEYS].number = (double)spec->table_keys;
    row[DIM].number = spec->dim;
    put_text(&row[KEYS_DRAWN], spec->zipf > 0 ? "zipf 1.05" : "uniform");
    put_text(&row[AGAINST], bar->against);
    put_text(&row[SENSE], bar->at_most ? "<=" : ">=");
    row[BAR].number = bar->bar;
    row[STRETCH].number = bar->stretch;
    put_spread(row, ratio);
    put_text(&row[VERDICT], judge(s, bar, ratio.median));
    row[EMBD].number = measure_spread(&c[0], rounds, figure).median * scale;
    row[OTHER].number = measure_spread(&c[other], rounds, figure).median * scale;
    row[FOREIGN].number = measure_spread(&c[0], rounds, measure_foreign).median;
    row[STEAL].number = measure_spread(&c[0], rounds, measure_steal).median;
    show(row);
}

static void add_ratio(struct suite *s, const struct bar *bar, const struct workload_spec *spec,
                      uint32_t other, measure_figure *figure)
{
    struct spread ratio =
        measure_ratio(&s->contenders[0], &s->contenders[other], s->options->rounds, figure);
    add_result(s, bar, spec, ratio, other, figure);
}

/* ---- on one stage ---------------------------------------------------------------------------- */

static int run_pull(struct suite *s, const struct stage *stage, struct workload_spec spec)
{
    const enum stage_role roles[] = {ROLE_EMBD, ROLE_CEILING, ROLE_BARE};
    uint32_t n = spec.dim >= 64 ? 3 : 2;
    spec.mix = MIX_PULL;
    int code = stage_run(stage, &spec, roles, n, s->contenders);
    if (code == DONE)
        add_ratio(s, &pull_bar, &spec, 1, measure_keys_per_s);
    if (code == DONE && n == 3)
        add_ratio(s, &wire_bar, &spec, 2, measure_keys_per_s);
    return code;
}

static int run_against_ceiling(struct suite *s, const struct stage *stage,
                               struct workload_spec spec, enum workload_mix mix,
                               const struct bar *bar)
{
    const enum stage_role roles[] = {ROLE_EMBD, ROLE_CEILING};
    spec.mix = mix;
    spec.keys_per_row = mix == MIX_POOLED ? POOLED_KEYS : 1;
    int code = stage_run(stage, &spec, roles, 2, s->contenders);
    if (code == DONE)
        add_ratio(s, bar, &spec, 1, measure_keys_per_s);
    return code;
}

static int run_plans(struct suite *s, const struct stage *stage, struct workload_spec spec,
                     uint32_t keys_per_row, const struct bar *bar)
{
    const enum stage_role roles[] = {ROLE_EMBD, ROLE_POOLED, ROLE_ROWS};
    uint32_t rounds = s->options->rounds;
    spec.keys_per_row = keys_per_row;
    spec.mix = keys_per_row > 1 ? MIX_POOLED : MIX_PULL;
    int code = stage_run(stage, &spec, roles, 3, s->contenders);
    if (code != DONE)
        return code;
    const struct contender *c = s->contenders;
    struct spread ratio = measure_ratio_to_best(&c[0], &c[1], 2, rounds, measure_keys_per_s);
    double pooled = measure_spread(&c[1], rounds, measure_keys_per_s).median;
    double rows = measure_spread(&c[2], rounds, measure_keys_per_s).median;
    add_result(s, bar, &spec, ratio, pooled >= rows ? 1 : 2, measure_keys_per_s);
    return DONE;
}

static int run_small(struct suite *s, const struct stage *stage, struct workload_spec spec)
{
    const enum stage_role roles[] = {ROLE_EMBD, ROLE_BARE};
    spec.mix = MIX_PULL;
    spec.batch = SMALL_KEYS;
    int code = stage_run(stage, &spec, roles, 2, s->contenders);
    if (code == DONE)
        add_ratio(s, &small_bar, &spec, 1, measure_p50_us);
    return code;
}

/* All parts of one table size, dim and distribution. */
static int run_parts(struct suite *s, const struct stage *stage, const struct workload_spec *spec,
                     bool is_first_size)
{
    int code = DONE;
    if (wants(s, "pull"))
        code = run_pull(s, stage, *spec);
    if (code == DONE && wants(s, "pooled"))
        code = run_against_ceiling(s, stage, *spec, MIX_POOLED, &pooled_bar);
    if (code == DONE && wants(s, "push"))
        code = run_against_ceiling(s, stage, *spec, MIX_PUSH, &push_bar);
    if (code == DONE && wants(s, "plans") && is_first_size)
        code = run_plans(s, stage, *spec, 1, &plan_bars[0]);
    if (code == DONE && wants(s, "plans") && is_first_size)
        code = run_plans(s, stage, *spec, POOLED_KEYS, &plan_bars[1]);
    if (code == DONE && wants(s, "small") && is_first_size && spec->dim == SMALL_DIM)
        code = run_small(s, stage, *spec);
    return code;
}

static int run_stage(struct suite *s, struct workload_spec spec, bool is_first_size)
{
    struct stage *stage = malloc(sizeof *stage);
    int code =
        stage ? stage_open(stage, s->options, spec.table_keys, spec.dim, 1, 1, true) : FAILED;
    if (code == DONE) {
        spec.zipf = 0;
        code = run_parts(s, stage, &spec, is_first_size);
        spec.zipf = ZIPF;
        if (code == DONE)
            code = run_parts(s, stage, &spec, is_first_size);
        stage_close(stage);
    }
    free(stage);
    return code;
}

/* ---- two stages ------------------------------------------------------------------------------ */

static int run_beside(struct suite *s, const struct stage stages[2],
                      const struct workload_spec *spec)
{
    const struct stage *both[] = {&stages[0], &stages[1]};
    struct contender *c = s->contenders;
    struct workload w;
    pid_t pids[4];
    struct measure_plan plan = stage_plan(both, 2, pids);
    if (workload_init(&w, spec))
        return FAILED;
    int code = stage_contender(&stages[0], ROLE_EMBD, &w, &c[0]);
    if (code == DONE) {
        code = stage_contender(&stages[1], ROLE_EMBD, &w, &c[1]);
        if (code == DONE) {
            code = measure(c, 2, &plan);
            contender_close(&c[1]);
        }
        contender_close(&c[0]);
    }
    workload_fini(&w);
    if (code == DONE)
        add_ratio(s, &shards_bar, spec, 1, measure_keys_per_s);
    return code;
}

/* The pair is built once and runs both distributions. */
static int run_shards(struct suite *s, struct workload_spec spec)
{
    const struct options *o = s->options;
    struct stage *stages = calloc(2, sizeof *stages);
    int code = stages ? stage_open(&stages[0], o, spec.table_keys, spec.dim, 2, 2, false) : FAILED;
    if (code == DONE) {
        code = stage_open(&stages[1], o, spec.table_keys, spec.dim, 1, 1, false);
        if (code == DONE) {
            spec.zipf = 0;
            code = run_beside(s, stages, &spec);
            spec.zipf = ZIPF;
            if (code == DONE)
                code = run_beside(s, stages, &spec);
            stage_close(&stages[1]);
        }
        stage_close(&stages[0]);
    }
    free(stages);
    return code;
}

/* ---- the suite ------------------------------------------------------------------------------- */

static int run_all(struct suite *s)
{
    const struct options *o = s->options;
    const uint64_t all_sizes[] = {1000000, 10000000};
    const uint32_t all_dims[] = {16, 64};
    const uint64_t *sizes = o->keys_given ? &o->work.table_keys : all_sizes;
    const uint32_t *dims = o->dim_given ? &o->work.dim : all_dims;
    uint32_t n_sizes = o->keys_given ? 1 : 2, n_dims = o->dim_given ? 1 : 2;
    struct workload_spec spec = {.batch = o->work.batch, .keys_per_row = 1};
    bool only_shards = strcmp(s->parts, "shards") == 0;
    int code = DONE;
    for (uint32_t k = 0; k < n_sizes && code == DONE; k++) {
        for (uint32_t d = 0; d < n_dims && code == DONE; d++) {
            spec.table_keys = sizes[k];
            spec.dim = dims[d];
            if (!only_shards)
                code = run_stage(s, spec, k == 0);
            if (code == DONE && wants(s, "shards") && k == 0)
                code = run_shards(s, spec);
        }
    }
    return code;
}

static int print(const struct suite *s)
{
    const struct options *o = s->options;
    const struct report_fact facts[] = {
        {"batch", NULL, o->work.batch}, {"in_flight", NULL, o->in_flight},
        {"rounds", NULL, o->rounds},    {"seconds", NULL, o->seconds},
        {"missed", NULL, s->missed},    {"embd_version", embd_version(), 0},
    };
    int rc = o->json ? report_print_json(stdout, facts, sizeof facts / sizeof *facts, &s->table, 1)
                     : report_print(stdout, &s->table, 1);
    return rc ? FAILED : DONE;
}

int suite_run(const struct options *options, const char *parts, bool check)
{
    struct suite s = {
        .options = options, .parts = parts, .table = {"bars", columns, N_COLUMNS, NULL, 0}};
    s.contenders = calloc(ROLES_MAX, sizeof *s.contenders);
    int code = s.contenders ? run_all(&s) : FAILED;
    if (code == DONE)
        code = print(&s);
    if (code == DONE && check && s.missed)
        code = FAILED;
    report_fini(&s.table);
    free(s.contenders);
    return code;
}
