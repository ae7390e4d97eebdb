/* test_evictions.c - tables at their bound: which rows go, by every policy and its options. The
 * model beside them says so after every call. Arguments: the store's name, n to push less from 50
 * on, a way of store_nccl. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/store/pair.h"

static const char *store_name;
static uint32_t every = 1;

static embd_schema plain_schema(uint32_t dim, embd_optimizer_kind optimizer)
{
    embd_schema s;
    embd_schema_init(&s);
    strcpy(s.name, "plain");
    s.dim = dim;
    embd_optimizer_init(&s.optimizer, optimizer, 0.01f);
    return s;
}

/* A table at its bound for a long time: many passes, each of a sixteenth. */
static void evict_for_long(const embd_schema *schema)
{
    enum { BATCH = 100 };
    struct pair pair;
    struct store_stats stats;
    pair_open(&pair, store_name, schema, 29);
    for (uint32_t n = 0; n < (every < 50 ? 100 : 30); n++) {
        uint64_t keys[BATCH];
        struct batch batch;
        for (uint32_t i = 0; i < BATCH; i++)
            keys[i] = dice_below(&pair.dice, i % 2 ? 300 : 5000);
        batch_of(&batch, keys, BATCH);
        pair_push(&pair, &batch, EMBD_DTYPE_F32, true);
        batch_free(&batch);
        if (n % 30 == 20)
            pair_reload(&pair);
    }
    pair_compare(&pair);
    pair.ops->stats(pair.store, &stats);
    assert_true(stats.evicted > 100 && stats.rows <= 1000);
    pair_close(&pair);
}

static void test_eviction(void **state)
{
    (void)state;
    embd_schema schema = plain_schema(4, EMBD_OPTIMIZER_ADAM);
    schema.capacity = 1000;
    schema.ttl = 9;
    for (int policy = EMBD_ON_FULL_EVICT_LRU; policy <= EMBD_ON_FULL_EVICT_SCORE; policy++) {
        schema.on_full = (embd_on_full)policy;
        evict_for_long(&schema);
    }
}

/* Keys that a push has hundreds of times: the largest of all their scores counts. */
static void test_scores_of_hot_keys(void **state)
{
    enum { BATCH = 400 };
    embd_schema schema = plain_schema(4, EMBD_OPTIMIZER_SGD);
    struct pair pair;
    (void)state;
    schema.capacity = 50;
    schema.on_full = EMBD_ON_FULL_EVICT_SCORE;
    pair_open(&pair, store_name, &schema, 31);
    for (uint32_t n = 0; n < 20; n++) {
        uint64_t keys[BATCH];
        struct batch batch;
        for (uint32_t i = 0; i < BATCH; i++)
            keys[i] = dice_below(&pair.dice, 8) ? n % 5 * 3 + i % 3 : dice_below(&pair.dice, 40);
        batch_of(&batch, keys, BATCH);
        pair_push(&pair, &batch, EMBD_DTYPE_F32, true);
        batch_free(&batch);
        pair_compare(&pair);
    }
    pair_close(&pair);
}

/* By seconds, which go on and back. */
static void test_seconds(void **state)
{
    (void)state;
    embd_schema schema = plain_schema(4, EMBD_OPTIMIZER_ADAM);
    schema.on_full = EMBD_ON_FULL_EVICT_TTL;
    schema.capacity = 1000;
    schema.ttl_seconds = 20;
    evict_for_long(&schema);
}

/* Counts of occurrences, counts that decay, and both. */
static void test_counts(void **state)
{
    (void)state;
    embd_schema schema = plain_schema(4, EMBD_OPTIMIZER_ADAGRAD);
    schema.on_full = EMBD_ON_FULL_EVICT_LFU;
    schema.capacity = 1000;
    for (int kind = 1; kind <= 3; kind++) {
        schema.lfu_occurrences = kind & 1;
        schema.lfu_half_life = kind & 2 ? 7 : 0;
        evict_for_long(&schema);
    }
}

/* A row that was pushed so often, at step 0. */
static void load_count(struct pair *pair, uint64_t key, uint32_t count)
{
    struct embd__error e = {0};
    const float value = 0.5f, use[] = {0, 0, (float)count};
    struct row_block block = {.n_rows = 1, .keys = &key, .rows = &value, .states = use};
    assert_int_equal(pair->ops->load(pair->store, &block, &e), EMBD_OK);
    model_set_row(pair->model, key, 0, &value, use);
}

/* The largest count grows no further, and decays. A row that was pushed since is still more than
 * one that was not. */
static void test_largest_count(void **state)
{
    (void)state;
    embd_schema schema = plain_schema(1, EMBD_OPTIMIZER_SGD);
    struct pair pair;
    struct batch both, first, third;
    schema.on_full = EMBD_ON_FULL_EVICT_LFU;
    schema.capacity = 2;
    schema.lfu_half_life = 2;
    schema.lfu_occurrences = true;
    pair_open(&pair, store_name, &schema, 37);
    batch_of(&both, (const uint64_t[]){1, 2, 1, 1}, 4);
    batch_of(&first, (const uint64_t[]){1}, 1);
    batch_of(&third, (const uint64_t[]){3}, 1);
    load_count(&pair, 1, 16777215);
    load_count(&pair, 2, 16777213);
    pair_push(&pair, &both, EMBD_DTYPE_F32, true);
    for (int i = 0; i < 60; i++)
        pair_push(&pair, &first, EMBD_DTYPE_F32, true);
    pair_push(&pair, &third, EMBD_DTYPE_F32, true);
    pair_compare(&pair);
    assert_false(model_find(pair.model, 2, 0)->has_row);
    assert_true(model_find(pair.model, 1, 0)->state[2] < 100.0f);
    batch_free(&both);
    batch_free(&first);
    batch_free(&third);
    pair_close(&pair);
}

static int push_at(struct pair *pair, const struct batch *batch, uint64_t seconds)
{
    float grads[4] = {0.5f, 0.5f, 0.5f, 0.5f};
    struct outcome outcome;
    struct store_change push = {
        .in = batch_keys(batch), .dtype = EMBD_DTYPE_F32, .grads = grads, .seconds = seconds};
    outcome_init(&outcome);
    pair->model->seconds = seconds;
    pair->ops->apply(pair->store, &push, &outcome.done);
    while (outcome.calls == 0)
        pair->ops->collect(pair->store);
    int status = model_push(pair->model, &batch->in, grads, false, NULL, NULL);
    assert_int_equal(outcome.status, status);
    return status;
}

/* A refused push does not move the clock, an empty one does, and no push moves it back. A table
 * that is loaded has the clock of its latest row. */
static void test_clock(void **state)
{
    (void)state;
    embd_schema schema = plain_schema(2, EMBD_OPTIMIZER_SGD);
    struct pair pair;
    struct batch two, other, none;
    schema.on_full = EMBD_ON_FULL_EVICT_TTL;
    schema.capacity = 2;
    schema.ttl_seconds = 60;
    pair_open(&pair, store_name, &schema, 41);
    batch_of(&two, (const uint64_t[]){1, 2}, 2);
    batch_of(&other, (const uint64_t[]){3}, 1);
    batch_of(&none, NULL, 0);
    assert_int_equal(push_at(&pair, &two, 1u << 31), EMBD_OK);
    assert_int_equal(push_at(&pair, &other, (1u << 31) + 59), EMBD_FULL);
    assert_int_equal(pair.model->clock, 1u << 31);
    pair_compare(&pair);
    assert_int_equal(push_at(&pair, &none, (1u << 31) + 58), EMBD_OK);
    assert_int_equal(push_at(&pair, &other, 7), EMBD_FULL);
    assert_int_equal(pair.model->clock, (1u << 31) + 58);
    assert_int_equal(push_at(&pair, &two, 7), EMBD_OK);
    assert_int_equal(push_at(&pair, &other, (1u << 31) + 100), EMBD_FULL);
    pair_reload(&pair);
    pair_compare(&pair);
    assert_int_equal(push_at(&pair, &other, (1u << 31) + 118), EMBD_OK);
    pair_compare(&pair);
    batch_free(&two);
    batch_free(&other);
    batch_free(&none);
    pair_close(&pair);
}

/* With no row old enough a table is full; when the time has come it is not. */
static void test_ttl(void **state)
{
    (void)state;
    embd_schema schema = plain_schema(2, EMBD_OPTIMIZER_SGD);
    struct pair pair;
    struct batch two, other, none;
    schema.on_full = EMBD_ON_FULL_EVICT_TTL;
    schema.capacity = 2;
    schema.ttl = 3;
    pair_open(&pair, store_name, &schema, 31);
    batch_of(&two, (const uint64_t[]){1, 2}, 2);
    batch_of(&other, (const uint64_t[]){3}, 1);
    batch_of(&none, NULL, 0);
    assert_int_equal(pair_push(&pair, &two, EMBD_DTYPE_F32, false), EMBD_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pair_push(&pair, &other, EMBD_DTYPE_F32, false), EMBD_FULL);
        assert_int_equal(pair_push(&pair, &none, EMBD_DTYPE_F32, false), EMBD_OK);
    }
    assert_int_equal(pair_push(&pair, &other, EMBD_DTYPE_F32, false), EMBD_OK);
    pair_compare(&pair);
    batch_free(&two);
    batch_free(&other);
    batch_free(&none);
    pair_close(&pair);
}

/* Rows are used at other times, so often and with such scores that many ranks differ in part. */
static void use_rows(struct pair *pair, uint32_t n_keys)
{
    enum { BATCH = 60 };
    for (uint32_t n = 0; n < 20; n++) {
        uint64_t keys[BATCH];
        struct batch batch;
        for (uint32_t i = 0; i < BATCH; i++)
            keys[i] = dice_below(&pair->dice, n % 3 ? n_keys : n_keys / 4);
        batch_of(&batch, keys, BATCH);
        pair_push(pair, &batch, EMBD_DTYPE_F32, true);
        batch_free(&batch);
    }
}

/* Slice by slice: until the rows that are chosen go, the table is as it was, then all of them are
 * gone. */
static void shrink_to(struct pair *pair, uint64_t capacity)
{
    struct embd__error e = {.status = EMBD_OK};
    embd_schema to = pair->schema.s;
    to.capacity = capacity;
    struct store_shrink shrink = {.to = &to, .n = pair->model->n_rows - capacity};
    for (uint32_t n = 0; shrink.phase != STORE_SHRINK_DONE; n++) {
        bool shows = shrink.phase == STORE_SHRINK_CHOSEN;
        assert_int_equal(pair->ops->shrink(pair->store, &shrink, &e), EMBD_OK);
        if (shows) {
            assert_int_equal(model_bound(pair->model, &to), EMBD_OK);
            pair->schema.s = pair->model->schema = to;
            pair->ops->alter(pair->store);
        }
        if (n % 7 == 0 || shrink.phase != STORE_SHRINK_CHOOSES)
            pair_read(pair);
        if (shrink.phase == STORE_SHRINK_CHOSEN)
            pair_compare(pair);
    }
    assert_true(shrink.n_may_go >= shrink.n);
    pair_compare(pair);
}

/* The capacity of a table is set lower, again and again, and goes up: with every policy the model's
 * rows go. */
static void test_shrinking(void **state)
{
    (void)state;
    enum { KEYS = 400 };
    embd_schema schema = plain_schema(2, EMBD_OPTIMIZER_ADAGRAD);
    struct pair pair;
    if (strcmp(store_name, "host") != 0)
        skip();
    for (int policy = EMBD_ON_FULL_EVICT_LRU; policy <= EMBD_ON_FULL_EVICT_SCORE; policy++) {
        schema.on_full = (embd_on_full)policy;
        schema.capacity = KEYS - 30; /* evictions' rows are removed first */
        schema.ttl = policy == EMBD_ON_FULL_EVICT_TTL ? 2 : 0;
        pair_open(&pair, store_name, &schema, 43 + (uint64_t)policy);
        for (uint32_t n = 0; n < 4; n++) {
            use_rows(&pair, KEYS);
            shrink_to(&pair, pair.model->n_rows - 1 - dice_below(&pair.dice, 60));
        }
        use_rows(&pair, KEYS);
        pair_compare(&pair);
        pair_close(&pair);
    }
}

/* Fewer rows have expired than are to go: nothing changes. */
static void test_shrinking_too_far(void **state)
{
    (void)state;
    embd_schema schema = plain_schema(2, EMBD_OPTIMIZER_SGD);
    struct embd__error e = {.status = EMBD_OK};
    struct pair pair;
    if (strcmp(store_name, "host") != 0)
        skip();
    schema.on_full = EMBD_ON_FULL_EVICT_TTL;
    schema.capacity = 100;
    schema.ttl = 10;
    pair_open(&pair, store_name, &schema, 47);
    use_rows(&pair, 90);
    struct store_shrink shrink = {.to = &pair.schema.s, .n = pair.model->n_rows};
    while (e.status == EMBD_OK)
        pair.ops->shrink(pair.store, &shrink, &e);
    assert_int_equal(e.status, EMBD_FULL);
    assert_in_range(shrink.n_may_go, 1, shrink.n - 1);
    pair_compare(&pair);
    use_rows(&pair, 200);
    pair_compare(&pair);
    pair_close(&pair);
}

/* Keys listed part by part, between pushes, erases and cursors that no list gave: those
 * that stay are all listed, by a host once; keys never pushed are never listed. */
static void test_list_of_a_changing_table(void **state)
{
    (void)state;
    enum { KEYS = 3000, STAY = 1000, MOST = 64 };
    static uint8_t listed[8 * KEYS];
    embd_schema schema = plain_schema(2, EMBD_OPTIMIZER_SGD);
    struct pair pair;
    struct embd__error e = {.status = EMBD_OK};
    uint64_t keys[MOST], cursor = 0, batch[MOST], next = KEYS;
    struct store_scan out = {.keys = keys};
    struct batch fill, change;
    uint64_t *all = calloc(KEYS, sizeof *all);
    assert_non_null(all);
    memset(listed, 0, sizeof listed);
    for (uint32_t i = 0; i < KEYS; i++)
        all[i] = i;
    pair_open(&pair, store_name, &schema, 77);
    batch_of(&fill, all, KEYS);
    assert_int_equal(pair_push(&pair, &fill, EMBD_DTYPE_F32, false), EMBD_OK);
    while (cursor != UINT64_MAX) {
        assert_int_equal(pair.ops->list(pair.store, &cursor, MOST, &out, &e), EMBD_OK);
        for (uint32_t i = 0; i < out.n_rows; i++) {
            assert_true(keys[i] < next);
            assert_true(listed[keys[i]]++ == 0 || strcmp(pair.ops->name, "host") != 0);
        }
        for (uint32_t i = 0; i < MOST; i++) /* some may be gone already */
            batch[i] = dice_below(&pair.dice, KEYS - STAY);
        batch_of(&change, batch, MOST);
        pair_erase(&pair, &change, false);
        batch_free(&change);
        for (uint32_t i = 0; i < 32 && next < 8 * KEYS; i++)
            batch[i] = next++;
        batch_of(&change, batch, 32);
        assert_int_equal(pair_push(&pair, &change, EMBD_DTYPE_F32, false), EMBD_OK);
        batch_free(&change);
        uint64_t wild = dice_next(&pair.dice);
        assert_int_equal(pair.ops->list(pair.store, &wild, MOST, &out, &e), EMBD_OK);
        for (uint32_t i = 0; i < out.n_rows; i++)
            assert_true(model_find(pair.model, keys[i], 0)->has_row);
    }
    for (uint32_t i = KEYS - STAY; i < KEYS; i++) /* rows that move where others went */
        assert_true(listed[i] > 0);
    pair_compare(&pair);
    batch_free(&fill);
    free(all);
    pair_close(&pair);
}

static void push_new(struct pair *pair, uint64_t *next, uint32_t n)
{
    struct batch change;
    uint64_t *keys = malloc(n * sizeof *keys);
    assert_non_null(keys);
    for (uint32_t i = 0; i < n; i++)
        keys[i] = (*next)++;
    batch_of(&change, keys, n);
    assert_int_equal(pair_push(pair, &change, EMBD_DTYPE_F32, false), EMBD_OK);
    batch_free(&change);
    free(keys);
}

/* Lists in parts of `most`, of a table that gets more keys between the parts. */
static void list_growing(uint32_t first, uint32_t most, uint32_t n_new)
{
    enum { STEPS = 100 };
    uint8_t *listed = calloc(first + STEPS * n_new, 1);
    embd_schema schema = plain_schema(1, EMBD_OPTIMIZER_SGD);
    struct pair pair;
    struct embd__error e = {.status = EMBD_OK};
    uint64_t cursor = 0, next = 0;
    struct store_scan out = {.keys = calloc(most, sizeof *out.keys)};
    assert_true(listed != NULL && out.keys != NULL);
    pair_open(&pair, store_name, &schema, 78);
    push_new(&pair, &next, first);
    for (uint32_t step = 0; cursor != UINT64_MAX; step++) {
        assert_int_equal(pair.ops->list(pair.store, &cursor, most, &out, &e), EMBD_OK);
        for (uint32_t i = 0; i < out.n_rows; i++)
            assert_true(out.keys[i] < next && listed[out.keys[i]]++ == 0);
        if (step < STEPS)
            push_new(&pair, &next, n_new);
    }
    for (uint32_t i = 0; i < first; i++)
        assert_int_equal(listed[i], 1);
    pair_close(&pair);
    free(out.keys);
    free(listed);
}

/* Of a host each of the first keys comes once, though its index has four times as many buckets, or
 * several segments for one, before the list ends. */
static void test_list_of_a_growing_index(void **state)
{
    (void)state;
    if (strcmp(store_name, "host") != 0)
        skip();
    list_growing(1000, 16, 30);
    list_growing(1000, 16, 2500);
    list_growing(200000, 2500, 2500);
}

static void push_from(struct pair *pair, uint64_t first, uint32_t n)
{
    push_new(pair, &first, n);
}

/* All candidates are forgotten twice, the second time before a store that removes them by and by
 * has removed the first ones: the push that does so names these, for the first time again. */
static void test_candidates_forgotten_twice(void **state)
{
    (void)state;
    enum { ROWS = 390, FEW = 39, LEAST = 40 };
    embd_schema schema = plain_schema(2, EMBD_OPTIMIZER_SGD);
    struct pair pair;
    struct batch rows;
    uint64_t keys[ROWS];
    schema.admit_after = 2;
    schema.capacity = 300000; /* the index of a host has several segments at once */
    pair_open(&pair, store_name, &schema, 79);
    for (uint32_t i = 0; i < ROWS; i++)
        keys[i] = i;
    for (uint32_t i = 0; i < 2 * ROWS / FEW; i++)
        push_from(&pair, i / 2 * FEW, FEW);
    push_from(&pair, ROWS, ROWS);
    push_from(&pair, 2 * ROWS, LEAST);
    assert_int_equal(pair.model->n_rows, ROWS);
    assert_int_equal(pair.model->n_candidates, LEAST);
    batch_of(&rows, keys, ROWS);
    pair_erase(&pair, &rows, false); /* now LEAST candidates are as many as a table has */
    push_from(&pair, ROWS, ROWS);
    assert_int_equal(pair.model->n_candidates, ROWS);
    pair_compare(&pair);
    push_from(&pair, 3 * ROWS, 1);
    pair_compare(&pair);
    batch_free(&rows);
    pair_close(&pair);
}

int main(int argc, char **argv)
{
    store_name = argc > 1 ? argv[1] : "host";
    if (argc > 2)
        every = (uint32_t)atoi(argv[2]);
    if (argc > 3)
        pair_set_way(argv[3]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_eviction),
        cmocka_unit_test(test_scores_of_hot_keys),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_largest_count),
        cmocka_unit_test(test_ttl),
        cmocka_unit_test(test_seconds),
        cmocka_unit_test(test_clock),
        cmocka_unit_test(test_shrinking),
        cmocka_unit_test(test_shrinking_too_far),
        cmocka_unit_test(test_list_of_a_changing_table),
        cmocka_unit_test(test_list_of_a_growing_index),
        cmocka_unit_test(test_candidates_forgotten_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
