/* trainer.c - passes over a data set: read, pull, compute, push.
 *
 * The happy path of a pass: the rows of the next batch are asked for, then this one's are waited
 * for and turned into gradients, which are pushed; then the two change places. With prefetch the
 * next rows travel meanwhile; without it every call is waited for where it is started. The calls
 * are the same in the same order, and a shard takes them in that order, so both give the same bits.
 * What can fail: a call or the data. The pass then ends, and closing the client abandons what is in
 * flight. */
#include "client/examples/dlrm/trainer.h"

#include "client/examples/fm/auc.h"
#include "client/examples/startup.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define ROWS_RATE  0.1f
#define DENSE_RATE 0.02f

static bool failed(const trainer *t, const char *what, int status)
{
    fprintf(stderr, "%s: %s: %s\n", what, embd_status_text(status), embd_last_error(t->client));
    return false;
}

/* ---- opening --------------------------------------------------------------------------------- */

static bool make_table(trainer *t)
{
    embd_schema schema;
    embd_schema_init(&schema);
    snprintf(schema.name, sizeof schema.name, DLRM_TABLE);
    schema.dim = DIM;
    schema.slots = SLOTS;
    schema.slot_sizes = planted_slot_sizes; /* each slot counts its keys from 0 */
    schema.initializer = (embd_initializer){EMBD_INITIALIZER_UNIFORM_SLOT, 0, 0};
    embd_optimizer_init(&schema.optimizer, EMBD_OPTIMIZER_ADAGRAD, ROWS_RATE);
    int status = embd_table_create(t->client, &schema);
    if (status == EMBD_OK)
        status = embd_table_open(t->client, DLRM_TABLE, &t->table);
    return status == EMBD_OK || failed(t, "making table " DLRM_TABLE, status);
}

static bool alloc_stages(trainer *t)
{
    for (int i = 0; i < 2; i++) {
        t->stages[i].rows = malloc((size_t)t->batch_samples * SLOTS * DIM * sizeof(float));
        if (!t->stages[i].rows)
            return false;
    }
    return model_init(&t->model);
}

bool trainer_open(trainer *t, const char *servers, uint32_t batch_samples, uint32_t threads,
                  bool prefetch)
{
    *t = (trainer){.batch_samples = batch_samples, .threads = threads, .prefetch = prefetch};
    if (!alloc_stages(t)) {
        fprintf(stderr, "out of memory\n");
        return false;
    }
    t->client = startup_connect(servers, prefetch);
    return t->client && make_table(t);
}

void trainer_close(trainer *t)
{
    embd_close(t->client);
    model_free(&t->model);
    for (int i = 0; i < 2; i++)
        free(t->stages[i].rows);
    *t = (trainer){0};
}

/* ---- calls ----------------------------------------------------------------------------------- */

static bool settle(trainer *t, stage *s)
{
    if (!s->call)
        return true;
    int status = embd_wait(s->call);
    s->call = NULL;
    return status == EMBD_OK || failed(t, "waiting for a call", status);
}

typedef int start_call(embd_client *client, const embd_part *parts, size_t n_parts,
                       const embd_call_options *options, embd_call **call_out);

/* The reader's arrays are those of a part: nothing is copied. */
static bool start(trainer *t, stage *s, start_call *call)
{
    const embd_batch *b = s->batch;
    embd_part part = {.table = t->table,
                      .n_rows = b->n_rows,
                      .offsets = b->offsets,
                      .n_keys = b->n_keys,
                      .keys = b->keys,
                      .values = s->rows};
    int status = call(t->client, &part, 1, NULL, &s->call);
    if (status != EMBD_OK)
        return failed(t, "starting a call", status);
    return t->prefetch || settle(t, s);
}

/* ---- passes ---------------------------------------------------------------------------------- */

/* Of some pulls it is measured how long they take, by waiting for them at once; of the others, how
 * long they still had to be waited for when their rows were needed. */
#define MEASURE_EVERY 16u

typedef struct pass {
    trainer *trainer;
    embd_reader *reader;
    bool learns;
    uint32_t n_batches;
    double pull_seconds, waited_seconds; /* of n_measured pulls; of n_waited others */
    uint32_t n_measured, n_waited;
    scored *scores, *planted; /* [room] of evaluation */
    size_t n_done, room;
    double loss_sum;
} pass;

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Asks for the rows of the stage's batch. */
static bool ask(pass *p, stage *s)
{
    trainer *t = p->trainer;
    double begun = seconds();
    if (!start(t, s, embd_pull_start))
        return false;
    if (t->prefetch && p->n_batches++ % MEASURE_EVERY != 1)
        return true;
    if (!settle(t, s))
        return false;
    p->pull_seconds += seconds() - begun;
    p->n_measured++;
    return true;
}

/* Reads the next batch, if there is one, and asks for its rows. */
static bool fetch(pass *p, stage *s)
{
    embd_batch *last = s->batch;
    if (!settle(p->trainer, s))
        return false;
    s->batch = NULL;
    if (!startup_next_batch(p->reader, last, &s->batch))
        return false;
    return !s->batch || ask(p, s);
}

/* Waits for the rows of the stage's batch, which are needed now. */
static bool receive(pass *p, stage *s)
{
    double begun = seconds();
    if (!s->call)
        return true;
    if (!settle(p->trainer, s))
        return false;
    p->waited_seconds += seconds() - begun;
    p->n_waited++;
    return true;
}

static void learn(pass *p, stage *s)
{
    const embd_batch *b = s->batch;
    model *m = &p->trainer->model;
    for (uint32_t i = 0; i < b->n_samples; i++) {
        const float *dense = b->dense + (size_t)i * DENSE;
        float *rows = s->rows + (size_t)i * SLOTS * DIM;
        float logit = model_logit(m, dense, rows);
        p->loss_sum += model_learn(m, dense, logit, b->labels[i], 1 / (float)b->n_samples, rows);
    }
    model_step(m, DENSE_RATE, b->n_samples);
    p->n_done += b->n_samples;
}

static bool make_room(pass *p, uint32_t n)
{
    if (p->n_done + n <= p->room)
        return true;
    size_t room = 2 * p->room + n;
    scored *scores = realloc(p->scores, room * sizeof *scores);
    p->scores = scores ? scores : p->scores;
    scored *planted = realloc(p->planted, room * sizeof *planted);
    p->planted = planted ? planted : p->planted;
    p->room = scores && planted ? room : p->room;
    if (p->room != room)
        fprintf(stderr, "out of memory\n");
    return p->room == room;
}

static bool evaluate(pass *p, const stage *s)
{
    const embd_batch *b = s->batch;
    if (!make_room(p, b->n_samples))
        return false;
    for (uint32_t i = 0; i < b->n_samples; i++) {
        const float *dense = b->dense + (size_t)i * DENSE;
        const float *rows = s->rows + (size_t)i * SLOTS * DIM;
        float planted = planted_logit(dense, b->keys + b->offsets[(size_t)i * SLOTS]);
        p->planted[p->n_done] = (scored){planted, b->labels[i]};
        p->scores[p->n_done++] =
            (scored){model_logit(&p->trainer->model, dense, rows), b->labels[i]};
    }
    return true;
}

/* The rows of a batch have come. */
static bool compute(pass *p, stage *s)
{
    if (!p->learns)
        return evaluate(p, s);
    learn(p, s);
    return start(p->trainer, s, embd_push_start);
}

static bool run_batches(pass *p)
{
    trainer *t = p->trainer;
    stage *now = &t->stages[0], *next = &t->stages[1];
    now->batch = next->batch = NULL;
    bool ok = fetch(p, now);
    while (ok && now->batch) {
        ok = fetch(p, next) && receive(p, now) && compute(p, now);
        stage *done = now;
        now = next;
        next = done;
    }
    return ok && settle(t, now) && settle(t, next);
}

/* A pass that failed may leave calls in flight that use the reader's arrays: these stay until the
 * calls are waited for. */
static bool run(pass *p, const char *data, pass_report *out)
{
    trainer *t = p->trainer;
    double begun = seconds();
    p->reader = click_log_open(data, t->batch_samples, t->threads);
    bool ok = p->reader && run_batches(p);
    for (int i = 0; !ok && i < 2; i++)
        settle(t, &t->stages[i]);
    embd_reader_close(p->reader);
    *out = (pass_report){.samples = p->n_done, .seconds = seconds() - begun};
    out->loss = p->loss_sum / (double)(p->n_done + !p->n_done);
    out->pull_us = 1e6 * p->pull_seconds / (p->n_measured + !p->n_measured);
    out->waited_us = 1e6 * p->waited_seconds / (p->n_waited + !p->n_waited);
    return ok;
}

bool trainer_learn(trainer *t, const char *data, pass_report *report_out)
{
    pass p = {.trainer = t, .learns = true};
    return run(&p, data, report_out);
}

bool trainer_evaluate(trainer *t, const char *data, pass_report *report_out)
{
    pass p = {.trainer = t};
    bool ok = run(&p, data, report_out);
    if (ok) {
        report_out->auc = auc(p.scores, p.n_done);
        report_out->planted_auc = auc(p.planted, p.n_done);
    }
    free(p.scores);
    free(p.planted);
    return ok;
}
