/* test_schedules.c - the cuda store against the model where it could go wrong at size: long random
 * schedules with growth, keys that all want one bucket, a table filled to its greatest load, one
 * key very often in a push, rows taken window by window, many calls at once. Runs under the
 * emulator, and on a device. Argument: keys that the random schedule touches in all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/store/candidates.h"
#include "server/store/cuda/cuda_store.h"
#include "tests/store/pair.h"

static uint32_t n_operations = 100000;

static embd_schema schema_of(uint32_t dim, embd_optimizer_kind optimizer)
{
    embd_schema s;
    embd_schema_init(&s);
    strcpy(s.name, "schedule");
    s.dim = dim;
    embd_optimizer_init(&s.optimizer, optimizer, 0.01f);
    return s;
}

/* ---- random schedules ---- */

enum { UNIVERSE = 20000 };

static uint32_t one_call(struct pair *pair, uint32_t n)
{
    struct batch batch;
    bool is_raw = dice_below(&pair->dice, 2);
    batch_draw(pair, &batch, n, 4, is_raw, dice_below(&pair->dice, 4) == 0);
    uint32_t n_keys = batch.in.n_keys, what = dice_below(&pair->dice, 9);
    if (what < 3)
        pair_pull(pair, &batch, EMBD_DTYPE_F32, dice_below(&pair->dice, 3) == 0, true);
    else if (what < 7)
        pair_push(pair, &batch, EMBD_DTYPE_F32, dice_below(&pair->dice, 2));
    else if (what < 8)
        pair_insert(pair, &batch, dice_below(&pair->dice, 2));
    else
        pair_erase(pair, &batch, dice_below(&pair->dice, 2));
    batch_free(&batch);
    return n_keys;
}

static void run_schedule(embd_optimizer_kind optimizer, uint32_t dim, uint32_t admit_after,
                         embd_partition partition, uint32_t operations)
{
    embd_schema schema = schema_of(dim, optimizer);
    uint64_t *pool = malloc(UNIVERSE * sizeof *pool);
    struct pair pair;
    schema.admit_after = admit_after;
    schema.partition = partition;
    schema.slots = partition == EMBD_PARTITION_SLOT ? 3 : 1;
    pair_open(&pair, "cuda", &schema, 100 + (uint64_t)optimizer);
    for (uint32_t i = 0; i < UNIVERSE; i++)
        pool[i] = dice_next(&pair.dice) >> (i % 3 * 20);
    pair.pool = pool;
    for (uint32_t done = 0, call = 1; done < operations; call++) {
        pair.n_pool = 100 + (uint32_t)((uint64_t)(UNIVERSE - 100) * done / operations);
        done += 1 + one_call(&pair, call % 50 ? dice_below(&pair.dice, 40) : 2000);
        if (call % 400 == 0) {
            pair_compare(&pair);
            pair_reload(&pair);
        }
    }
    pair_compare(&pair);
    pair_close(&pair);
    free(pool);
}

static void test_random_schedules(void **state)
{
    (void)state;
    run_schedule(EMBD_OPTIMIZER_ROWWISE_ADAGRAD, 64, 0, EMBD_PARTITION_HASH, n_operations / 4);
    run_schedule(EMBD_OPTIMIZER_ADAM, 16, 2, EMBD_PARTITION_HASH, n_operations / 4);
    run_schedule(EMBD_OPTIMIZER_FTRL, 13, 0, EMBD_PARTITION_SLOT, n_operations / 4);
    run_schedule(EMBD_OPTIMIZER_SGD, 32, 3, EMBD_PARTITION_MODULO, n_operations / 4);
}

/* A table at its bound: passes over rows that are pushed evenly, often and once. */
static void run_evictions(embd_on_full policy, embd_partition partition, uint32_t rows)
{
    embd_schema schema = schema_of(6, EMBD_OPTIMIZER_ROWWISE_ADAGRAD);
    uint64_t *pool = malloc(2 * rows * sizeof *pool);
    uint32_t turns = 10 + (rows < 2000 ? rows / 100 : 20);
    struct pair pair;
    schema.partition = partition;
    schema.slots = partition == EMBD_PARTITION_SLOT ? 3 : 1;
    schema.on_full = policy;
    schema.capacity = rows;
    schema.ttl = 6;
    pair_open(&pair, "cuda", &schema, 12);
    pair.pool = pool;
    pair.n_pool = 2 * rows;
    for (uint32_t turn = 0; turn < turns; turn++) {
        struct batch batch;
        for (uint32_t i = 0; i < 2 * rows; i++)
            pool[i] = (uint64_t)(i % 3 ? i : i % (rows / 8)) << turn % 2 * 40;
        batch_draw(&pair, &batch, rows / 4, 1, true, false);
        pair_push(&pair, &batch, EMBD_DTYPE_F32, true);
        batch_free(&batch);
        if (turn % 10 == 4)
            pair_reload(&pair);
    }
    pair_compare(&pair);
    assert_true(pair.store->n_evicted > 0 && pair.store->n_rows <= rows);
    pair_close(&pair);
    free(pool);
}

static void test_evictions(void **state)
{
    (void)state;
    run_evictions(EMBD_ON_FULL_EVICT_LRU, EMBD_PARTITION_SLOT, n_operations / 8);
    run_evictions(EMBD_ON_FULL_EVICT_LFU, EMBD_PARTITION_HASH, n_operations / 8);
    run_evictions(EMBD_ON_FULL_EVICT_TTL, EMBD_PARTITION_HASH, n_operations / 8);
    run_evictions(EMBD_ON_FULL_EVICT_SCORE, EMBD_PARTITION_SLOT, n_operations / 8);
}

/* ---- places in the key table ---- */

/* key_hash of keytable.cuh, slot 0. */
static uint64_t hash_of(uint64_t key, struct store_secret secret)
{
    uint64_t x = key ^ secret.first;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27) ^ secret.second) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

/* Keys whose hashes begin with these twelve bits, as far as somebody knows who knows this secret.
 */
static void choose_keys(struct store_secret secret, uint64_t wanted, uint64_t *keys, uint32_t n)
{
    for (uint64_t key = 0, i = 0; i < n; key++)
        if (hash_of(key, secret) >> 52 == wanted)
            keys[i++] = key;
}

static void push_pull_compare(struct pair *pair, const uint64_t *keys, uint32_t n)
{
    struct batch batch;
    batch_of(&batch, keys, n);
    assert_int_equal(pair_push(pair, &batch, EMBD_DTYPE_F32, true), EMBD_OK);
    pair_pull(pair, &batch, EMBD_DTYPE_F32, false, false);
    batch_free(&batch);
    pair_compare(pair);
}

/* The first bucket there is, or the last, whose keys go on at the beginning: however much the table
 * grows here, all of these keys want the same one. */
static void test_one_bucket(void **state)
{
    (void)state;
    enum { N = 300, OTHERS = 5000 };
    embd_schema schema = schema_of(8, EMBD_OPTIMIZER_ADAGRAD);
    for (uint64_t wanted = 0; wanted <= 0xfff; wanted += 0xfff) {
        uint64_t keys[N], others[OTHERS];
        struct pair pair;
        choose_keys(store_secret, wanted, keys, N);
        for (uint32_t i = 0; i < OTHERS; i++)
            others[i] = ((uint64_t)1 << 40) + i;
        pair_open(&pair, "cuda", &schema, 5);
        push_pull_compare(&pair, keys, N / 2);
        push_pull_compare(&pair, keys, N);
        push_pull_compare(&pair, others, OTHERS);
        push_pull_compare(&pair, keys, N);
        pair_reload(&pair);
        push_pull_compare(&pair, keys, N);
        pair_close(&pair);
    }
}

/* Buckets from the first one on that are marked as overflowed. */
static uint32_t overflows_in_front(const struct store *store)
{
    uint32_t n = 0;
    struct entry first = {.tail = ENTRY_OVERFLOW};
    for (; n < store->view.n_buckets && first.tail & ENTRY_OVERFLOW; n++)
        assert_int_equal(device_copy(&first, store->view.entries + (uint64_t)n * ENTRY_BUCKET,
                                     sizeof first, store->stream) ||
                             device_stream_wait(store->stream),
                         0);
    return n - 1;
}

/* Who knows the code and not the secret cannot make a long search. */
static void test_chosen_keys(void **state)
{
    (void)state;
    enum { N = 300, SHORT = N / ENTRY_BUCKET / 2 };
    embd_schema schema = schema_of(8, EMBD_OPTIMIZER_ADAGRAD);
    for (int knows = 0; knows < 2; knows++) {
        uint64_t keys[N];
        struct pair pair;
        pair_open(&pair, "cuda", &schema, 5);
        choose_keys(knows ? store_secret : (struct store_secret){0}, 0, keys, N);
        push_pull_compare(&pair, keys, N);
        assert_true((overflows_in_front(pair.store) > SHORT) == knows);
        pair_close(&pair);
    }
}

static void test_greatest_load(void **state)
{
    (void)state;
    embd_schema schema = schema_of(4, EMBD_OPTIMIZER_SGD);
    struct pair pair;
    uint64_t next = 0;
    pair_open(&pair, "cuda", &schema, 6);
    for (int turn = 0; turn < 6; turn++) {
        uint64_t n_buckets = pair.store->view.n_buckets;
        uint32_t n = (uint32_t)(pair.store->n_entries_max - pair.store->n_rows);
        uint64_t *keys = malloc((n + 1) * sizeof *keys);
        for (uint32_t i = 0; i <= n; i++)
            keys[i] = next++;
        push_pull_compare(&pair, keys, n);
        assert_int_equal(pair.store->view.n_buckets, n_buckets);
        push_pull_compare(&pair, keys + n, 1);
        assert_true(pair.store->view.n_buckets > n_buckets);
        free(keys);
    }
    pair_close(&pair);
}

/* Keys that come and go for a long time: entries that went leave buckets that say they overflowed,
 * and neither searches nor the table may grow with them. */
static void test_come_and_go(void **state)
{
    (void)state;
    enum { ROWS = 400, BATCH = 80, TURNS = 100 };
    embd_schema schema = schema_of(4, EMBD_OPTIMIZER_ADAGRAD);
    struct pair pair;
    uint64_t keys[BATCH], n_buckets = 0;
    schema.admit_after = 2;
    pair_open(&pair, "cuda", &schema, 7);
    store_least_candidates = pair.model->least_candidates = STORE_LEAST_CANDIDATES;
    for (uint64_t turn = 0; turn < TURNS; turn++) {
        struct batch batch;
        for (uint64_t i = 0; i < BATCH; i++)
            keys[i] = turn * BATCH + i;
        batch_of(&batch, keys, BATCH);
        pair_push(&pair, &batch, EMBD_DTYPE_F32, true);
        batch.in.n_keys = batch.in.n_rows = BATCH / 2; /* the others stay candidates */
        pair_push(&pair, &batch, EMBD_DTYPE_F32, true);
        batch_free(&batch);
        for (uint64_t i = 0; i < BATCH; i++)
            keys[i] = turn * BATCH + i - 2 * ROWS; /* 2^64 - ..: missing */
        batch_of(&batch, keys, BATCH);
        pair_erase(&pair, &batch, turn & 1);
        pair_pull(&pair, &batch, EMBD_DTYPE_F32, false, true);
        batch_free(&batch);
        if (turn == 20)
            n_buckets = pair.store->view.n_buckets;
    }
    assert_true(pair.store->view.n_buckets <= 2 * n_buckets);
    assert_int_equal(pair.model->n_rows, ROWS);
    pair_compare(&pair);
    pair_reload(&pair);
    pair_close(&pair);
}

static void test_one_key(void **state)
{
    (void)state;
    embd_schema schema = schema_of(20, EMBD_OPTIMIZER_ROWWISE_ADAGRAD);
    uint32_t n = n_operations;
    uint64_t *keys = malloc(n * sizeof *keys);
    struct pair pair;
    struct batch batch;
    for (uint32_t i = 0; i < n; i++)
        keys[i] = i % 1000 == 999 ? i : 42;
    pair_open(&pair, "cuda", &schema, 8);
    batch_of(&batch, keys, n);
    for (int turn = 0; turn < 2; turn++)
        assert_int_equal(pair_push(&pair, &batch, EMBD_DTYPE_F32, turn == 0), EMBD_OK);
    pair_compare(&pair);
    batch_free(&batch);
    pair_close(&pair);
    free(keys);
}

/* ---- windows ---- */

static void test_windows(void **state)
{
    (void)state;
    enum { N = 600 }; /* a launch for each 4 of them */
    static const uint64_t window_bytes[] = {256, 5000, 64 * N - 64, 64 * N};
    embd_schema schema = schema_of(16, EMBD_OPTIMIZER_SGD);
    uint64_t keys[N];
    struct pair pair;
    struct batch batch;
    pair_open(&pair, "cuda", &schema, 9);
    for (uint32_t i = 0; i < N; i++)
        keys[i] = i;
    push_pull_compare(&pair, keys, N);
    for (uint32_t i = 0; i < N; i++)
        keys[i] = dice_below(&pair.dice, N + N / 8);
    pair.store->window_keys = 1;
    for (size_t i = 0; i < sizeof window_bytes / sizeof window_bytes[0]; i++) {
        pair.store->window_bytes = window_bytes[i];
        batch_of(&batch, keys, N - (uint32_t)i);
        pair_pull(&pair, &batch, EMBD_DTYPE_F32, false, false);
        pair_pull(&pair, &batch, EMBD_DTYPE_F32, true, false);
        batch_free(&batch);
    }
    pair_close(&pair);
}

/* ---- many calls at once ---- */

enum { CALLS = 60 };

/* A call that waits, beside what the model answers. */
struct waiting {
    struct batch batch;
    struct store_pull pull;
    struct store_change push;
    struct outcome outcome;
    float *values, *expected; /* [n_rows][16]: rows, or gradients */
    uint8_t *statuses, *expected_statuses;
    bool is_push, is_pinned;
};

static void make_pull(struct pair *pair, struct waiting *w)
{
    uint32_t n = w->batch.in.n_rows;
    w->pull = (struct store_pull){.in = batch_keys(&w->batch),
                                  .zero_missing = dice_below(&pair->dice, 3) == 0,
                                  .count = n,
                                  .values = w->values,
                                  .statuses = dice_below(&pair->dice, 2) ? w->statuses : NULL};
    model_pull(pair->model, &w->batch.in, w->pull.zero_missing, false, w->expected,
               w->expected_statuses);
    pair->ops->pull(pair->store, &w->pull, &w->outcome.done);
}

static void make_push(struct pair *pair, struct waiting *w)
{
    for (uint32_t i = 0; i < w->batch.in.n_rows * 16; i++)
        w->values[i] = dice_float(&pair->dice);
    w->push = (struct store_change){.in = batch_keys(&w->batch), .grads = w->values};
    assert_int_equal(model_push(pair->model, &w->batch.in, w->values, false, NULL, NULL), EMBD_OK);
    pair->ops->apply(pair->store, &w->push, &w->outcome.done);
}

static void begin_call(struct pair *pair, struct waiting *w)
{
    batch_draw(pair, &w->batch, dice_below(&pair->dice, 200), 1, true, false);
    size_t bytes = w->batch.in.n_rows * 16 * sizeof(float);
    w->is_push = dice_below(&pair->dice, 15) == 0;
    w->is_pinned = dice_below(&pair->dice, 2);
    w->values = w->is_pinned ? pair->ops->buffer_new(bytes) : malloc(bytes + 1);
    w->expected = malloc(bytes + 1);
    w->statuses = malloc(w->batch.in.n_keys + 1);
    w->expected_statuses = malloc(w->batch.in.n_keys + 1);
    outcome_init(&w->outcome);
    if (w->is_push)
        make_push(pair, w);
    else
        make_pull(pair, w);
}

static void end_call(struct pair *pair, struct waiting *w)
{
    size_t bytes = w->batch.in.n_rows * 16 * sizeof(float);
    assert_int_equal(w->outcome.calls, 1);
    assert_int_equal(w->outcome.status, EMBD_OK);
    if (!w->is_push)
        assert_memory_equal(w->values, w->expected, bytes);
    if (!w->is_push && w->pull.statuses)
        assert_memory_equal(w->statuses, w->expected_statuses, w->batch.in.n_keys);
    if (w->is_pinned)
        pair->ops->buffer_free(w->values, bytes);
    else
        free(w->values);
    free(w->expected);
    free(w->statuses);
    free(w->expected_statuses);
    batch_free(&w->batch);
}

/* Small pulls that wait together are one launch, each as if it were alone, before or after the
 * pushes among them. */
static void run_together(embd_partition partition)
{
    embd_schema schema = schema_of(16, EMBD_OPTIMIZER_ADAGRAD);
    struct waiting *calls = calloc(CALLS, sizeof *calls);
    uint64_t pool[1000];
    struct pair pair;
    schema.partition = partition;
    schema.slots = partition == EMBD_PARTITION_SLOT ? 3 : 1;
    pair_open(&pair, "cuda", &schema, 77);
    for (uint32_t i = 0; i < 1000; i++)
        pool[i] = dice_next(&pair.dice);
    pair.pool = pool;
    pair.n_pool = 1000;
    for (int turn = 0; turn < 4; turn++) {
        for (uint32_t i = 0; i < CALLS; i++)
            begin_call(&pair, &calls[i]);
        while (pair.ops->collect(pair.store))
            ;
        for (uint32_t i = 0; i < CALLS; i++)
            end_call(&pair, &calls[i]);
        pair_compare(&pair);
    }
    pair_close(&pair);
    free(calls);
}

static void test_together(void **state)
{
    (void)state;
    run_together(EMBD_PARTITION_HASH);
    run_together(EMBD_PARTITION_SLOT);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        n_operations = (uint32_t)atoi(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_schedules), cmocka_unit_test(test_evictions),
        cmocka_unit_test(test_one_bucket),       cmocka_unit_test(test_chosen_keys),
        cmocka_unit_test(test_greatest_load),    cmocka_unit_test(test_come_and_go),
        cmocka_unit_test(test_one_key),          cmocka_unit_test(test_windows),
        cmocka_unit_test(test_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
