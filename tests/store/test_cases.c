/* test_cases.c - the case table: random schedules of every kind of call, over every optimizer,
 * combiner, dtype, partition and wire dtype, each compared with the model after every call.
 * Arguments: the store's name, n to run only every n-th case (from 50 on also less of
 * growth and eviction), and the way of store nccl. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/store/pair.h"

static const char *store_name;
static uint32_t every = 1;

struct test_case {
    embd_optimizer_kind optimizer;
    embd_combiner combiner;
    embd_dtype dtype, wire;
    embd_partition partition;
    bool weights;
    uint32_t number;
};

static const uint64_t sizes[] = {50, 3, 200, 1};
static const uint32_t dims[] = {1, 2, 3, 4, 7, 8, 16, 31, 32, 33, 64, 65};

static embd_schema schema_of(const struct test_case *c, struct dice *dice)
{
    embd_schema s;
    embd_schema_init(&s);
    strcpy(s.name, "case");
    s.dim = dims[c->number % (sizeof dims / sizeof dims[0])];
    s.slots = c->partition == EMBD_PARTITION_SLOT ? 4 : 1 + 3 * (c->number & 1);
    s.partition = c->partition;
    s.combiner = c->combiner;
    s.dtype = c->dtype;
    embd_optimizer_init(&s.optimizer, c->optimizer, 0.05f);
    s.optimizer.update = (embd_update)(c->number / 2 % 3);
    if (s.optimizer.update == EMBD_UPDATE_LAZY_GLOBAL && c->optimizer != EMBD_OPTIMIZER_ADAM)
        s.optimizer.update = EMBD_UPDATE_GLOBAL;
    if (model_has_codes(s.dtype))
        s.optimizer.update = EMBD_UPDATE_LOCAL;
    s.optimizer.scaler = c->number % 3 ? 1.0f : 1024.0f;
    s.optimizer.initial_accumulator = c->number % 2 ? 0.1f : 0.0f;
    s.optimizer.l1 = 0.001f * (float)(c->number % 4);
    s.optimizer.l2 = 0.01f;
    s.optimizer.beta = 0.5f;
    s.seed = dice_next(dice);
    if (s.dtype != EMBD_DTYPE_F32)
        s.rounding = (embd_rounding)(c->number / 3 % 3);
    if (s.rounding == EMBD_ROUNDING_STOCHASTIC && s.optimizer.update == EMBD_UPDATE_GLOBAL)
        s.rounding = EMBD_ROUNDING_MASTER;
    s.initializer.kind = (embd_initializer_kind)(dice_below(dice, 4));
    if (s.initializer.kind == EMBD_INITIALIZER_UNIFORM_SLOT) {
        s.slots = 4;
        s.slot_sizes = sizes;
    }
    if (s.initializer.kind == EMBD_INITIALIZER_NORMAL) {
        s.initializer.a = 0.25f;
        s.initializer.b = 0.5f;
    }
    s.admit_after = dice_below(dice, 4);
    if (dice_below(dice, 2)) {
        s.on_full = (embd_on_full)(EMBD_ON_FULL_ERROR + dice_below(dice, 5));
        s.capacity = 1 + dice_below(dice, 60);
        s.ttl = 1 + dice_below(dice, 6);
        if (s.on_full == EMBD_ON_FULL_EVICT_TTL && dice_below(dice, 2)) {
            s.ttl_seconds = s.ttl;
            s.ttl = 0;
        }
        s.lfu_half_life = dice_below(dice, 5);
        s.lfu_occurrences = dice_below(dice, 2);
    }
    return s;
}

static const uint64_t pool[] = {0,
                                1,
                                2,
                                3,
                                4,
                                5,
                                6,
                                7,
                                8,
                                9,
                                UINT64_MAX,
                                UINT64_MAX - 1,
                                1ULL << 63,
                                (1ULL << 63) - 1,
                                0x9e3779b97f4a7c15ULL,
                                0ULL - 0x9e3779b97f4a7c15ULL,
                                0xffffffffULL,
                                0x100000000ULL,
                                1024,
                                1025,
                                4096,
                                65536,
                                0x123456789abcdefULL,
                                1ULL << 32,
                                1ULL << 54,
                                1ULL << 53,
                                77,
                                78,
                                79,
                                80,
                                81,
                                82,
                                83,
                                84,
                                85,
                                86,
                                87,
                                88};

static void one_call(struct pair *pair, const struct test_case *c)
{
    struct dice *dice = &pair->dice;
    struct batch batch;
    bool is_raw = c->combiner == EMBD_COMBINER_CONCAT || dice_below(dice, 3) == 0;
    embd_dtype wire = dice_below(dice, 2) ? c->wire : EMBD_DTYPE_F32;
    batch_draw(pair, &batch, dice_below(dice, 40), 5, is_raw, c->weights);
    switch (dice_below(dice, 9)) {
    case 0:
    case 1:
    case 2:
        pair_pull(pair, &batch, wire, dice_below(dice, 4) == 0, dice_below(dice, 2));
        break;
    case 3:
    case 4:
    case 5:
        pair_push(pair, &batch, wire, dice_below(dice, 2));
        break;
    case 6:
        pair_insert(pair, &batch, dice_below(dice, 2));
        break;
    case 7:
        pair_erase(pair, &batch, dice_below(dice, 2));
        break;
    default:
        if (dice_below(dice, 2))
            pair_reload(pair);
        pair_compare(pair);
    }
    batch_free(&batch);
}

static void run_case(const struct test_case *c)
{
    struct dice dice = {c->number};
    struct pair pair;
    embd_schema schema = schema_of(c, &dice);
    pair_open(&pair, store_name, &schema, dice_next(&dice));
    pair.pool = pool;
    pair.n_pool = sizeof pool / sizeof pool[0];
    for (int i = 0; i < 24; i++)
        one_call(&pair, c);
    pair_compare(&pair);
    pair_close(&pair);
}

static void test_case_table(void **state)
{
    (void)state;
    struct test_case c = {.number = 0};
    for (int optimizer = EMBD_OPTIMIZER_SGD; optimizer <= EMBD_OPTIMIZER_FTRL; optimizer++)
        for (int combiner = EMBD_COMBINER_CONCAT; combiner <= EMBD_COMBINER_SQRTN; combiner++)
            for (size_t dtype = 0; dtype < PAIR_DTYPES; dtype++)
                for (int wire = EMBD_DTYPE_F32; wire <= EMBD_DTYPE_BF16; wire++)
                    for (int partition = EMBD_PARTITION_HASH; partition <= EMBD_PARTITION_SLOT;
                         partition++)
                        for (int weights = 0; weights < 2; weights++) {
                            c = (struct test_case){.optimizer = (embd_optimizer_kind)optimizer,
                                                   .combiner = (embd_combiner)combiner,
                                                   .dtype = pair_dtypes[dtype],
                                                   .wire = (embd_dtype)wire,
                                                   .partition = (embd_partition)partition,
                                                   .weights = weights,
                                                   .number = c.number + 1};
                            bool is_left_out = model_has_codes(c.dtype) && c.number / 5 % 4;
                            if (c.number % every == 0 && !is_left_out)
                                run_case(&c);
                        }
}

static embd_schema plain_schema(uint32_t dim, embd_optimizer_kind optimizer)
{
    embd_schema s;
    embd_schema_init(&s);
    strcpy(s.name, "plain");
    s.dim = dim;
    embd_optimizer_init(&s.optimizer, optimizer, 0.01f);
    return s;
}

/* Runs of 256: below, at, above one and several runs. */
static void test_repeated_key(void **state)
{
    (void)state;
    static const uint32_t times[] = {1, 2, 255, 256, 257, 511, 512, 513, 5000};
    embd_schema schema = plain_schema(20, EMBD_OPTIMIZER_ADAGRAD);
    struct pair pair;
    pair_open(&pair, store_name, &schema, 7);
    pair.pool = (const uint64_t[]){5};
    pair.n_pool = 1;
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        struct batch batch;
        batch_draw(&pair, &batch, times[i], 1, true, false);
        pair_push(&pair, &batch, EMBD_DTYPE_F32, i & 1);
        batch_free(&batch);
        batch_draw(&pair, &batch, times[i], 3, false, i & 1);
        pair_push(&pair, &batch, EMBD_DTYPE_BF16, true);
        batch_free(&batch);
        pair_compare(&pair);
    }
    pair_close(&pair);
}

/* By every rule, rows of one lane to all of a warp: keys that are new and come once, and in the
 * last push one that comes twice. */
static void push_new_keys(uint32_t dim, embd_optimizer_kind kind)
{
    enum { KEYS = 77, PUSHES = 4 };
    embd_schema schema = plain_schema(dim, kind);
    schema.optimizer.initial_accumulator = 0.25f;
    schema.optimizer.scaler = 2.0f;
    struct pair pair;
    pair_open(&pair, store_name, &schema, dim);
    for (uint64_t push = 0; push < PUSHES; push++) {
        struct batch batch;
        uint64_t keys[KEYS];
        for (uint64_t i = 0; i < KEYS; i++)
            keys[i] = (push * KEYS + i) * 0x9e3779b97f4a7c15u;
        if (push == PUSHES - 1)
            keys[3] = keys[40];
        batch_of(&batch, keys, KEYS);
        pair_push(&pair, &batch, EMBD_DTYPE_F32, push & 1);
        batch_free(&batch);
        pair_compare(&pair);
    }
    pair_close(&pair);
}

static void test_first_push(void **state)
{
    (void)state;
    static const uint32_t widths[] = {4, 8, 16, 64, 128};
    for (int kind = 0; kind <= (int)EMBD_OPTIMIZER_FTRL; kind++)
        for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++)
            push_new_keys(widths[i], (embd_optimizer_kind)kind);
}

/* Growth: from one small segment through many full ones, rows over several chunks. */
static void test_growth(void **state)
{
    (void)state;
    enum { BATCH = 3000 };
    const uint32_t n_keys = every < 50 ? 200000 : 40000;
    embd_schema schema = plain_schema(40, EMBD_OPTIMIZER_MOMENTUM);
    struct pair pair;
    pair_open(&pair, store_name, &schema, 11);
    uint64_t keys[BATCH];
    for (uint32_t n = 0; n < n_keys; n += BATCH) {
        struct batch batch;
        for (uint32_t i = 0; i < BATCH; i++)
            keys[i] =
                dice_below(&pair.dice, 4) || n == 0 ? (uint64_t)n + i : dice_below(&pair.dice, n);
        batch_of(&batch, keys, BATCH);
        pair_push(&pair, &batch, EMBD_DTYPE_F32, false);
        if (n % (7 * BATCH) == 0)
            pair_pull(&pair, &batch, EMBD_DTYPE_F32, false, false);
        batch_free(&batch);
    }
    pair_compare(&pair);
    pair_reload(&pair);
    pair_compare(&pair);
    pair_close(&pair);
}

/* The widest rows, and a batch whose first and last rows are empty. */
static void test_extremes(void **state)
{
    (void)state;
    for (size_t dtype = 0; dtype < PAIR_DTYPES; dtype++) {
        embd_schema schema = plain_schema(EMBD_DIM_MAX, EMBD_OPTIMIZER_ADAM);
        schema.dtype = pair_dtypes[dtype];
        schema.combiner = EMBD_COMBINER_MEAN;
        struct pair pair;
        pair_open(&pair, store_name, &schema, 13);
        uint64_t keys[] = {UINT64_MAX, 0, UINT64_MAX};
        uint32_t offsets[] = {0, 0, 0, 3, 3, 3};
        struct batch batch;
        batch_of(&batch, keys, 3);
        pair_push(&pair, &batch, EMBD_DTYPE_F16, true);
        batch.in.offsets = offsets;
        batch.in.n_rows = 5;
        pair_pull(&pair, &batch, EMBD_DTYPE_F32, false, true);
        pair_push(&pair, &batch, EMBD_DTYPE_F32, false);
        pair_pull(&pair, &batch, EMBD_DTYPE_BF16, true, false);
        pair_compare(&pair);
        batch_free(&batch);
        pair_close(&pair);
    }
}

/* What GUIDE says of 64 columns: the bytes of a stored row, and up to 15 more that align it. */
static void test_row_bytes(void **state)
{
    static const uint64_t expected[] = {256, 128, 128, 68, 68};
    (void)state;
    for (size_t dtype = 0; dtype < PAIR_DTYPES; dtype++) {
        embd_schema schema = plain_schema(64, EMBD_OPTIMIZER_SGD);
        schema.dtype = pair_dtypes[dtype];
        schema.capacity = 50000;
        struct store_stats stats;
        struct pair pair;
        pair_open(&pair, store_name, &schema, 13);
        pair.ops->stats(pair.store, &stats);
        uint64_t bytes = stats.row_bytes / stats.capacity;
        if (bytes < expected[dtype] || bytes > expected[dtype] + 12)
            fail_msg("dtype %d: a row has %llu bytes", pair_dtypes[dtype],
                     (unsigned long long)bytes);
        pair_close(&pair);
    }
}

/* An empty push counts a step; an empty pull answers. */
static void test_empty(void **state)
{
    (void)state;
    embd_schema schema = plain_schema(8, EMBD_OPTIMIZER_ADAM);
    struct pair pair;
    struct batch batch;
    pair_open(&pair, store_name, &schema, 17);
    batch_of(&batch, NULL, 0);
    pair_pull(&pair, &batch, EMBD_DTYPE_F32, false, false);
    pair_push(&pair, &batch, EMBD_DTYPE_F32, false);
    pair_push(&pair, &batch, EMBD_DTYPE_F32, true);
    assert_int_equal(pair.model->step, 2);
    pair_compare(&pair);
    batch_free(&batch);
    pair_close(&pair);
}

/* A push without keys steps every row of a table that is global, with its own rate. */
static void test_empty_of_global(void **state)
{
    (void)state;
    static const uint64_t keys[3] = {1, 2, 3};
    embd_schema schema = plain_schema(8, EMBD_OPTIMIZER_ADAM);
    schema.optimizer.update = EMBD_UPDATE_GLOBAL;
    struct pair pair;
    struct batch batch, none;
    pair_open(&pair, store_name, &schema, 18);
    batch_of(&batch, keys, 3);
    batch_of(&none, NULL, 0);
    pair_push(&pair, &batch, EMBD_DTYPE_F32, false);
    for (uint32_t i = 0; i < 12; i++)
        pair_push(&pair, &none, EMBD_DTYPE_F32, false);
    pair_compare(&pair);
    batch_free(&batch);
    batch_free(&none);
    pair_close(&pair);
}

#define SWEPT 300u

static uint64_t slices_left(const struct pair *pair)
{
    struct store_stats stats;
    pair->ops->stats(pair->store, &stats);
    return stats.slices;
}

/* Rows that no key has are among those that a push passes over. */
static void open_swept(struct pair *pair, uint64_t keys[SWEPT])
{
    embd_schema schema = plain_schema(8, EMBD_OPTIMIZER_ADAM);
    struct batch batch;
    schema.optimizer.update = EMBD_UPDATE_GLOBAL;
    pair_open(pair, store_name, &schema, 21);
    for (uint32_t i = 0; i < SWEPT; i++)
        keys[i] = i;
    batch_of(&batch, keys, SWEPT);
    pair_push(pair, &batch, EMBD_DTYPE_F32, false);
    batch_free(&batch);
    batch_of(&batch, keys, SWEPT / 3);
    pair_erase(pair, &batch, false);
    batch_free(&batch);
}

static void pull_meanwhile(struct pair *pair, const struct batch *batch)
{
    pair_pull(pair, batch, EMBD_DTYPE_F32, false, false);
}

static void read_meanwhile(struct pair *pair, const struct batch *batch)
{
    (void)batch;
    pair_read(pair);
}

static void push_meanwhile(struct pair *pair, const struct batch *batch)
{
    pair_push(pair, batch, EMBD_DTYPE_F32, true);
    while (pair->ops->collect(pair->store))
        ;
}

static void insert_meanwhile(struct pair *pair, const struct batch *batch)
{
    pair_insert(pair, batch, false);
    assert_int_equal(slices_left(pair), 0);
}

static void erase_meanwhile(struct pair *pair, const struct batch *batch)
{
    pair_erase(pair, batch, true);
    assert_int_equal(slices_left(pair), 0);
}

static void compare_meanwhile(struct pair *pair, const struct batch *batch)
{
    (void)batch;
    pair_compare(pair);
}

/* What may come while rows are left to step that a push did not name. */
static void (*const meanwhile[])(struct pair *pair, const struct batch *batch) = {
    pull_meanwhile,   read_meanwhile,  push_meanwhile,
    insert_meanwhile, erase_meanwhile, compare_meanwhile,
};

/* On the host a push of all rows leaves the most of them for collect, and that shows nowhere. */
static void test_swept(void **state)
{
    (void)state;
    uint64_t keys[SWEPT];
    bool is_divided = strcmp(store_name, "host") == 0;
    struct pair pair;
    struct batch batch, none;
    open_swept(&pair, keys);
    batch_of(&batch, (const uint64_t[]){250, 7, 299, 120, 250, 1000}, 6);
    batch_of(&none, NULL, 0);
    for (uint32_t n_before = 0; n_before < 130; n_before += 11) {
        for (uint32_t i = 0; i < sizeof meanwhile / sizeof meanwhile[0]; i++) {
            pair_push(&pair, &none, EMBD_DTYPE_F32, false);
            for (uint32_t n = 0; n < n_before; n++)
                assert_int_equal(pair.ops->collect(pair.store), is_divided);
            assert_int_equal(slices_left(&pair) > 0, is_divided);
            meanwhile[i](&pair, &batch);
            pair_compare(&pair);
        }
    }
    batch_free(&batch);
    batch_free(&none);
    pair_close(&pair);
}

/* A refused push leaves rows, candidates and step; with statuses the first keys get the room that
 * is left. */
static void test_full(void **state)
{
    (void)state;
    embd_schema schema = plain_schema(8, EMBD_OPTIMIZER_ADAM);
    schema.on_full = EMBD_ON_FULL_ERROR;
    schema.capacity = 5;
    struct pair pair;
    struct batch batch;
    pair_open(&pair, store_name, &schema, 19);
    batch_of(&batch, (const uint64_t[]){1, 2, 3, 2, 1}, 5);
    assert_int_equal(pair_push(&pair, &batch, EMBD_DTYPE_F32, false), EMBD_OK);
    batch_free(&batch);
    batch_of(&batch, (const uint64_t[]){1, 7, 8, 7, 9, 2}, 6);
    assert_int_equal(pair_push(&pair, &batch, EMBD_DTYPE_F32, false), EMBD_FULL);
    assert_int_equal(pair_insert(&pair, &batch, false), EMBD_FULL);
    pair_compare(&pair);
    assert_int_equal(pair_push(&pair, &batch, EMBD_DTYPE_F32, true), EMBD_OK);
    pair_compare(&pair);
    assert_int_equal(pair.model->n_rows, 5);
    batch_free(&batch);
    pair_close(&pair);
}

/* A block that does not fit changes nothing; one that does replaces rows and admits candidates. */
static void test_load(void **state)
{
    (void)state;
    embd_schema schema = plain_schema(2, EMBD_OPTIMIZER_ROWWISE_ADAGRAD);
    schema.on_full = EMBD_ON_FULL_ERROR;
    schema.capacity = 3;
    schema.admit_after = 2;
    struct pair pair;
    struct embd__error e = {0};
    pair_open(&pair, store_name, &schema, 23);
    struct row_block block = {.n_rows = 3,
                              .n_candidates = 2,
                              .keys = (const uint64_t[]){1, 2, 1},
                              .rows = (const float[]){1, 2, 3, 4, 5, 6},
                              .states = (const float[]){7, 8, 9},
                              .candidate_keys = (const uint64_t[]){4, 1},
                              .candidate_counts = (const uint32_t[]){1, 1}};
    assert_int_equal(pair.ops->load(pair.store, &block, &e), EMBD_OK);
    model_set_row(pair.model, 1, 0, (const float[]){5, 6}, (const float[]){9});
    model_set_row(pair.model, 2, 0, (const float[]){3, 4}, (const float[]){8});
    model_set_candidate(pair.model, 4, 0, 1);
    pair_compare(&pair);
    block.keys = (const uint64_t[]){4, 1, 4}; /* a key that stands there twice needs one row */
    assert_int_equal(pair.ops->load(pair.store, &block, &e), EMBD_OK);
    model_set_row(pair.model, 4, 0, (const float[]){5, 6}, (const float[]){9});
    model_set_row(pair.model, 1, 0, (const float[]){3, 4}, (const float[]){8});
    pair_compare(&pair);
    block.keys = (const uint64_t[]){1, 5, 6};
    assert_int_equal(pair.ops->load(pair.store, &block, &e), EMBD_FULL);
    pair_compare(&pair);
    block.n_rows = block.n_candidates = 1;
    block.keys = (const uint64_t[]){4};
    block.candidate_keys = (const uint64_t[]){8};
    assert_int_equal(pair.ops->load(pair.store, &block, &e), EMBD_OK);
    model_set_row(pair.model, 4, 0, (const float[]){1, 2}, (const float[]){7});
    model_set_candidate(pair.model, 8, 0, 1);
    pair_compare(&pair);
    pair_close(&pair);
}

static void test_names(void **state)
{
    (void)state;
    struct embd__error e = {0};
    assert_non_null(store_find("auto", &e));
    assert_string_equal(store_find(store_name, &e)->name, store_name);
    assert_null(store_find("abacus", &e));
    assert_int_equal(e.status, EMBD_INVALID);
    assert_non_null(strstr(e.text, "abacus"));
}

int main(int argc, char **argv)
{
    store_name = argc > 1 ? argv[1] : "host";
    if (argc > 2)
        every = (uint32_t)atoi(argv[2]);
    if (argc > 3)
        pair_set_way(argv[3]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),        cmocka_unit_test(test_empty_of_global),
        cmocka_unit_test(test_swept),        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_full),         cmocka_unit_test(test_load),
        cmocka_unit_test(test_repeated_key), cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_row_bytes),    cmocka_unit_test(test_growth),
        cmocka_unit_test(test_first_push),   cmocka_unit_test(test_case_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
