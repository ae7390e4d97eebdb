/* main.c - embd-example-fm: learns who depends on whom in a Debian archive, with its parameters
 * on embd.
 *
 * Read the archive's indexes, build the graph, hold out a tenth of its edges, measure, train,
 * measure again, show what was learned. The files in reading order: packages (indexes), graph
 * (edges and the split), feature_keys, sampler (pairs), machine (arithmetic), trainer (embd),
 * auc, neighbours; export hands the samples to others, data_set takes them back. */
#include "client/examples/fm/data_set.h"
#include "client/examples/fm/export.h"
#include "client/examples/fm/neighbours.h"
#include "client/examples/startup.h"
#include "client/examples/fm/synthetic.h"

#include <stdlib.h>

#define FILES_MAX 32

typedef struct settings {
    const char *servers;
    const char *files[FILES_MAX];
    const char *export_folder;   /* or NULL */
    const char *data, *held_out; /* data sets instead of packages; or NULL */
    uint32_t n_files;
    uint64_t passes;
    uint64_t batch;
    uint64_t dim;
    uint64_t seed;
    uint64_t limit;
    bool eval_only;
    bool synthetic;
} settings;

/* ---- flags ----------------------------------------------------------------------------------- */

enum {
    FLAG_SERVERS = 256,
    FLAG_PACKAGES,
    FLAG_SYNTHETIC,
    FLAG_PASSES,
    FLAG_BATCH,
    FLAG_DIM,
    FLAG_SEED,
    FLAG_LIMIT,
    FLAG_EVAL_ONLY,
    FLAG_EXPORT,
    FLAG_DATA,
    FLAG_HELD_OUT
};

static const struct argp_option flags[] = {
    {"servers", FLAG_SERVERS, "HOST:PORT[,...]", 0, STARTUP_SERVERS_DOC, 0},
    {"packages", FLAG_PACKAGES, "FILE", 0,
     "a Packages index, also compressed; - is standard input; may be repeated. Without it: the "
     "indexes that apt-get update left on this machine",
     0},
    {"synthetic", FLAG_SYNTHETIC, NULL, 0, "a made-up archive instead", 0},
    {"passes", FLAG_PASSES, "N", 0, "passes over the training edges (1)", 0},
    {"batch", FLAG_BATCH, "N", 0, "samples of a call (1024)", 0},
    {"dim", FLAG_DIM, "N", 0, "factors of a key (16)", 0},
    {"seed", FLAG_SEED, "N", 0, "of the training order (1); the evaluation does not depend on it",
     0},
    {"limit", FLAG_LIMIT, "N", 0, "at most N samples a pass", 0},
    {"eval-only", FLAG_EVAL_ONLY, NULL, 0, "train nothing, change nothing", 0},
    {"export", FLAG_EXPORT, "FOLDER", 0,
     "write the samples of the first pass and the held-out ones as norm data sets FOLDER/train and "
     "FOLDER/held-out, with 64-bit keys; makes FOLDER, needs no server",
     0},
    {"data", FLAG_DATA, "norm:LIST", 0, "train with a data set of the shape that --export writes",
     0},
    {"held-out", FLAG_HELD_OUT, "norm:LIST", 0, "and evaluate with this one", 0},
    {0},
};

static error_t take_flag(int key, char *arg, struct argp_state *state)
{
    settings *s = state->input;
    switch (key) {
    case FLAG_SERVERS:
        s->servers = arg;
        return 0;
    case FLAG_PACKAGES:
        if (s->n_files == FILES_MAX)
            argp_error(state, "more than %d --packages", FILES_MAX);
        s->files[s->n_files++] = arg;
        return 0;
    case FLAG_SYNTHETIC:
        s->synthetic = true;
        return 0;
    case FLAG_PASSES:
        s->passes = startup_number(state, arg, 0, 1000);
        return 0;
    case FLAG_BATCH:
        s->batch = startup_number(state, arg, 1 + NEGATIVES, 65536);
        return 0;
    case FLAG_DIM:
        s->dim = startup_number(state, arg, 1, 256);
        return 0;
    case FLAG_SEED:
        s->seed = startup_number(state, arg, 0, UINT64_MAX);
        return 0;
    case FLAG_LIMIT:
        s->limit = startup_number(state, arg, 1, UINT64_MAX);
        return 0;
    case FLAG_EXPORT:
        s->export_folder = arg;
        return 0;
    case FLAG_EVAL_ONLY:
        s->eval_only = true;
        return 0;
    case FLAG_DATA:
        s->data = startup_data_name(state, arg);
        return 0;
    case FLAG_HELD_OUT:
        s->held_out = startup_data_name(state, arg);
        return 0;
    case ARGP_KEY_END:
        if (s->data && !s->held_out)
            argp_error(state, "--data needs --held-out");
        if (s->held_out && !s->data && !s->eval_only)
            argp_error(state, "--held-out needs --data, or --eval-only");
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "'%s' is not understood", arg);
        return EINVAL;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* ---- data ------------------------------------------------------------------------------------ */

static bool read_files(const settings *s, package_list *list)
{
    for (uint32_t i = 0; i < s->n_files; i++)
        if (!packages_read_path(list, s->files[i]))
            return false;
    printf("data: %u package indexes from --packages\n", s->n_files);
    return true;
}

static bool make_synthetic(package_list *list, const char *reason)
{
    printf("data: SYNTHETIC, a made-up package archive (%s)\n", reason);
    return synthetic_packages(list);
}

static bool read_packages(const settings *s, package_list *list)
{
    uint32_t n_indexes = 0;
    if (s->synthetic)
        return make_synthetic(list, "--synthetic");
    if (s->n_files > 0)
        return read_files(s, list);
    if (!packages_read_apt(list, &n_indexes))
        return false;
    if (list->n_packages == 0)
        return make_synthetic(list,
                              "apt has left no index on this machine; apt-get update fetches one");
    printf("data: %u package indexes that apt-get update left on this machine\n", n_indexes);
    return true;
}

/* ---- the run --------------------------------------------------------------------------------- */

/* How far the popularity of B alone gets: what the model has to beat. */
static bool popularity_auc(const features *f, double *auc_out)
{
    sampler samples;
    batch b;
    if (!sampler_held_out(&samples, f))
        return false;
    scored *scores = malloc((sampler_size(&samples) + 1) * sizeof *scores);
    bool ok = scores && batch_alloc(&b, 4096);
    size_t n = 0;
    while (ok && sampler_fill(&samples, &b))
        for (uint32_t i = 0; i < b.n_samples; i++)
            scores[n++] = (scored){(float)f->graph->popularity[b.targets[i]], b.labels[i]};
    if (ok) {
        *auc_out = auc(scores, n);
        batch_free(&b);
    }
    free(scores);
    sampler_free(&samples);
    return ok;
}

static bool held_out_samples(sampler *samples, const features *f, const settings *s)
{
    return s->held_out ? data_set_samples(samples, s->held_out) : sampler_held_out(samples, f);
}

static bool training_samples(sampler *samples, const features *f, const settings *s, uint64_t pass)
{
    return s->data ? data_set_samples(samples, s->data)
                   : sampler_training(samples, f, packages_mix(s->seed) + pass, s->limit);
}

static bool evaluate(trainer *t, const features *f, const settings *s, pass_report *report_out)
{
    sampler samples;
    if (!held_out_samples(&samples, f, s))
        return false;
    bool ok = trainer_evaluate(t, &samples, report_out);
    sampler_free(&samples);
    return ok;
}

static bool export_set(const settings *s, const char *name, sampler *samples)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", s->export_folder, name);
    bool ok = export_samples(path, samples);
    sampler_free(samples);
    return ok;
}

static bool export_both(const settings *s, const features *f)
{
    sampler samples;
    return startup_make_folder(s->export_folder) &&
           sampler_training(&samples, f, packages_mix(s->seed), s->limit) &&
           export_set(s, "train", &samples) && sampler_held_out(&samples, f) &&
           export_set(s, "held-out", &samples);
}

static bool learn(trainer *t, const features *f, const settings *s, uint64_t pass)
{
    sampler samples;
    pass_report report;
    if (!training_samples(&samples, f, s, pass))
        return false;
    bool ok = trainer_learn(t, &samples, &report);
    sampler_free(&samples);
    if (ok)
        printf("pass %llu: %llu samples, %.1f keys a sample, loss %.4f, %.1f s\n",
               (unsigned long long)pass + 1, (unsigned long long)report.samples,
               (double)report.keys / (double)(report.samples + !report.samples), report.loss,
               report.seconds);
    return ok;
}

static bool train(trainer *t, const features *f, const settings *s)
{
    pass_report report;
    double by_popularity = 0;
    if (!evaluate(t, f, s, &report) || (!s->data && !popularity_auc(f, &by_popularity)))
        return false;
    printf("held out: %llu samples; before training: loss %.4f, AUC %.4f",
           (unsigned long long)report.samples, report.loss, report.auc);
    if (!s->data)
        printf(" (popularity alone: %.4f)", by_popularity);
    printf("\n");
    for (uint64_t pass = 0; pass < s->passes; pass++)
        if (!learn(t, f, s, pass))
            return false;
    if (s->data)
        return true;
    printf("nearest neighbours, by cosine:\n");
    return neighbours_print(t, f);
}

/* The last line of every run; all digits, so that two runs can be compared. */
static bool measure(trainer *t, const features *f, const settings *s)
{
    pass_report report;
    if (!evaluate(t, f, s, &report))
        return false;
    printf("held out: %llu samples, loss %.17g, AUC %.17g\n", (unsigned long long)report.samples,
           report.loss, report.auc);
    return true;
}

static bool run(const settings *s, const features *f)
{
    trainer t;
    bool ok = trainer_open(&t, s->servers, (uint32_t)s->dim, (uint32_t)s->batch, s->eval_only);
    if (ok && !s->eval_only)
        ok = train(&t, f, s);
    ok = ok && measure(&t, f, s);
    trainer_close(&t);
    return ok;
}

/* The packages, their graph, and what is asked for with it. */
static bool run_packages(const settings *s)
{
    package_list packages;
    graph g = {0};
    features f = {0};
    packages_init(&packages);
    bool ok = read_packages(s, &packages) && graph_build(&g, &packages) && features_build(&f, &g);
    if (ok)
        printf("graph: %u packages, %u edges, %u of them held out\n", g.n_nodes, g.n_edges,
               g.n_held_out);
    ok = ok && (s->export_folder ? export_both(s, &f) : run(s, &f));
    features_free(&f);
    graph_free(&g);
    packages_fini(&packages);
    return ok;
}

int main(int argc, char **argv)
{
    settings s = {.servers = startup_servers(), .passes = 1, .batch = 1024, .dim = 16, .seed = 1};
    startup_parse(flags, take_flag,
                  "Trains a factorization machine on the package graph of a Debian archive.", argc,
                  argv, &s);
    return (s.held_out ? run(&s, NULL) : run_packages(&s)) ? EXIT_SUCCESS : EXIT_FAILURE;
}
