/* trainer.c - the loop every trainer on embd has: pull, compute, push, with the next pull
 * already on its way.
 *
 * The happy path of a pass: fill a stage with samples and start its pull; then, over and over,
 * fill the other stage and start its pull, wait for this one's values, turn them into gradients,
 * start the push, change places. A pull therefore misses the one push that was started after it,
 * always the same one: calls to a shard take effect in the order they were started, so a run
 * with the same seed and shards gives the same bits. What can fail: a call. The pass then ends,
 * and closing the client abandons what is still in flight. */
#include "client/examples/fm/trainer.h"

#include "client/examples/fm/machine.h"
#include "client/examples/fm/progress.h"
#include "client/examples/startup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEARNING_RATE    0.1f
#define FACTOR_DEVIATION 0.05f

/* ---- opening --------------------------------------------------------------------------------- */

static bool failed(const trainer *t, const char *what, int status)
{
    fprintf(stderr, "%s: %s: %s\n", what, embd_status_text(status), embd_last_error(t->client));
    return false;
}

/* Weights start at 0 and are summed. Factors start small, each key's with its own values, and
 * are averaged, so that a package with eight dependencies does not outweigh one with two. */
static bool create_tables(trainer *t, uint32_t dim)
{
    embd_schema linear, factors;
    embd_schema_init(&linear);
    embd_schema_init(&factors);
    snprintf(linear.name, sizeof linear.name, LINEAR_TABLE);
    snprintf(factors.name, sizeof factors.name, FACTORS_TABLE);
    linear.dim = 1;
    factors.dim = dim;
    linear.slots = factors.slots = SLOTS;
    linear.combiner = EMBD_COMBINER_SUM;
    factors.combiner = EMBD_COMBINER_MEAN;
    linear.initializer = (embd_initializer){EMBD_INITIALIZER_CONSTANT, 0, 0};
    factors.initializer = (embd_initializer){EMBD_INITIALIZER_NORMAL, 0, FACTOR_DEVIATION};
    embd_optimizer_init(&linear.optimizer, EMBD_OPTIMIZER_ADAGRAD, LEARNING_RATE);
    embd_optimizer_init(&factors.optimizer, EMBD_OPTIMIZER_ADAGRAD, LEARNING_RATE);
    int status = embd_table_create(t->client, &linear);
    if (status == EMBD_OK)
        status = embd_table_create(t->client, &factors);
    return status == EMBD_OK || failed(t, "creating the tables", status);
}

static bool open_tables(trainer *t)
{
    int status = embd_table_open(t->client, LINEAR_TABLE, &t->linear);
    if (status == EMBD_OK)
        status = embd_table_open(t->client, FACTORS_TABLE, &t->factors);
    if (status != EMBD_OK)
        return failed(t, "opening the tables", status);
    const embd_schema *linear = embd_table_schema(t->linear),
                      *factors = embd_table_schema(t->factors);
    t->dim = factors->dim;
    if (linear->dim == 1 && linear->slots == SLOTS && factors->slots == SLOTS)
        return true;
    fprintf(stderr, "tables " LINEAR_TABLE " and " FACTORS_TABLE " are not of this model\n");
    return false;
}

static bool alloc_stage(stage *s, uint32_t room, uint32_t dim)
{
    s->linear = malloc((size_t)room * SLOTS * sizeof *s->linear);
    s->factors = malloc((size_t)room * SLOTS * dim * sizeof *s->factors);
    if (s->linear && s->factors && batch_alloc(&s->samples, room))
        return true;
    fprintf(stderr, "out of memory\n");
    return false;
}

bool trainer_open(trainer *t, const char *servers, uint32_t dim, uint32_t room, bool existing)
{
    *t = (trainer){0};
    t->client =
        startup_connect(servers, true); /* the next batch arrives while this one is computed */
    return t->client && (existing || create_tables(t, dim)) && open_tables(t) &&
           alloc_stage(&t->stages[0], room, t->dim) && alloc_stage(&t->stages[1], room, t->dim);
}

void trainer_close(trainer *t)
{
    embd_close(t->client);
    for (int i = 0; i < 2; i++) {
        batch_free(&t->stages[i].samples);
        free(t->stages[i].linear);
        free(t->stages[i].factors);
    }
    *t = (trainer){0};
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* Both tables take the same keys, in one call. */
static void describe_parts(const trainer *t, const stage *s, embd_part parts[2])
{
    embd_part part = {.n_rows = (uint64_t)s->samples.n_samples * SLOTS,
                      .offsets = s->samples.offsets,
                      .n_keys = s->samples.n_keys,
                      .keys = s->samples.keys};
    parts[0] = parts[1] = part;
    parts[0].table = t->linear;
    parts[0].values = s->linear;
    parts[1].table = t->factors;
    parts[1].values = s->factors;
}

static bool start_pull(trainer *t, stage *s, const embd_call_options *options)
{
    embd_part parts[2];
    describe_parts(t, s, parts);
    int status = embd_pull_start(t->client, parts, 2, options, &s->call);
    return status == EMBD_OK || failed(t, "pull", status);
}

static bool start_push(trainer *t, stage *s)
{
    embd_part parts[2];
    describe_parts(t, s, parts);
    int status = embd_push_start(t->client, parts, 2, NULL, &s->call);
    return status == EMBD_OK || failed(t, "push", status);
}

/* Waits for the stage's call, if it has one. */
static bool settle(trainer *t, stage *s)
{
    if (!s->call)
        return true;
    int status = embd_wait(s->call);
    s->call = NULL;
    return status == EMBD_OK || failed(t, "waiting for a call", status);
}

/* ---- passes ---------------------------------------------------------------------------------- */

typedef struct pass {
    trainer *trainer;
    sampler *samples;
    embd_call_options options;
    scored *scores; /* [sampler_size] filled by evaluation; NULL: learn */
    double loss_sum;
    uint64_t n_done;
    uint64_t n_keys;
    progress progress;
} pass;

/* Takes the next samples and asks for their values. *more_out: whether there were any. */
static bool fetch(pass *p, stage *s, bool *more_out)
{
    if (!settle(p->trainer, s))
        return false;
    *more_out = sampler_fill(p->samples, &s->samples);
    return !*more_out || start_pull(p->trainer, s, &p->options);
}

/* Scores one batch; when learning, leaves the gradient in place of the values. */
static void compute(pass *p, stage *s)
{
    uint32_t dim = p->trainer->dim;
    for (uint32_t i = 0; i < s->samples.n_samples; i++) {
        float *linear = s->linear + (size_t)i * SLOTS, label = s->samples.labels[i];
        float *factors = s->factors + (size_t)i * SLOTS * dim;
        float logit = machine_logit(linear, factors, SLOTS, dim);
        p->loss_sum += machine_loss(logit, label);
        if (p->scores)
            p->scores[p->n_done + i] = (scored){logit, label};
        else
            machine_gradient(linear, factors, SLOTS, dim, logit, label);
    }
    p->n_done += s->samples.n_samples;
    p->n_keys += s->samples.n_keys;
    progress_show(&p->progress, p->n_done, p->loss_sum / (double)p->n_done);
}

static bool run(pass *p)
{
    trainer *t = p->trainer;
    stage *now = &t->stages[0], *next = &t->stages[1];
    bool more = false;
    if (!fetch(p, now, &more))
        return false;
    while (more) {
        if (!fetch(p, next, &more) || !settle(t, now))
            return false;
        compute(p, now);
        if (!p->scores && !start_push(t, now))
            return false;
        stage *done = now;
        now = next;
        next = done;
    }
    return settle(t, now) && settle(t, next);
}

static bool run_and_report(pass *p, const char *title, pass_report *out)
{
    progress_begin(&p->progress, title, sampler_size(p->samples));
    bool ok = run(p) && !p->samples->failed;
    double seconds = progress_end(&p->progress);
    double n = p->n_done > 0 ? (double)p->n_done : 1;
    *out = (pass_report){p->n_done, p->n_keys, p->loss_sum / n, 0, seconds};
    return ok;
}

bool trainer_learn(trainer *t, sampler *samples, pass_report *report_out)
{
    pass p = {.trainer = t, .samples = samples};
    return run_and_report(&p, "training", report_out);
}

bool trainer_evaluate(trainer *t, sampler *samples, pass_report *report_out)
{
    pass p = {.trainer = t, .samples = samples, .options = {.plan = EMBD_PLAN_ROWS}};
    p.scores = malloc((sampler_size(samples) + 1) * sizeof *p.scores);
    if (!p.scores) {
        fprintf(stderr, "out of memory\n");
        return false;
    }
    bool ok = run_and_report(&p, "evaluating", report_out);
    report_out->auc = auc(p.scores, p.n_done);
    free(p.scores);
    return ok;
}

bool trainer_pull_factors(trainer *t, const uint64_t *keys, uint32_t n_keys, float *rows)
{
    embd_part part = {
        .table = t->factors, .n_keys = n_keys, .keys = keys, .values = rows, .raw = true};
    int status = embd_pull(t->client, &part, 1, NULL);
    return status == EMBD_OK || failed(t, "pull", status);
}
