/* test_lookups.c - what a pull found is kept for the push of the same keys: histories in which that
 * is right, late, of other keys or of rows that have gone, against the model. Runs under the
 * emulator, and on a device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/store/cuda/cuda_store.h"
#include "tests/store/pair.h"

enum { POOL = 600, TURNS = 60, KEYS_MIN = 20 };
enum { PIECE = 200 }; /* bytes of the first piece of a pull */

static embd_schema schema_of(uint32_t dim, embd_optimizer_kind optimizer)
{
    embd_schema s;
    embd_schema_init(&s);
    strcpy(s.name, "lookup");
    s.dim = dim;
    embd_optimizer_init(&s.optimizer, optimizer, 0.01f);
    return s;
}

static void begin(struct pair *pair, const embd_schema *schema, uint64_t *pool)
{
    pair_open(pair, "cuda", schema, 11);
    for (uint32_t i = 0; i < POOL; i++)
        pool[i] = dice_next(&pair->dice) >> i % 3 * 20;
    pair->pool = pool;
    pair->n_pool = POOL;
    pair->store->lookup_keys_min = KEYS_MIN;
    pair->store->piece_bytes = PIECE;
}

/* Every pull is kept. */
static void trust_pulls(struct pair *pair)
{
    pair->store->lookups.n_trusted = LOOKUPS_MAX;
    pair->store->lookups.n_resting = 0;
    pair->store->lookup_keys_min = KEYS_MIN;
    pair->store->piece_bytes = PIECE;
}

static void call_other(struct pair *pair, uint32_t what, uint32_t n)
{
    struct batch batch;
    batch_draw(pair, &batch, n, 3, true, false);
    if (what == 0)
        pair_erase(pair, &batch, true);
    else if (what == 1)
        pair_push(pair, &batch, EMBD_DTYPE_F32, true);
    else if (what == 2)
        pair_insert(pair, &batch, false);
    else
        pair_pull(pair, &batch, EMBD_DTYPE_F32, true, false);
    batch_free(&batch);
}

/* What may come between a pull and the push of its keys. */
static void go_between(struct pair *pair, struct batch *batch)
{
    uint32_t what = dice_below(&pair->dice, 12), n = dice_below(&pair->dice, 40);
    if (what < 5)
        call_other(pair, what, n);
    else if (what == 5) /* one key is another: seldom one of its print */
        batch->keys[dice_below(&pair->dice, batch->in.n_keys)] =
            pair->pool[dice_below(&pair->dice, POOL)];
    else if (what == 6 && batch->slots) { /* rows have other slots */
        for (uint32_t r = 0; r < batch->in.n_rows; r += 7)
            batch->slots[r] = (uint16_t)((batch->slots[r] + 1u) % pair->schema.s.slots);
    } else if (what == 7)
        pair_reload(pair);
}

/* Two batches are pulled, then pushed, in one order or the other. */
static void run_turn(struct pair *pair, uint32_t n)
{
    struct batch batch[2];
    uint32_t first = dice_below(&pair->dice, 2);
    bool is_raw = dice_below(&pair->dice, 2);
    for (int i = 0; i < 2; i++) {
        trust_pulls(pair);
        batch_draw(pair, &batch[i], n, 4, is_raw, dice_below(&pair->dice, 2));
        if (dice_below(&pair->dice, 2)) /* all keys have rows, or as many as there is room for */
            pair_insert(pair, &batch[i], true);
        pair_pull(pair, &batch[i], EMBD_DTYPE_F32, dice_below(&pair->dice, 2), true);
    }
    for (uint32_t i = 0; i < 2; i++) {
        if (batch[first ^ i].in.n_keys)
            go_between(pair, &batch[first ^ i]);
        pair_push(pair, &batch[first ^ i], EMBD_DTYPE_F32, dice_below(&pair->dice, 2));
        batch_free(&batch[first ^ i]);
    }
}

/* Of batches of n rows. Returns how many pushes had use for a lookup. */
static uint64_t run_histories(const embd_schema *schema, uint32_t turns, uint32_t n)
{
    uint64_t pool[POOL], n_used = 0, used_before = 0;
    struct pair pair;
    begin(&pair, schema, pool);
    for (uint32_t turn = 0; turn < turns; turn++) {
        const struct store *store = pair.store;
        run_turn(&pair, n > 1000 || dice_below(&pair.dice, 2) ? n : 2 * n);
        if (pair.store != store)
            used_before = 0;
        n_used += pair.store->lookups.n_used - used_before;
        used_before = pair.store->lookups.n_used;
        assert_true(pair.store->lookups.n <= LOOKUPS_MAX);
        if (turn % 20 == 19)
            pair_compare(&pair);
    }
    pair_close(&pair);
    return n_used;
}

/* Small pushes go together, without lookups, except in tables like these. */
static void test_histories(void **state)
{
    (void)state;
    embd_schema s = schema_of(5, EMBD_OPTIMIZER_FTRL);
    s.partition = EMBD_PARTITION_SLOT;
    s.slots = 3;
    s.regularization.clip_norm = 0.5f;
    assert_true(run_histories(&s, TURNS, 60) > TURNS / 16);
    s = schema_of(4, EMBD_OPTIMIZER_ADAM);
    s.optimizer.update = EMBD_UPDATE_GLOBAL;
    assert_true(run_histories(&s, TURNS, 60) > TURNS / 8);
}

static void test_large_pushes(void **state)
{
    (void)state;
    embd_schema s = schema_of(8, EMBD_OPTIMIZER_ROWWISE_ADAGRAD);
    assert_true(run_histories(&s, 6, 4100) > 0);
    s.optimizer.kind = EMBD_OPTIMIZER_SGD;
    s.partition = EMBD_PARTITION_SLOT;
    s.slots = 3;
    assert_true(run_histories(&s, 6, 4100) > 0);
}

static void test_rows_that_go(void **state)
{
    (void)state;
    embd_schema s = schema_of(4, EMBD_OPTIMIZER_ROWWISE_ADAGRAD);
    s.regularization.weight_decay = 0.1f;
    s.on_full = EMBD_ON_FULL_EVICT_LRU;
    s.capacity = POOL / 2;
    assert_true(run_histories(&s, TURNS, 40) > 0);
    s = schema_of(6, EMBD_OPTIMIZER_SGD);
    s.regularization.max_norm = 0.5f;
    s.admit_after = 2;
    assert_true(run_histories(&s, TURNS, 40) > 0);
}

/* Pulls are kept once a push of a pull's keys has come, and no more when no such push comes. */
static void test_pulls_alone(void **state)
{
    (void)state;
    enum { N = 50 };
    embd_schema s = schema_of(4, EMBD_OPTIMIZER_ADAM);
    uint64_t pool[POOL];
    struct pair pair;
    struct batch batch;
    s.optimizer.update = EMBD_UPDATE_GLOBAL; /* such pushes go alone */
    begin(&pair, &s, pool);
    batch_of(&batch, pool, N);
    pair_insert(&pair, &batch, false);
    for (uint64_t turn = 0; turn < 4; turn++) {
        pair_pull(&pair, &batch, EMBD_DTYPE_F32, false, false);
        assert_int_equal(pair.store->lookups.n > 0, turn > 0);
        pair_push(&pair, &batch, EMBD_DTYPE_F32, false);
        assert_int_equal(pair.store->lookups.n_used, turn);
    }
    for (int turn = 0; turn < 40; turn++)
        pair_pull(&pair, &batch, EMBD_DTYPE_F32, false, false);
    assert_int_equal(pair.store->lookups.n, 0);
    assert_int_equal(pair.store->lookups.n_trusted, 0);
    pair_compare(&pair);
    batch_free(&batch);
    pair_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_histories),
        cmocka_unit_test(test_large_pushes),
        cmocka_unit_test(test_rows_that_go),
        cmocka_unit_test(test_pulls_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
