/* main.c - embd-example-dlrm: learns clicks from 13 numbers and 26 keys a sample, with its
 * embeddings on embd.
 *
 * The log is made up, so that what there is to learn is known: the AUC is shown beside that of the
 * model that made the clicks. The files in reading order: planted (the truth), click_log (the data
 * sets), mlp and model (the dense part), trainer (embd). */
#include "client/examples/startup.h"
#include "client/examples/dlrm/trainer.h"

#include <stdlib.h>

#define MARGIN 0.03 /* how close to the planted AUC the model is to come */

typedef struct settings {
    const char *servers;
    const char *generate;
    const char *data, *held_out;
    uint64_t samples;
    uint64_t passes, batch, threads;
    bool no_prefetch;
} settings;

enum {
    FLAG_SERVERS = 256,
    FLAG_GENERATE,
    FLAG_SAMPLES,
    FLAG_DATA,
    FLAG_HELD_OUT,
    FLAG_PASSES,
    FLAG_BATCH,
    FLAG_THREADS,
    FLAG_NO_PREFETCH
};

static const struct argp_option flags[] = {
    {"generate", FLAG_GENERATE, "FOLDER", 0,
     "make FOLDER, and write the data sets FOLDER/train and FOLDER/held-out", 0},
    {"samples", FLAG_SAMPLES, "N", 0, "for training, and a quarter of that held out (400000)", 0},
    {"data", FLAG_DATA, "norm:LIST|raw:FILE", 0, "train with this data set", 0},
    {"held-out", FLAG_HELD_OUT, "norm:LIST|raw:FILE", 0, "evaluate with this one", 0},
    {"servers", FLAG_SERVERS, "HOST:PORT[,...]", 0, STARTUP_SERVERS_DOC, 0},
    {"passes", FLAG_PASSES, "N", 0, "passes over the data (2)", 0},
    {"batch", FLAG_BATCH, "N", 0, "samples of a call (256)", 0},
    {"threads", FLAG_THREADS, "N", 0, "that read data (1)", 0},
    {"no-prefetch", FLAG_NO_PREFETCH, NULL, 0,
     "wait for each call where it is started; the result is the same to the last bit", 0},
    {0},
};

static error_t take_flag(int key, char *arg, struct argp_state *state)
{
    settings *s = state->input;
    switch (key) {
    case FLAG_SERVERS:
        s->servers = arg;
        return 0;
    case FLAG_GENERATE:
        s->generate = arg;
        return 0;
    case FLAG_SAMPLES:
        s->samples = startup_number(state, arg, 100, 1000000000);
        return 0;
    case FLAG_DATA:
        s->data = startup_data_name(state, arg);
        return 0;
    case FLAG_HELD_OUT:
        s->held_out = startup_data_name(state, arg);
        return 0;
    case FLAG_PASSES:
        s->passes = startup_number(state, arg, 1, 1000);
        return 0;
    case FLAG_BATCH:
        s->batch = startup_number(state, arg, 1, 65536);
        return 0;
    case FLAG_THREADS:
        s->threads = startup_number(state, arg, 1, 64);
        return 0;
    case FLAG_NO_PREFETCH:
        s->no_prefetch = true;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "'%s' is not understood", arg);
        return EINVAL;
    case ARGP_KEY_END:
        if (!s->generate && (!s->data || !s->held_out))
            argp_error(state, "--generate, or --data and --held-out are needed");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static bool run(trainer *t, const settings *s)
{
    pass_report r;
    for (uint64_t pass = 0; pass < s->passes; pass++) {
        if (!trainer_learn(t, s->data, &r))
            return false;
        printf("pass %llu: %llu samples, loss %.4f, %.1f s\n", (unsigned long long)pass + 1,
               (unsigned long long)r.samples, r.loss, r.seconds);
        if (!s->no_prefetch && r.pull_us > 0)
            printf("a pull takes %.0f us, of which %.0f us are waited for: %.0f %% hidden\n",
                   r.pull_us, r.waited_us, 100 * (1 - r.waited_us / r.pull_us));
    }
    if (!trainer_evaluate(t, s->held_out, &r))
        return false;
    printf("held out: %llu samples, planted AUC %.4f, %s within %.2f of it\n",
           (unsigned long long)r.samples, r.planted_auc,
           r.auc >= r.planted_auc - MARGIN ? "reached" : "not reached", MARGIN);
    printf("AUC %.17g\n", r.auc); /* all digits, so that two runs can be compared */
    return true;
}

static bool train(const settings *s)
{
    trainer t;
    bool ok =
        trainer_open(&t, s->servers, (uint32_t)s->batch, (uint32_t)s->threads, !s->no_prefetch) &&
        run(&t, s);
    trainer_close(&t);
    return ok;
}

int main(int argc, char **argv)
{
    settings s = {
        .servers = startup_servers(), .samples = 400000, .passes = 2, .batch = 256, .threads = 1};
    startup_parse(flags, take_flag, "Trains a deep learning recommendation model on a click log.",
                  argc, argv, &s);
    bool ok = !s.generate || click_log_write(s.generate, s.samples);
    return ok && (!s.data || !s.held_out || train(&s)) ? EXIT_SUCCESS : EXIT_FAILURE;
}
