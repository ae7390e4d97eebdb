/* test_wholerow.c - clipping, weight decay, limits of rows, and the optimizers that look at a whole
 * row: a store gives the model's bits for every optimizer with each of them and with several at
 * once, in every dtype, over rows of one column to many, keys named once and hundreds of times, and
 * rates and parameters that change. Arguments: the store's name, to run one case of so many, and
 * the way of store nccl. */
#include <float.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/store/pair.h"

static const char *store_name = "host";
static uint32_t every = 1;

static const uint64_t pool[] = {0, 1, 2, 3, 4, 5, 6, 1ULL << 63, UINT64_MAX, 1ULL << 54, 1024, 77};
static const uint32_t dims[] = {1, 3, 4, 16, 31, 32, 33, 64, 130};

enum { N_RULES = 11 };

/* What a table regularizes: one thing, or several. */
static void regularize(embd_schema *s, uint32_t rule)
{
    embd_regularization *r = &s->regularization;
    bool all = rule == N_RULES - 1;
    r->clip_value = rule == 1 || all ? 0.5f : 0.0f;
    r->clip_norm = rule == 2 || all ? 0.75f : 0.0f;
    r->weight_decay = rule >= 3 && rule <= 6 ? 0.125f : all ? 0.0625f : 0.0f;
    r->decay = rule == 4 || all ? EMBD_DECAY_DECOUPLED
               : rule == 5      ? EMBD_DECAY_DECOUPLED_GLOBAL
                                : EMBD_DECAY_L2;
    r->max_norm = rule == 7 || all ? 0.2f : 0.0f;
    r->weight_min = rule == 8 || all ? -0.03f : -FLT_MAX;
    r->weight_max = rule == 8 || all ? 0.04f : FLT_MAX;
    r->lr_decay = rule == 9 || all ? 0.25f : 0.0f;
    r->counter_halflife = rule % 2 ? 3.5f : 0.0f;
    if (rule == 6)
        r->clip_norm = 0.25f;
}

static embd_schema schema_of(embd_optimizer_kind kind, uint32_t rule, uint32_t number)
{
    embd_schema s;
    embd_schema_init(&s);
    strcpy(s.name, "case");
    s.dim = dims[number % (sizeof dims / sizeof dims[0])];
    s.dtype = pair_dtypes[number % PAIR_DTYPES];
    if (s.dtype != EMBD_DTYPE_F32)
        s.rounding = (embd_rounding)(number / 5 % 3);
    s.combiner = number % 2 ? EMBD_COMBINER_SUM : EMBD_COMBINER_MEAN;
    s.partition = number % 5 ? EMBD_PARTITION_HASH : EMBD_PARTITION_SLOT;
    s.slots = number % 5 ? 1 : 3;
    embd_optimizer_init(&s.optimizer, kind, 0.05f);
    s.optimizer.scaler = number % 4 ? 1.0f : 8.0f;
    s.optimizer.l1 = 0.001f;
    s.seed = number;
    s.on_full = number % 7 ? EMBD_ON_FULL_GROW : EMBD_ON_FULL_EVICT_LFU;
    s.capacity = number % 7 ? 0 : 8;
    regularize(&s, rule);
    return s;
}

/* One key so often that its gradients are summed in runs. */
static void push_repeated(struct pair *pair)
{
    enum { N = 700 };
    uint64_t keys[N];
    struct batch batch;
    for (uint32_t i = 0; i < N; i++)
        keys[i] = i % 9 ? 5 : pool[i % pair->n_pool];
    batch_of(&batch, keys, N);
    pair_push(pair, &batch, EMBD_DTYPE_F32, false);
    batch_free(&batch);
}

/* The table's weight_decay and clip_norm change while it lives. */
static void alter(struct pair *pair)
{
    embd_regularization *own = &pair->schema.s.regularization,
                        *of_model = &pair->model->schema.regularization;
    own->weight_decay = of_model->weight_decay = 0.25f;
    own->clip_norm = of_model->clip_norm = own->clip_norm > 0.0f ? 0.0f : 0.5f;
    pair->ops->alter(pair->store);
}

static void one_call(struct pair *pair, uint32_t number)
{
    struct batch batch;
    uint32_t what = dice_below(&pair->dice, 8);
    batch_draw(pair, &batch, dice_below(&pair->dice, 12), 4, what == 0, number % 2);
    if (what < 5)
        pair_push(pair, &batch, (embd_dtype)(number % 3), what == 1);
    else if (what == 5)
        pair_pull(pair, &batch, EMBD_DTYPE_F32, false, false);
    else if (what == 6)
        pair_insert(pair, &batch, false);
    else
        pair_reload(pair);
    batch_free(&batch);
}

static void run_case(embd_optimizer_kind kind, uint32_t rule, uint32_t number)
{
    struct pair pair;
    embd_schema schema = schema_of(kind, rule, number);
    if (embd_schema_check(&schema) != EMBD_OK) /* of decoupled decay, some optimizers */
        return;
    pair_open(&pair, store_name, &schema, number);
    pair.pool = pool;
    pair.n_pool = sizeof pool / sizeof pool[0];
    for (int i = 0; i < 20; i++) {
        if (i == 14 && schema.partition != EMBD_PARTITION_SLOT)
            push_repeated(&pair);
        if (i == 12 && kind != EMBD_OPTIMIZER_FTRL)
            alter(&pair);
        one_call(&pair, number);
    }
    pair_compare(&pair);
    pair_close(&pair);
}

static void test_cases(void **state)
{
    (void)state;
    uint32_t number = 0;
    for (int kind = EMBD_OPTIMIZER_SGD; kind <= EMBD_OPTIMIZER_COUNTER_ADAGRAD; kind++)
        for (uint32_t rule = 0; rule < N_RULES; rule++)
            for (uint32_t turn = 0; turn < 3; turn++)
                if (++number % every == 0)
                    run_case((embd_optimizer_kind)kind, rule, number);
}

/* Rows of zeros, whose norms are 0, without eps. */
static void test_edges(void **state)
{
    (void)state;
    for (int kind = EMBD_OPTIMIZER_SGD; kind <= EMBD_OPTIMIZER_COUNTER_ADAGRAD; kind++) {
        if (kind == EMBD_OPTIMIZER_FTRL)
            continue;
        embd_schema s = schema_of((embd_optimizer_kind)kind, N_RULES - 1, 4);
        s.initializer = (embd_initializer){EMBD_INITIALIZER_CONSTANT, 0.0f, 0.0f};
        s.optimizer.eps = 0.0f;
        struct pair pair;
        pair_open(&pair, store_name, &s, 3);
        pair.pool = pool;
        pair.n_pool = 4;
        for (int i = 0; i < 6; i++)
            one_call(&pair, 4);
        pair_compare(&pair);
        pair_close(&pair);
    }
}

int main(int argc, char **argv)
{
    store_name = argc > 1 ? argv[1] : store_name;
    every = argc > 2 ? (uint32_t)atoi(argv[2]) : every;
    if (argc > 3)
        pair_set_way(argv[3]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases), cmocka_unit_test(test_edges)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
