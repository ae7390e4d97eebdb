/* fm.c - embd-example-fm: trains a factorization machine with its parameters on embd.
 *
 * The happy path of a pass: read a batch of samples and start to pull its rows; then, over and
 * over, do so for the next batch, wait for this one's rows, turn them into gradients, start to push
 * them, change places. A pull misses the one push that was started after it, always the same one:
 * calls to a shard take effect in the order they were started, so that the same samples give the
 * same bits. What can fail: a call or a file. The program then says which and ends.
 *
 * package_samples.py beside this file writes the samples. */
#include <embd/embd.h>
#include <embd/data.h>

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SLOTS            8u
#define DIM              16u
#define BATCH            1024u
#define LEARNING_RATE    0.1f
#define FACTOR_DEVIATION 0.05f

struct trainer {
    const char *folder;
    bool eval_only;
    embd_client *client;
    embd_table *linear, *factors;
};

/* One batch on its way: keys out, rows in, gradients out. */
struct lane {
    embd_batch *batch; /* the reader's; NULL: none */
    float *linear;     /* [BATCH][SLOTS] pooled weights, then their gradient */
    float *factors;    /* [BATCH][SLOTS][DIM] */
    embd_call *call;   /* the pull or push that uses the arrays, or NULL */
};

struct scored {
    float score, label;
};

/* One pass over a data set. */
struct pass {
    struct trainer *trainer;
    embd_reader *reader;
    struct lane lanes[2];
    struct scored *scores; /* of an evaluation: [n_samples]; NULL: learn */
    uint64_t n_samples;
    double loss;
};

static _Noreturn void die(const char *what, const char *why)
{
    fprintf(stderr, "embd-example-fm: %s: %s\n", what, why);
    exit(EXIT_FAILURE);
}

static void check(const char *what, int status)
{
    if (status != EMBD_OK)
        die(what, embd_error_text());
}

static void *allocate(void *old, size_t n, size_t bytes)
{
    void *p = reallocarray(old, n, bytes);
    if (!p)
        die("samples", "out of memory");
    return p;
}

/* ---- tables ---------------------------------------------------------------------------------- */

static embd_table *open_table(struct trainer *t, const char *name, uint32_t dim,
                              embd_combiner combiner, embd_initializer initializer)
{
    embd_table *table;
    embd_schema schema;
    embd_schema_init(&schema);
    snprintf(schema.name, sizeof schema.name, "%s", name);
    schema.dim = dim;
    schema.slots = SLOTS;
    schema.combiner = combiner;
    schema.initializer = initializer;
    embd_optimizer_init(&schema.optimizer, EMBD_OPTIMIZER_ADAGRAD, LEARNING_RATE);
    if (!t->eval_only)
        check(name, embd_table_create(t->client, &schema));
    check(name, embd_table_open(t->client, name, &table));
    return table;
}

/* Weights start at 0 and are summed. Factors start small, each key's with values of its own, and
 * are averaged, so that a package with eight dependencies does not outweigh one with two. */
static void open_trainer(struct trainer *t)
{
    embd_options options;
    const char *servers = getenv("EMBD_SERVERS");
    servers = servers && *servers ? servers : "127.0.0.1:7700";
    embd_options_init(&options);
    options.own_thread = true; /* the next batch arrives while this one is computed */
    if (embd_connect(servers, &options, &t->client) != EMBD_OK)
        die(servers, embd_error_text());
    t->linear = open_table(t, "fm-linear", 1, EMBD_COMBINER_SUM,
                           (embd_initializer){.kind = EMBD_INITIALIZER_CONSTANT});
    t->factors = open_table(t, "fm-factors", DIM, EMBD_COMBINER_MEAN,
                            (embd_initializer){EMBD_INITIALIZER_NORMAL, 0, FACTOR_DEVIATION});
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* Both tables take the same keys, in one call. */
static void describe(const struct trainer *t, const struct lane *lane, embd_part parts[2])
{
    const embd_batch *b = lane->batch;
    embd_part part =
        EMBD_PART(.n_rows = b->n_rows, .offsets = b->offsets, .n_keys = b->n_keys, .keys = b->keys);
    parts[0] = parts[1] = part;
    parts[0].table = t->linear;
    parts[0].values = lane->linear;
    parts[1].table = t->factors;
    parts[1].values = lane->factors;
}

static void finish(struct lane *lane)
{
    if (lane->call)
        check("waiting", embd_wait(lane->call));
    lane->call = NULL;
}

/* Takes the next batch, after what the lane had was done, and asks for its rows. */
static void fetch(struct pass *p, struct lane *lane)
{
    /* The client pools the rows of an evaluation, in the order of their keys: so its result has the
     * same bits on any number of shards. */
    const embd_call_options options =
        EMBD_CALL_OPTIONS(.plan = p->scores ? EMBD_PLAN_ROWS : EMBD_PLAN_AUTO);
    embd_part parts[2];
    finish(lane);
    embd_reader_release(p->reader, lane->batch);
    if (embd_reader_next(p->reader, &lane->batch) != EMBD_OK)
        die("reading samples", embd_error_text());
    if (!lane->batch)
        return;
    describe(p->trainer, lane, parts);
    check("pull", embd_pull_start(p->trainer->client, parts, 2, &options, &lane->call));
}

/* ---- the model ------------------------------------------------------------------------------- */

/* logit = sum of w_s + (|sum of v_s|^2 - sum of |v_s|^2) / 2 */
static float logit_of(const float *linear, const float *factors)
{
    float first = 0, second = 0;
    for (uint32_t s = 0; s < SLOTS; s++)
        first += linear[s];
    for (uint32_t c = 0; c < DIM; c++) {
        float sum = 0, squares = 0;
        for (uint32_t s = 0; s < SLOTS; s++) {
            sum += factors[s * DIM + c];
            squares += factors[s * DIM + c] * factors[s * DIM + c];
        }
        second += sum * sum - squares;
    }
    return first + 0.5f * second;
}

static double loss_of(float logit, float label)
{
    double margin = label > 0.5f ? logit : -(double)logit;
    return margin > 0 ? log1p(exp(-margin)) : log1p(exp(margin)) - margin;
}

/* In place: d logit / d w_s = 1, d logit / d v_s = (sum of all v) - v_s. */
static void make_gradient(float *linear, float *factors, float logit, float label)
{
    float g = 1 / (1 + expf(-logit)) - label;
    for (uint32_t s = 0; s < SLOTS; s++)
        linear[s] = g;
    for (uint32_t c = 0; c < DIM; c++) {
        float sum = 0;
        for (uint32_t s = 0; s < SLOTS; s++)
            sum += factors[s * DIM + c];
        for (uint32_t s = 0; s < SLOTS; s++)
            factors[s * DIM + c] = g * (sum - factors[s * DIM + c]);
    }
}

/* Scores a batch; when learning, leaves gradients in place of rows and pushes them. */
static void compute(struct pass *p, struct lane *lane)
{
    const embd_batch *b = lane->batch;
    embd_part parts[2];
    finish(lane);
    if (p->scores)
        p->scores = allocate(p->scores, p->n_samples + b->n_samples, sizeof *p->scores);
    for (uint32_t i = 0; i < b->n_samples; i++) {
        float *linear = lane->linear + (size_t)i * SLOTS, label = b->labels[i];
        float *factors = lane->factors + (size_t)i * SLOTS * DIM;
        float logit = logit_of(linear, factors);
        p->loss += loss_of(logit, label);
        if (p->scores)
            p->scores[p->n_samples + i] = (struct scored){logit, label};
        else
            make_gradient(linear, factors, logit, label);
    }
    p->n_samples += b->n_samples;
    if (p->scores)
        return;
    describe(p->trainer, lane, parts);
    check("push", embd_push_start(p->trainer->client, parts, 2, NULL, &lane->call));
}

/* ---- passes ---------------------------------------------------------------------------------- */

static embd_reader *open_reader(const struct trainer *t, const char *set)
{
    const embd_data_shape shape = EMBD_DATA_SHAPE(.format = EMBD_DATA_FORMAT_NORM, .label_dim = 1,
                                                  .slots = SLOTS, .i64_keys = true);
    embd_reader_options options;
    embd_reader *reader;
    char path[4096];
    embd_reader_options_init(&options);
    options.batch_samples = BATCH;
    snprintf(path, sizeof path, "%s/%s", t->folder, set);
    if (embd_reader_open(path, &shape, &options, &reader) != EMBD_OK)
        die("opening samples", embd_error_text());
    return reader;
}

static void run_pass(struct pass *p, const char *set)
{
    p->reader = open_reader(p->trainer, set);
    for (int i = 0; i < 2; i++) {
        p->lanes[i].linear = allocate(NULL, BATCH * SLOTS, sizeof(float));
        p->lanes[i].factors = allocate(NULL, BATCH * SLOTS * DIM, sizeof(float));
    }
    fetch(p, &p->lanes[0]);
    for (int now = 0; p->lanes[now].batch; now = !now) {
        fetch(p, &p->lanes[!now]);
        compute(p, &p->lanes[now]);
    }
    for (int i = 0; i < 2; i++) {
        finish(&p->lanes[i]);
        free(p->lanes[i].linear);
        free(p->lanes[i].factors);
    }
    embd_reader_close(p->reader);
}

static int by_score(const void *a, const void *b)
{
    float x = ((const struct scored *)a)->score, y = ((const struct scored *)b)->score;
    return (x > y) - (x < y);
}

/* How often a positive sample scores above a negative one; a tie counts half. Exact but for the
 * division: it counts halves. */
static double auc_of(struct scored *scores, uint64_t n)
{
    uint64_t halves = 0, positives = 0, negatives = 0;
    qsort(scores, n, sizeof *scores, by_score);
    for (uint64_t i = 0; i < n;) {
        uint64_t yes = 0, no = 0;
        float score = scores[i].score;
        do
            *(scores[i].label > 0.5f ? &yes : &no) += 1;
        while (++i < n && scores[i].score == score);
        halves += yes * (2 * negatives + no);
        positives += yes;
        negatives += no;
    }
    return positives && negatives ? (double)halves / (2.0 * (double)positives * (double)negatives)
                                  : 0.5;
}

/* All digits, so that two runs can be compared. */
static void evaluate(struct trainer *t, const char *when)
{
    struct pass p = {.trainer = t, .scores = allocate(NULL, 1, sizeof *p.scores)};
    run_pass(&p, "held-out");
    printf("held out%s: %llu samples, loss %.17g, AUC %.17g\n", when,
           (unsigned long long)p.n_samples, p.loss / (double)p.n_samples,
           auc_of(p.scores, p.n_samples));
    free(p.scores);
}

static void learn(struct trainer *t)
{
    struct pass p = {.trainer = t};
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    run_pass(&p, "train");
    clock_gettime(CLOCK_MONOTONIC, &to);
    printf("training: %llu samples, loss %.4f, %.1f s\n", (unsigned long long)p.n_samples,
           p.loss / (double)p.n_samples,
           (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) * 1e-9);
}

int main(int argc, char **argv)
{
    struct trainer t = {.folder = argv[1], .eval_only = argc == 3};
    if (argc < 2 || argc > 3 || (argc == 3 && strcmp(argv[2], "--eval-only") != 0)) {
        fprintf(stderr, "usage: [EMBD_SERVERS=HOST:PORT] embd-example-fm FOLDER [--eval-only]\n");
        return 2;
    }
    open_trainer(&t);
    if (!t.eval_only) {
        evaluate(&t, " before training");
        learn(&t);
    }
    evaluate(&t, "");
    embd_close(t.client);
    return EXIT_SUCCESS;
}
