/* test_eviction_queue.c - a table of several segments at its bound: the rows to go are found ahead,
 * over many pushes, between which rows are pushed, erased and made again. They are the model's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/store/host/index.h"
#include "tests/store/pair.h"
#include "proto/route.h"
#include "server/store/host/evict.h"

enum { ROWS = 140000, FILL = 20000, BATCH = 2500, PUSHES = 21 };

static embd_schema schema_of(embd_on_full policy)
{
    embd_schema schema;
    embd_schema_init(&schema);
    strcpy(schema.name, "t");
    schema.dim = 1;
    schema.on_full = policy;
    schema.capacity = ROWS;
    schema.ttl = 9;
    embd_optimizer_init(&schema.optimizer, EMBD_OPTIMIZER_SGD, 0.5f);
    return schema;
}

static void name_all(struct pair *pair, uint64_t n_keys, bool push)
{
    static uint64_t keys[FILL];
    for (uint64_t first = 0; first < n_keys; first += FILL) {
        struct batch batch;
        for (uint32_t i = 0; i < FILL; i++)
            keys[i] = first + i;
        batch_of(&batch, keys, FILL);
        if (push)
            pair_push(pair, &batch, EMBD_DTYPE_F32, true);
        else
            pair_insert(pair, &batch, false);
        batch_free(&batch);
    }
}

/* The first keys of a batch are erased, which gives their rows to the next ones that need some. */
static void erase_some(struct pair *pair, const uint64_t *keys)
{
    struct batch batch;
    batch_of(&batch, keys, BATCH / 10);
    pair_erase(pair, &batch, true);
    batch_free(&batch);
}

/* Of all keys so far: those that lost their rows just now, too. */
static void pull_some(struct pair *pair, uint64_t n_seen)
{
    static uint64_t keys[BATCH];
    struct batch batch;
    for (uint32_t i = 0; i < BATCH; i++)
        keys[i] = dice_next(&pair->dice) % n_seen;
    batch_of(&batch, keys, BATCH);
    pair_pull(pair, &batch, EMBD_DTYPE_F32, false, false);
    batch_free(&batch);
}

/* How often a pass looks at all rows; a list is aimed by a sample of some 65,536. */
static uint32_t n_whole;

bool __real_victims_open(struct victims *v, uint64_t most, uint64_t n_rows);
bool __wrap_victims_open(struct victims *v, uint64_t most, uint64_t n_rows);

bool __wrap_victims_open(struct victims *v, uint64_t most, uint64_t n_rows)
{
    n_whole += n_rows > 131072;
    return __real_victims_open(v, most, n_rows);
}

/* Where `is_hot`, half of all rows are pushed before the second pass, so that few of its list are
 * left. */
static void run_table(const embd_schema *schema, bool is_hot)
{
    static uint64_t keys[BATCH];
    struct pair pair;
    struct store_stats stats;
    uint64_t n_seen = ROWS;
    pair_open(&pair, "host", schema, 7);
    name_all(&pair, ROWS, false);
    for (uint32_t n = 0; n < PUSHES; n++) {
        struct batch batch;
        for (uint32_t i = 0; i < BATCH; i++) {
            keys[i] = dice_below(&pair.dice, 10) < 8 ? n_seen++ : dice_next(&pair.dice) % n_seen;
        }
        if (is_hot && n == PUSHES / 3 + 4)
            name_all(&pair, ROWS / 2, true);
        if (n % 4 == 1)
            erase_some(&pair, keys);
        batch_of(&batch, keys, BATCH);
        if (n < PUSHES / 3) /* as pulls that create rows do: at step 0 still, where only keys make a
                               difference */
            pair_insert(&pair, &batch, true);
        else
            pair_push(&pair, &batch, EMBD_DTYPE_F32, true);
        batch_free(&batch);
        if (n % 2 == 0)
            pull_some(&pair, n_seen);
    }
    pair_compare(&pair);
    pair.ops->stats(pair.store, &stats);
    assert_true(stats.evicted >= ROWS / 16 && stats.rows <= ROWS);
    pair_close(&pair);
}

static void run(embd_on_full policy, bool is_hot)
{
    embd_schema schema = schema_of(policy);
    run_table(&schema, is_hot);
}

static void rows_found_ahead_are_those_that_have_to_go(void **state)
{
    (void)state;
    for (int policy = EMBD_ON_FULL_EVICT_LRU; policy <= EMBD_ON_FULL_EVICT_SCORE; policy++)
        run((embd_on_full)policy, false);
}

static void rows_found_ahead_that_are_pushed_stay(void **state)
{
    (void)state;
    run(EMBD_ON_FULL_EVICT_LRU, true);
}

/* Counts decay between two passes, and a count that a push finds halved still rises. */
static void rows_whose_counts_decay_are_found_ahead(void **state)
{
    (void)state;
    embd_schema schema = schema_of(EMBD_ON_FULL_EVICT_LFU);
    schema.lfu_half_life = 3;
    schema.lfu_occurrences = true;
    run_table(&schema, true);
}

static int by_rank(const void *a, const void *b)
{
    uint64_t x = embd__mix64(*(const uint64_t *)a), y = embd__mix64(*(const uint64_t *)b);
    return (x > y) - (x < y);
}

/* `n_next` keys of each push are those whose rows would go next: of equal rows they are, in this
 * order. */
static void push_what_goes_next(embd_on_full policy, uint32_t n_next)
{
    static uint64_t going[ROWS], keys[BATCH];
    enum { SOME = 40 };
    struct pair pair;
    struct store_stats stats;
    embd_schema schema = schema_of(policy);
    uint64_t n_new = ROWS, next = 0, evicted = 0;
    pair_open(&pair, "host", &schema, 8);
    name_all(&pair, ROWS, false);
    for (uint64_t key = 0; key < ROWS; key++)
        going[key] = key;
    qsort(going, ROWS, sizeof *going, by_rank);
    n_whole = 0;
    for (uint32_t n = 0; n < SOME; n++) {
        struct batch batch;
        for (uint32_t i = 0; i < BATCH; i++)
            keys[i] = i < n_next && next < ROWS ? going[next++] : n_new++;
        batch_of(&batch, keys, BATCH);
        pair_push(&pair, &batch, EMBD_DTYPE_F32, true);
        batch_free(&batch);
        pair.ops->stats(pair.store, &stats);
        next += stats.evicted - evicted;
        evicted = stats.evicted;
    }
    pair_compare(&pair);
    assert_true(evicted >= 2 * (ROWS / 16));
    pair_close(&pair);
}

static void pushes_of_what_goes_next_make_the_list_longer(void **state)
{
    (void)state;
    push_what_goes_next(EMBD_ON_FULL_EVICT_LRU, BATCH / 2);
    assert_int_equal(n_whole, 0);
    push_what_goes_next(EMBD_ON_FULL_EVICT_LFU, BATCH / 2);
    assert_int_equal(n_whole, 0);
    push_what_goes_next(EMBD_ON_FULL_EVICT_LRU, BATCH / 5 * 4);
    assert_int_equal(n_whole, 0);
}

/* The segment that says how long the list will be has the rows pushed last: so nearly all others
 * are to be listed, for which there is no room, and that is seen when half of them were read. */
static void a_list_that_becomes_too_long_is_none(void **state)
{
    (void)state;
    enum { N = 200000, LAST = 50000 };
    struct pair pair;
    struct batch batch;
    embd_schema schema = schema_of(EMBD_ON_FULL_EVICT_LRU);
    uint64_t *keys = calloc(N, sizeof *keys), n = 0;
    pair_open(&pair, "host", &schema, 9); /* from now on the hashes of keys are known */
    for (uint64_t key = 0; n < N; key++)  /* rising, which the model takes fastest */
        if ((index_hash(key, 0) >> 62 == 0) == (n >= N - LAST))
            keys[n++] = key;
    for (uint32_t first = 0; first < N; first += FILL) {
        batch_of(&batch, keys + first, FILL);
        pair_push(&pair, &batch, EMBD_DTYPE_F32, false);
        batch_free(&batch);
    }
    for (uint32_t push = 0; push < 12; push++) {
        for (uint32_t i = 0; i < BATCH; i++)
            keys[i] = ((uint64_t)push * BATCH + i) | 1ULL << 40;
        batch_of(&batch, keys, BATCH);
        pair_push(&pair, &batch, EMBD_DTYPE_F32, true);
        batch_free(&batch);
    }
    pair_compare(&pair);
    pair_close(&pair);
    free(keys);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_found_ahead_are_those_that_have_to_go),
        cmocka_unit_test(rows_found_ahead_that_are_pushed_stay),
        cmocka_unit_test(rows_whose_counts_decay_are_found_ahead),
        cmocka_unit_test(pushes_of_what_goes_next_make_the_list_longer),
        cmocka_unit_test(a_list_that_becomes_too_long_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
