/* test_oracle.c - optimizers and update rules against their formulas in double precision, as
 * HugeCTR's papers and sources state them, and not as this project computes them: dense, over every
 * row of the table, with powers from libm. The store works in f32, so what is compared has a
 * tolerance: 2e-5 of the values' size after 60 steps. Argument: the store's name. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/store/pair.h"

static const char *store_name = "host";

enum { KEYS = 12, DIM = 5, STEPS = 60, TOUCHES = 6 };

/* The whole table. A key exists from its first push on. */
struct oracle {
    const embd_optimizer *o;
    double lr; /* of this push */
    int t;
    bool exists[KEYS];
    int prev[KEYS];
    double w[KEYS][DIM], m[KEYS][DIM], v[KEYS][DIM];
};

/* Adam, Kingma and Ba 2015, algorithm 1, with the efficient order of its section 2. */
static void adam(struct oracle *x, int k, int c, double g)
{
    const embd_optimizer *o = x->o;
    x->m[k][c] = o->beta1 * x->m[k][c] + (1 - (double)o->beta1) * g;
    x->v[k][c] = o->beta2 * x->v[k][c] + (1 - (double)o->beta2) * g * g;
    double rate = x->lr * sqrt(1 - pow(o->beta2, x->t)) / (1 - pow(o->beta1, x->t));
    x->w[k][c] -= rate * x->m[k][c] / (sqrt(x->v[k][c]) + o->eps);
}

/* HugeCTR's LazyGlobal: the application of the row's last step and of those it skipped is paid with
 * the old moments; the moments then decay by all of them. */
static void lazy_adam(struct oracle *x, int k, int c, double g)
{
    const embd_optimizer *o = x->o;
    int skipped = x->t - x->prev[k];
    double b1 = o->beta1, b2 = o->beta2;
    x->w[k][c] -= x->lr / (1 - b1) * sqrt(1 - pow(b2, x->prev[k])) / (1 - pow(b1, x->prev[k])) *
                  (1 - pow(b1, skipped)) * x->m[k][c] / (sqrt(x->v[k][c]) + o->eps);
    x->m[k][c] = pow(b1, skipped) * x->m[k][c] + (1 - b1) * g;
    x->v[k][c] = pow(b2, skipped) * x->v[k][c] + (1 - b2) * g * g;
}

static void ftrl(struct oracle *x, int k, int c, double g)
{
    const embd_optimizer *o = x->o;
    double n = x->m[k][c] + g * g, sign;
    x->v[k][c] += g - (sqrt(n + o->eps) - sqrt(x->m[k][c] + o->eps)) / x->lr * x->w[k][c];
    x->m[k][c] = n;
    sign = x->v[k][c] < 0 ? -1 : 1;
    x->w[k][c] = fabs(x->v[k][c]) > o->l1
                     ? (sign * o->l1 - x->v[k][c]) /
                           (sqrt(n + o->eps) / x->lr + o->l2 + (double)o->beta / x->lr)
                     : 0;
}

static void step_column(struct oracle *x, int k, int c, double g, double mean_square)
{
    const embd_optimizer *o = x->o;
    double before = x->m[k][c];
    switch (o->kind) {
    case EMBD_OPTIMIZER_SGD:
        x->w[k][c] -= x->lr * g;
        break;
    case EMBD_OPTIMIZER_MOMENTUM:
        x->m[k][c] = o->momentum * before - x->lr * g;
        x->w[k][c] += x->m[k][c];
        break;
    case EMBD_OPTIMIZER_NESTEROV:
        x->m[k][c] = o->momentum * before - x->lr * g;
        x->w[k][c] += -o->momentum * before + (1 + (double)o->momentum) * x->m[k][c];
        break;
    case EMBD_OPTIMIZER_ADAGRAD:
    case EMBD_OPTIMIZER_ROWWISE_ADAGRAD:
        x->v[k][c] += o->kind == EMBD_OPTIMIZER_ADAGRAD ? g * g : mean_square;
        x->w[k][c] -= x->lr * g / (sqrt(x->v[k][c]) + o->eps);
        break;
    case EMBD_OPTIMIZER_ADAM:
        if (o->update == EMBD_UPDATE_LAZY_GLOBAL)
            lazy_adam(x, k, c, g);
        else
            adam(x, k, c, g);
        break;
    case EMBD_OPTIMIZER_RMSPROP:
        x->v[k][c] = o->beta2 * x->v[k][c] + (1 - (double)o->beta2) * g * g;
        x->w[k][c] -= x->lr * g / (sqrt(x->v[k][c]) + o->eps);
        break;
    case EMBD_OPTIMIZER_FTRL:
        ftrl(x, k, c, g);
        break;
    default: /* test_regularization.py has the others */
        break;
    }
}

static void step_key(struct oracle *x, int k, const double *g)
{
    double mean_square = 0;
    for (int c = 0; c < DIM; c++)
        mean_square += g[c] * g[c] / DIM;
    for (int c = 0; c < DIM; c++)
        step_column(x, k, c, g[c], mean_square);
    x->prev[k] = x->t;
}

/* One push: `sum` is each key's summed gradient, over the scaler. */
static void oracle_push(struct oracle *x, const bool *touched, double sum[KEYS][DIM])
{
    static const double nothing[DIM];
    x->t++;
    for (int k = 0; k < KEYS; k++) {
        if (touched[k]) {
            x->prev[k] = x->exists[k] ? x->prev[k] : 1;
            x->exists[k] = true;
            step_key(x, k, sum[k]);
        } else if (x->exists[k] && x->o->update == EMBD_UPDATE_GLOBAL &&
                   x->o->kind != EMBD_OPTIMIZER_FTRL) { /* its w would follow another lr */
            step_key(x, k, nothing);
        }
    }
}

/* The store gets the same gradients, repeated keys and all. */
static void push_both(struct pair *pair, struct oracle *x)
{
    uint64_t keys[TOUCHES];
    float grads[TOUCHES][DIM];
    bool touched[KEYS] = {false};
    double sum[KEYS][DIM] = {{0}};
    struct outcome outcome;
    struct batch batch;
    for (int i = 0; i < TOUCHES; i++) {
        uint32_t k = dice_below(&pair->dice, KEYS);
        keys[i] = k;
        touched[k] = true;
        for (int c = 0; c < DIM; c++) {
            grads[i][c] = dice_float(&pair->dice);
            sum[k][c] += (double)grads[i][c] / x->o->scaler;
        }
    }
    batch_of(&batch, keys, TOUCHES);
    struct store_change push = {.in = batch_keys(&batch), .dtype = EMBD_DTYPE_F32, .grads = grads};
    push.lr = pair_draw_lr(pair);
    x->lr = push.lr > 0 ? (double)push.lr : (double)x->o->lr;
    outcome_init(&outcome);
    pair->ops->apply(pair->store, &push, &outcome.done);
    while (outcome.calls == 0)
        pair->ops->collect(pair->store);
    assert_int_equal(outcome.status, EMBD_OK);
    oracle_push(x, touched, sum);
    batch_free(&batch);
}

static void compare(struct pair *pair, const struct oracle *x, float values[KEYS][DIM])
{
    for (int k = 0; k < KEYS; k++)
        for (int c = 0; c < DIM; c++) {
            double expected = x->w[k][c], off = fabs((double)values[k][c] - expected);
            if (!(off <= 2e-5 * (1 + fabs(expected))))
                fail_msg("%s %s, step %d, key %d column %d: store %.9g, formula %.9g",
                         embd_optimizer_name(pair->schema.s.optimizer.kind),
                         embd_update_name(pair->schema.s.optimizer.update), x->t, k, c,
                         (double)values[k][c], expected);
        }
}

static void pull_all(struct pair *pair, float values[KEYS][DIM])
{
    uint64_t keys[KEYS];
    struct outcome outcome;
    struct batch batch;
    for (uint64_t k = 0; k < KEYS; k++)
        keys[k] = k;
    batch_of(&batch, keys, KEYS);
    struct store_pull pull = {
        .in = batch_keys(&batch), .dtype = EMBD_DTYPE_F32, .count = KEYS, .values = values};
    outcome_init(&outcome);
    pair->ops->pull(pair->store, &pull, &outcome.done);
    while (outcome.calls == 0)
        pair->ops->collect(pair->store);
    assert_int_equal(outcome.status, EMBD_OK);
    batch_free(&batch);
}

static void run(embd_optimizer_kind kind, embd_update update, float scaler, float first)
{
    embd_schema s;
    struct pair pair;
    float values[KEYS][DIM];
    embd_schema_init(&s);
    strcpy(s.name, "oracle");
    s.dim = DIM;
    embd_optimizer_init(&s.optimizer, kind, 0.05f);
    s.optimizer.update = update;
    s.optimizer.scaler = scaler;
    s.optimizer.initial_accumulator = first;
    if (kind == EMBD_OPTIMIZER_FTRL)
        s.optimizer.l1 = 0.01f, s.optimizer.l2 = 0.02f, s.optimizer.beta = 0.3f;
    pair_open(&pair, store_name, &s, (uint64_t)kind * 3 + update + 1);
    struct oracle *x = calloc(1, sizeof *x);
    x->o = &pair.schema.s.optimizer;
    pull_all(&pair, values);
    for (int k = 0; k < KEYS; k++)
        for (int c = 0; c < DIM; c++) {
            x->w[k][c] = (double)values[k][c];
            bool is_adagrad =
                kind == EMBD_OPTIMIZER_ADAGRAD || kind == EMBD_OPTIMIZER_ROWWISE_ADAGRAD;
            x->v[k][c] = is_adagrad ? (double)first : 0;
        }
    for (int step = 0; step < STEPS; step++) {
        push_both(&pair, x);
        pull_all(&pair, values);
        compare(&pair, x, values);
        if (step % 20 == 7)
            pair_reload_at(&pair, (uint64_t)x->t);
    }
    free(x);
    pair_close(&pair);
}

/* Section 2d of the reference: all rules that mean something, without its faults: AdaGrad begins at
 * any value, Ftrl steps. */
static void test_formulas(void **state)
{
    (void)state;
    for (int kind = EMBD_OPTIMIZER_SGD; kind <= EMBD_OPTIMIZER_FTRL; kind++)
        for (int update = EMBD_UPDATE_LOCAL; update <= EMBD_UPDATE_GLOBAL; update++) {
            run((embd_optimizer_kind)kind, (embd_update)update, 1.0f, 0.0f);
            run((embd_optimizer_kind)kind, (embd_update)update, 1024.0f, 0.25f);
        }
    run(EMBD_OPTIMIZER_ADAM, EMBD_UPDATE_LAZY_GLOBAL, 1.0f, 0.0f);
    run(EMBD_OPTIMIZER_ADAM, EMBD_UPDATE_LAZY_GLOBAL, 1024.0f, 0.0f);
}

static void open_plain(struct pair *pair, embd_optimizer_kind kind, embd_update update,
                       float momentum)
{
    embd_schema s;
    embd_schema_init(&s);
    strcpy(s.name, "plain");
    s.dim = DIM;
    embd_optimizer_init(&s.optimizer, kind, 0.05f);
    s.optimizer.update = update;
    s.optimizer.momentum = momentum;
    pair_open(pair, store_name, &s, 5);
}

/* The reference divides by the factor in its global update: with its default of 0 every row is NaN.
 * Here a factor of 0 is sgd. */
static void test_momentum_zero(void **state)
{
    (void)state;
    for (int update = EMBD_UPDATE_LOCAL; update <= EMBD_UPDATE_GLOBAL; update++) {
        float values[KEYS][DIM], expected[KEYS][DIM];
        struct pair a, b;
        open_plain(&a, EMBD_OPTIMIZER_MOMENTUM, (embd_update)update, 0.0f);
        open_plain(&b, EMBD_OPTIMIZER_SGD, EMBD_UPDATE_LOCAL, 0.0f);
        struct oracle *x = calloc(1, sizeof *x), *y = calloc(1, sizeof *y);
        x->o = &a.schema.s.optimizer;
        y->o = &b.schema.s.optimizer;
        for (int i = 0; i < 10; i++) {
            push_both(&a, x);
            push_both(&b, y);
        }
        pull_all(&a, values);
        pull_all(&b, expected);
        for (int k = 0; k < KEYS; k++)
            for (int c = 0; c < DIM; c++)
                assert_float_equal(values[k][c], expected[k][c], 1e-6);
        free(x);
        free(y);
        pair_close(&a);
        pair_close(&b);
    }
}

/* A row pushed at every step is, under lazy_global, where plain adam was one step earlier. */
static void test_lazy_lags_by_one(void **state)
{
    (void)state;
    float lazy[KEYS][DIM], plain[KEYS][DIM], before[KEYS][DIM];
    struct pair a, b;
    struct batch batch;
    open_plain(&a, EMBD_OPTIMIZER_ADAM, EMBD_UPDATE_LAZY_GLOBAL, 0.9f);
    open_plain(&b, EMBD_OPTIMIZER_ADAM, EMBD_UPDATE_LOCAL, 0.9f);
    batch_of(&batch, (const uint64_t[]){3}, 1);
    a.has_one_lr = b.has_one_lr = true;
    pull_all(&b, before);
    for (int i = 0; i < 30; i++) {
        pair_push(&a, &batch, EMBD_DTYPE_F32, false);
        pair_push(&b, &batch, EMBD_DTYPE_F32, false);
        pull_all(&a, lazy);
        pull_all(&b, plain);
        for (int c = 0; c < DIM; c++)
            assert_float_equal(lazy[3][c], before[3][c], 2e-6);
        memcpy(before, plain, sizeof plain);
    }
    batch_free(&batch);
    pair_close(&a);
    pair_close(&b);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        store_name = argv[1];
    const struct CMUnitTest tests[] = {
        {"2d sgd, momentum, nesterov, adagrad, rowwise_adagrad, adam, rmsprop and ftrl follow "
         "their formulas, "
         "local and global; adam lazy_global too",
         test_formulas, NULL, NULL, NULL},
        {"2d momentum of factor 0 is sgd, local and global (the reference: NaN)",
         test_momentum_zero, NULL, NULL, NULL},
        {"2d lazy_global lags one step behind adam", test_lazy_lags_by_one, NULL, NULL, NULL},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
