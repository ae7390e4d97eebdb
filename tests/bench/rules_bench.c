/* rules_bench.c - what a store's update rules and eviction cost: pushes of 65,536 uniform keys onto
 * ROWS rows with update local, global and lazy_global, with each kind of regularization, and of
 * optimizers that look at whole rows; pushes of 65,536 keys that have no row onto
 * a table that outgrows its room, onto one that grows from nothing, and onto full ones that evict,
 * at last with those that would go next. In one process, without a server. Shown are the median,
 * the longest and what they are of the first of their kind. The host store's in CPU time of this
 * thread, other stores' by the clock, from the call to its done.
 *
 * usage: rules-bench STORE ROWS [DIM [PUSHES]]        (dim 16, 9 pushes of each rule; 0: no rules)
 */
#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "proto/route.h"
#include "server/store/store.h"

enum { BATCH = 65536 };

struct bench {
    const struct store_ops *ops;
    struct store *store;
    struct table_schema schema;
    embd_regularization regularization; /* of the tables to come */
    uint64_t n_rows;
    uint32_t dim, n_pushes, n_evicted; /* n_evicted: by the last push */
    uint64_t *keys;
    float *grads;
    clockid_t clock;
};

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

static double now_us(const struct bench *b)
{
    struct timespec t;
    clock_gettime(b->clock, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void fail(const char *text)
{
    fprintf(stderr, "rules-bench: %s\n", text);
    exit(1);
}

struct ending {
    struct store_done done;
    int status, calls;
};

static void on_done(struct store_done *done, int status)
{
    struct ending *ending = (struct ending *)done;
    ending->status = status;
    ending->calls++;
}

static void await(struct bench *b, struct ending *ending)
{
    while (ending->calls == 0)
        b->ops->collect(b->store);
    if (ending->status != EMBD_OK)
        fail(ending->done.error.text);
}

/* Microseconds. */
static double push(struct bench *b)
{
    struct store_change push = {.in = {.n_keys = BATCH, .n_rows = BATCH, .keys = b->keys},
                                .grads = b->grads};
    struct ending ending = {.done.fn = on_done};
    double begin = now_us(b);
    b->ops->apply(b->store, &push, &ending.done);
    await(b, &ending);
    b->n_evicted = push.n_evicted;
    return now_us(b) - begin;
}

/* Keys mix(0) .. mix(n_rows - 1) have rows. */
static void open_full(struct bench *b, embd_optimizer_kind kind, embd_update update,
                      embd_on_full on_full)
{
    embd_schema s;
    struct embd__error e = {0};
    embd_schema_init(&s);
    strcpy(s.name, "bench");
    s.dim = b->dim;
    embd_optimizer_init(&s.optimizer, kind, 0.01f);
    s.optimizer.update = update;
    s.regularization = b->regularization;
    s.on_full = on_full;
    s.capacity = b->n_rows;
    s.ttl = 1;
    if (embd__schema_copy(&b->schema, &s, &e) != EMBD_OK ||
        b->ops->open(&b->schema, &b->store, &e) != EMBD_OK)
        fail(e.text);
    for (uint64_t first = 0; first < b->n_rows; first += BATCH) {
        uint32_t n = b->n_rows - first < BATCH ? (uint32_t)(b->n_rows - first) : BATCH;
        struct store_change insert = {.kind = STORE_INSERT,
                                      .in = {.n_keys = n, .n_rows = n, .keys = b->keys}};
        struct ending ending = {.done.fn = on_done};
        for (uint32_t i = 0; i < n; i++)
            b->keys[i] = mix(first + i);
        b->ops->apply(b->store, &insert, &ending.done);
        await(b, &ending);
    }
}

static void close_store(struct bench *b)
{
    b->ops->close(b->store);
    embd__schema_fini(&b->schema);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Returns the median. `of`: the median it is compared with, or 0. */
static double show(double *times, uint32_t n, const char *what, const char *rule, double of)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += times[i];
    qsort(times, n, sizeof *times, ascending);
    double middle = times[n / 2];
    printf("| %-9s | %-11s | %10.0f | %10.0f | %10.0f | %8.2f |\n", what, rule, middle, sum / n,
           times[n - 1], of > 0 ? sum / n / of : 1.0);
    fflush(stdout);
    return sum / n;
}

static double time_steps(struct bench *b, embd_optimizer_kind kind, embd_update update,
                         const char *rule, double of)
{
    double *times = malloc(b->n_pushes * sizeof *times);
    open_full(b, kind, update, EMBD_ON_FULL_GROW);
    for (uint32_t p = 0; p < b->n_pushes + 2; p++) {
        for (uint32_t i = 0; i < BATCH; i++)
            b->keys[i] = mix(mix(p * (uint64_t)BATCH + i) % b->n_rows);
        double us = push(b);
        if (p >= 2) /* the first ones take memory */
            times[p - 2] = us;
    }
    close_store(b);
    double mean = show(times, b->n_pushes, embd_optimizer_name(kind), rule, of);
    free(times);
    return mean;
}

static double time_rule(struct bench *b, embd_optimizer_kind kind, embd_update update, double of)
{
    return time_steps(b, kind, update, embd_update_name(update), of);
}

static void time_regularized(struct bench *b, embd_optimizer_kind kind, const char *rule,
                             embd_regularization regularization, double of)
{
    embd_regularization none = b->regularization;
    b->regularization = regularization;
    time_steps(b, kind, EMBD_UPDATE_LOCAL, rule, of);
    b->regularization = none;
}

static void measure_regularization(struct bench *b)
{
    static const embd_optimizer_kind kinds[] = {EMBD_OPTIMIZER_SGD, EMBD_OPTIMIZER_ROWWISE_ADAGRAD,
                                                EMBD_OPTIMIZER_ADAM};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        double of = time_rule(b, kinds[i], EMBD_UPDATE_LOCAL, 0);
        embd_regularization r = b->regularization;
        r.clip_value = 0.03f;
        time_regularized(b, kinds[i], "clip_value", r, of);
        r = b->regularization;
        r.clip_norm = 0.1f;
        time_regularized(b, kinds[i], "clip_norm", r, of);
        r.max_norm = 0.1f;
        time_regularized(b, kinds[i], "both norms", r, of);
        r = b->regularization;
        r.weight_decay = 0.01f;
        time_regularized(b, kinds[i], "l2", r, of);
        r.decay = EMBD_DECAY_DECOUPLED_GLOBAL;
        time_regularized(b, kinds[i], "dec. global", r, of);
    }
    for (int kind = EMBD_OPTIMIZER_AMSGRAD; kind <= EMBD_OPTIMIZER_COUNTER_ADAGRAD; kind++)
        time_rule(b, (embd_optimizer_kind)kind, EMBD_UPDATE_LOCAL, 0);
}

static double time_new_keys(struct bench *b, embd_on_full on_full, double of)
{
    uint32_t n = (uint32_t)(b->n_rows / BATCH / 2) + 8; /* half the rows go */
    double *times = malloc(n * sizeof *times);
    open_full(b, EMBD_OPTIMIZER_SGD, EMBD_UPDATE_LOCAL, on_full);
    push(b); /* of rows that are there: with it all others are old */
    for (uint32_t p = 0; p < n; p++) {
        for (uint32_t i = 0; i < BATCH; i++)
            b->keys[i] = mix(b->n_rows + p * (uint64_t)BATCH + i);
        times[p] = push(b);
    }
    close_store(b);
    double mean = show(times, n, "new keys", embd_on_full_name(on_full), of);
    free(times);
    return mean;
}

static int by_rank(const void *a, const void *b)
{
    uint64_t x = embd__mix64(*(const uint64_t *)a), y = embd__mix64(*(const uint64_t *)b);
    return (x > y) - (x < y);
}

/* The keys of open_full as they go when none is pushed. */
static uint64_t *in_order_of_going(const struct bench *b)
{
    uint64_t *keys = malloc(b->n_rows * sizeof *keys);
    for (uint64_t i = 0; i < b->n_rows; i++)
        keys[i] = mix(i);
    qsort(keys, b->n_rows, sizeof *keys, by_rank);
    return keys;
}

/* The worst for a list of the rows that go next: half of each push are those rows, which then stay.
 */
static void time_pushes_of_what_goes_next(struct bench *b, double of)
{
    uint32_t n = (uint32_t)(b->n_rows / BATCH / 2) + 8;
    double *times = malloc(n * sizeof *times);
    uint64_t *going = in_order_of_going(b), next = 0;
    open_full(b, EMBD_OPTIMIZER_SGD, EMBD_UPDATE_LOCAL, EMBD_ON_FULL_EVICT_LRU);
    for (uint32_t p = 0; p < n; p++) {
        for (uint32_t i = 0; i < BATCH; i++)
            b->keys[i] = i % 2 == 0 && next < b->n_rows ? going[next++]
                                                        : mix(b->n_rows + p * (uint64_t)BATCH + i);
        times[p] = push(b);
        next += b->n_evicted;
    }
    close_store(b);
    free(going);
    show(times, n, "next ones", embd_on_full_name(EMBD_ON_FULL_EVICT_LRU), of);
    free(times);
}

/* The whole way from no row to twice ROWS, without room made at once: each push makes rows, some
 * also room for their keys. */
static void time_growth(struct bench *b, double of)
{
    uint32_t n = (uint32_t)(b->n_rows / BATCH * 2);
    double *times = malloc(n * sizeof *times);
    uint64_t n_rows = b->n_rows;
    b->n_rows = 0;
    open_full(b, EMBD_OPTIMIZER_SGD, EMBD_UPDATE_LOCAL, EMBD_ON_FULL_GROW);
    b->n_rows = n_rows;
    for (uint32_t p = 0; p < n; p++) {
        for (uint32_t i = 0; i < BATCH; i++)
            b->keys[i] = mix(p * (uint64_t)BATCH + i);
        times[p] = push(b);
    }
    close_store(b);
    show(times, n, "growth", "grow", of);
    free(times);
}

static void measure_rules(struct bench *b)
{
    static const embd_optimizer_kind kinds[] = {EMBD_OPTIMIZER_MOMENTUM, EMBD_OPTIMIZER_NESTEROV,
                                                EMBD_OPTIMIZER_ADAM, EMBD_OPTIMIZER_RMSPROP};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        double local = time_rule(b, kinds[i], EMBD_UPDATE_LOCAL, 0);
        time_rule(b, kinds[i], EMBD_UPDATE_GLOBAL, local);
        if (kinds[i] == EMBD_OPTIMIZER_ADAM)
            time_rule(b, kinds[i], EMBD_UPDATE_LAZY_GLOBAL, local);
    }
}

int main(int argc, char **argv)
{
    static struct bench b;
    struct embd__error e = {0};
    b.ops = argc > 2 ? store_find(argv[1], &e) : NULL;
    if (b.ops == NULL)
        fail(argc > 2 ? e.text : "usage: rules-bench STORE ROWS [DIM [PUSHES]]");
    b.n_rows = strtoull(argv[2], NULL, 10);
    b.dim = argc > 3 ? (uint32_t)atoi(argv[3]) : 16;
    b.n_pushes = argc > 4 ? (uint32_t)atoi(argv[4]) : 9;
    b.regularization = (embd_regularization){.weight_min = -FLT_MAX, .weight_max = FLT_MAX};
    b.clock = b.ops == &store_host ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
    b.keys = b.ops->buffer_new(BATCH * sizeof *b.keys);
    b.grads = b.ops->buffer_new((size_t)BATCH * b.dim * sizeof *b.grads);
    if (b.n_rows < BATCH || b.dim == 0 || b.keys == NULL || b.grads == NULL)
        fail("ROWS is 65536 at least, DIM 1; and memory is needed");
    for (size_t i = 0; i < (size_t)BATCH * b.dim; i++)
        b.grads[i] = (float)(i % 1000) * 1e-4f - 0.05f;
    printf("store %s, %llu rows, dim %u, pushes of %d keys\n", b.ops->name,
           (unsigned long long)b.n_rows, b.dim, BATCH);
    printf("| what      | rule        |  median us |    mean us | longest us | of first |\n");
    printf("| ---       | ---         | ---        | ---        | ---        | ---      |\n");
    if (b.n_pushes > 0)
        measure_rules(&b);
    if (b.n_pushes > 0)
        measure_regularization(&b);
    double grow = time_new_keys(&b, EMBD_ON_FULL_GROW, 0);
    time_growth(&b, grow);
    time_new_keys(&b, EMBD_ON_FULL_EVICT_LRU, grow);
    time_new_keys(&b, EMBD_ON_FULL_EVICT_LFU, grow);
    time_new_keys(&b, EMBD_ON_FULL_EVICT_TTL, grow);
    time_pushes_of_what_goes_next(&b, grow);
    b.ops->buffer_free(b.keys, BATCH * sizeof *b.keys);
    b.ops->buffer_free(b.grads, (size_t)BATCH * b.dim * sizeof *b.grads);
    return 0;
}
