/* test_pieces.c - large pulls, which the cuda store makes piece by piece: what it has told of is
 * there and stays, all of it is of one moment, and an end in the midst leaves nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/store/cuda/cuda_store.h"
#include "tests/cuda/stand_in_device.h"
#include "tests/store/pair.h"

enum { POOL = 900, N = 700, DIM = 8, PIECE = 999 };

static embd_schema schema_of(embd_dtype dtype, uint32_t dim, embd_partition partition)
{
    embd_schema s;
    embd_schema_init(&s);
    strcpy(s.name, "pieces");
    s.dim = dim;
    s.dtype = dtype;
    s.partition = partition;
    s.slots = partition == EMBD_PARTITION_SLOT ? 3 : 1;
    embd_optimizer_init(&s.optimizer, EMBD_OPTIMIZER_SGD, 0.5f);
    return s;
}

static void begin_with(struct pair *pair, const embd_schema *schema, uint64_t *pool)
{
    pair_open(pair, "cuda", schema, 17);
    for (uint32_t i = 0; i < POOL; i++)
        pool[i] = dice_next(&pair->dice) >> i % 3 * 20;
    pair->pool = pool;
    pair->n_pool = POOL;
    pair->store->piece_bytes = PIECE;
}

static void begin(struct pair *pair, uint64_t *pool)
{
    embd_schema s = schema_of(EMBD_DTYPE_F32, DIM, EMBD_PARTITION_HASH);
    begin_with(pair, &s, pool);
}

/* Some keys have rows, others none. */
static void push_some(struct pair *pair)
{
    struct batch batch;
    batch_draw(pair, &batch, N, 1, true, false);
    pair_push(pair, &batch, EMBD_DTYPE_F32, false);
    batch_free(&batch);
}

/* ---- the ways a pull is made ---- */

/* The model's bits; how often rows were told of. */
static uint64_t pull_in_pieces(embd_dtype dtype, embd_dtype wire, uint32_t dim,
                               embd_partition partition, bool is_raw)
{
    uint64_t pool[POOL];
    struct pair pair;
    struct batch batch;
    embd_schema s = schema_of(dtype, dim, partition);
    begin_with(&pair, &s, pool);
    push_some(&pair);
    for (int turn = 0; turn < 4; turn++) {
        batch_draw(&pair, &batch, N, 4, is_raw, !is_raw && turn == 3);
        pair_pull(&pair, &batch, wire, turn == 1, turn == 2);
        batch_free(&batch);
    }
    pair_compare(&pair);
    pair_close(&pair);
    return pair.n_told;
}

static void test_ways(void **state)
{
    (void)state;
    const embd_dtype f32 = EMBD_DTYPE_F32, f16 = EMBD_DTYPE_F16;
    const embd_partition hash = EMBD_PARTITION_HASH, slot = EMBD_PARTITION_SLOT;
    assert_true(pull_in_pieces(f32, f32, 8, hash, true) >= 4 * 3); /* gathered, and pooled: */
    assert_true(pull_in_pieces(f32, f32, 8, hash, false) >= 4 * 3);
    assert_true(pull_in_pieces(f32, f16, 7, hash, true) >= 4 * 2);
    assert_true(pull_in_pieces(f16, f16, 16, slot, true) >= 4 * 3);
    assert_true(pull_in_pieces(f16, f32, 5, slot, false) >= 4 * 3);
    assert_true(pull_in_pieces(EMBD_DTYPE_I8, f32, 12, hash, true) >= 4 * 3);
}

static void test_small(void **state)
{
    (void)state;
    uint64_t pool[POOL];
    struct pair pair;
    struct batch batch;
    begin(&pair, pool);
    batch_of(&batch, pool, 2 * PIECE / (DIM * 4));
    pair_pull(&pair, &batch, EMBD_DTYPE_F32, false, false);
    assert_int_equal(pair.n_told, 0);
    batch_free(&batch);
    pair_close(&pair);
}

/* A push of the same keys has use for what the pieces found. */
static void test_lookup(void **state)
{
    (void)state;
    const embd_dtype wires[] = {EMBD_DTYPE_F32, EMBD_DTYPE_F16};
    for (int i = 0; i < 2; i++) {
        uint64_t pool[POOL];
        struct pair pair;
        struct batch batch;
        embd_schema s = schema_of(EMBD_DTYPE_F32, DIM, EMBD_PARTITION_HASH);
        embd_optimizer_init(&s.optimizer, EMBD_OPTIMIZER_ADAM, 0.5f);
        s.optimizer.update = EMBD_UPDATE_GLOBAL; /* such pushes go alone */
        begin_with(&pair, &s, pool);
        pair.store->lookup_keys_min = 1;
        batch_of(&batch, pool, N);
        pair_insert(&pair, &batch, false);
        pair.store->lookups.n_trusted = LOOKUPS_MAX;
        pair_pull(&pair, &batch, wires[i], false, false);
        assert_true(pair.n_told >= 2);
        pair_push(&pair, &batch, EMBD_DTYPE_F32, false);
        assert_int_equal(pair.store->lookups.n_used, 1);
        pair_compare(&pair);
        batch_free(&batch);
        pair_close(&pair);
    }
}

/* ---- what comes between ---- */

/* One pull, and what was said of it. */
struct large {
    struct outcome outcome; /* first: its done comes with it */
    struct store_pull pull;
    uint32_t n_told, n_rows; /* times; rows then */
    float values[N * DIM];
};
static struct large large;

static void on_made(struct store_pull *pull, uint32_t n_rows)
{
    assert_ptr_equal(pull, &large.pull);
    assert_true(pull->is_sure && large.outcome.calls == 0 && n_rows > large.n_rows);
    large.n_told++;
    large.n_rows = n_rows;
}

static void begin_large(struct pair *pair, const struct batch *batch)
{
    memset(&large, 0, sizeof large);
    outcome_init(&large.outcome);
    large.pull = (struct store_pull){
        .in = batch_keys(batch), .count = N, .values = large.values, .made = on_made};
    pair->ops->pull(pair->store, &large.pull, &large.outcome.done);
    assert_int_equal(large.n_told, 0); /* from inside collect alone */
}

static void collect_until_told(struct pair *pair)
{
    while (large.n_told == 0)
        assert_true(pair->ops->collect(pair->store));
}

static void compare_large(const float *expected)
{
    assert_int_equal(large.outcome.calls, 1);
    assert_int_equal(large.outcome.status, EMBD_OK);
    assert_memory_equal(large.values, expected, sizeof large.values);
}

static void begin_push(struct pair *pair, const struct batch *batch, struct store_change *push,
                       struct outcome *outcome, const float *grads)
{
    outcome_init(outcome);
    *push = (struct store_change){.in = batch_keys(batch), .grads = grads};
    pair->ops->apply(pair->store, push, &outcome->done);
    model_push(pair->model, &batch->in, grads, false, NULL, NULL);
}

/* Before it, and behind it before and after its first rows are there. */
static void test_pushes_before_and_behind(void **state)
{
    (void)state;
    static float grads[N * DIM], expected[N * DIM];
    uint64_t pool[POOL];
    struct pair pair;
    struct batch batch;
    struct store_change pushes[3];
    struct outcome outcomes[3];
    begin(&pair, pool);
    batch_of(&batch, pool, N);
    for (uint32_t i = 0; i < N * DIM; i++)
        grads[i] = dice_float(&pair.dice);
    begin_push(&pair, &batch, &pushes[0], &outcomes[0], grads);
    model_pull(pair.model, &batch.in, false, false, expected, NULL);
    begin_large(&pair, &batch);
    begin_push(&pair, &batch, &pushes[1], &outcomes[1], grads);
    collect_until_told(&pair);
    begin_push(&pair, &batch, &pushes[2], &outcomes[2], grads);
    while (pair.ops->collect(pair.store))
        ;
    compare_large(expected);
    assert_true(large.n_told >= 3);
    pair_compare(&pair);
    batch_free(&batch);
    pair_close(&pair);
}

/* ---- an end in the midst ---- */

/* Nothing is written, and nobody is told, once cancel has returned. */
static void test_given_up(void **state)
{
    (void)state;
    uint64_t pool[POOL];
    struct pair pair;
    struct batch batch;
    begin(&pair, pool);
    push_some(&pair);
    batch_of(&batch, pool, N);
    begin_large(&pair, &batch);
    collect_until_told(&pair);
    uint32_t n_told = large.n_told;
    assert_int_equal(pair.ops->cancel(pair.store, &large.pull.ticket), EMBD_OK);
    memset(large.values, 0xee, sizeof large.values);
    while (pair.ops->collect(pair.store))
        ;
    assert_int_equal(large.n_told, n_told);
    assert_int_equal(large.outcome.calls, 0);
    for (size_t i = 0; i < sizeof large.values; i++)
        assert_int_equal(((const uint8_t *)large.values)[i], 0xee);
    pair_pull(&pair, &batch, EMBD_DTYPE_F32, false, false);
    pair_compare(&pair);
    batch_free(&batch);
    pair_close(&pair);
    assert_int_equal(stand_in_bytes, 0);
}

static void test_device_fails(void **state)
{
    (void)state;
    uint64_t pool[POOL];
    struct pair pair;
    struct batch batch;
    begin(&pair, pool);
    batch_of(&batch, pool, N);
    begin_large(&pair, &batch);
    collect_until_told(&pair);
    uint32_t n_told = large.n_told;
    stand_in_failure = 700;
    while (pair.ops->collect(pair.store))
        ;
    stand_in_failure = 0;
    assert_int_equal(large.n_told, n_told);
    assert_int_equal(large.outcome.calls, 1);
    assert_int_equal(large.outcome.status, EMBD_INTERNAL);
    batch_free(&batch);
    pair_close(&pair);
    assert_int_equal(stand_in_bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ways),     cmocka_unit_test(test_small),
        cmocka_unit_test(test_lookup),   cmocka_unit_test(test_pushes_before_and_behind),
        cmocka_unit_test(test_given_up), cmocka_unit_test(test_device_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
