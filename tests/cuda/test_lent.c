/* test_lent.c - keys, rows and gradients in memory of a GPU that its owner lends, and writes to at
 * any time: the model's bits, also where keys and gradients change right behind the call; gradients
 * that are not finite are refused whole. Runs under the emulator, and on a device. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/convert.h"
#include "tests/cuda/lent_pair.h"

enum { POOL = 300, TURNS = 40, ROWS_MAX = 90 };

static void lent_pull(struct pair *pair, const struct batch *batch, embd_dtype wire, bool zero)
{
    uint32_t n = batch->in.n_keys, dim = pair->schema.s.dim;
    uint64_t size = embd__dtype_bytes(wire), bytes = n * dim * size;
    float *expected = malloc(n * dim * sizeof *expected + 1);
    uint8_t *got = malloc(bytes + 1), *should = malloc(bytes + 1);
    uint64_t *keys = lent_new(pair, batch->keys, n * sizeof *keys);
    struct outcome outcome;
    outcome_init(&outcome);
    struct store_pull pull = {.in = lent_keys(keys, n),
                              .dtype = wire,
                              .zero_missing = zero,
                              .count = n,
                              .values = lent_new(pair, NULL, bytes)};
    model_pull(pair->model, &batch->in, zero, false, expected, NULL);
    embd__from_f32(should, wire, expected, (size_t)n * dim);
    pair->ops->pull(pair->store, &pull, &outcome.done);
    lent_await(pair, &outcome);
    assert_int_equal(outcome.status, EMBD_OK);
    lent_fetch(pair, got, pull.values, bytes);
    assert_memory_equal(got, should, bytes);
    lent_free(pair, pull.values);
    lent_free(pair, keys);
    free(expected);
    free(should);
    free(got);
}

/* Its owner writes to both at once when the call has returned. */
static struct outcome lent_push(struct pair *pair, const struct batch *batch, embd_dtype wire,
                                const void *grads, float lr, struct store_change *push)
{
    uint32_t n = batch->in.n_keys;
    uint64_t bytes = n * (uint64_t)pair->schema.s.dim * embd__dtype_bytes(wire);
    uint64_t *keys = lent_new(pair, batch->keys, n * sizeof *keys);
    void *values = lent_new(pair, grads, bytes);
    struct outcome outcome;
    outcome_init(&outcome);
    *push = (struct store_change){.in = lent_keys(keys, n),
                                  .dtype = wire,
                                  .grads = values,
                                  .lr = lr,
                                  .seconds = pair_draw_seconds(pair)};
    pair->ops->apply(pair->store, push, &outcome.done);
    lent_spoil(pair, keys, n * sizeof *keys);
    lent_spoil(pair, values, bytes);
    lent_await(pair, &outcome);
    lent_free(pair, keys);
    lent_free(pair, values);
    return outcome;
}

static void lent_push_drawn(struct pair *pair, const struct batch *batch, embd_dtype wire)
{
    size_t n = (size_t)batch->in.n_rows * pair->schema.s.dim;
    float *grads = malloc(n * sizeof *grads + 1);
    void *on_wire = malloc(n * embd__dtype_bytes(wire) + 1);
    struct store_change push;
    struct model_counts counts;
    for (size_t i = 0; i < n; i++)
        grads[i] = model_round(dice_float(&pair->dice) * 1.3f, wire);
    embd__from_f32(on_wire, wire, grads, n);
    float lr = pair->model->lr = pair_draw_lr(pair);
    struct outcome outcome = lent_push(pair, batch, wire, on_wire, lr, &push);
    int expected = model_push(pair->model, &batch->in, grads, false, NULL, &counts);
    pair->model->lr = 0;
    assert_int_equal(outcome.status, expected);
    if (expected == EMBD_OK) {
        assert_int_equal(push.n_inserted, counts.n_inserted);
        assert_int_equal(push.n_evicted, counts.n_evicted);
        assert_int_equal(push.n_filtered, counts.n_filtered);
    }
    free(on_wire);
    free(grads);
}

/* Their rows were made before anybody had looked at the gradients. */
static void test_bad_gradients_of_new_keys(void **state)
{
    (void)state;
    enum { N = 4200, DIM = 4 };
    static uint64_t drawn[N];
    static float grads[N * DIM];
    embd_schema s;
    struct pair pair;
    struct batch batch;
    struct store_change push;
    embd_schema_init(&s);
    strcpy(s.name, "lent");
    s.dim = DIM;
    s.capacity = 2 * N;
    embd_optimizer_init(&s.optimizer, EMBD_OPTIMIZER_SGD, 0.05f);
    for (uint64_t i = 0; i < N; i++)
        drawn[i] = 1 + i * 5;
    pair_open(&pair, "cuda", &s, 3);
    batch_of(&batch, drawn, N);
    grads[N * DIM / 2] = NAN;
    struct outcome outcome = lent_push(&pair, &batch, EMBD_DTYPE_F32, grads, 0, &push);
    assert_int_equal(outcome.status, EMBD_NOT_FINITE);
    assert_int_equal(pair.store->n_expected, 1);
    pair_compare(&pair);
    lent_pull(&pair, &batch, EMBD_DTYPE_F32, true);
    lent_push_drawn(&pair, &batch, EMBD_DTYPE_F32);
    pair_compare(&pair);
    batch_free(&batch);
    pair_close(&pair);
}

/* ---- pushes without a way back to the host ---- */

static void push_nan(struct pair *pair, const struct batch *batch)
{
    size_t n = (size_t)batch->in.n_rows * pair->schema.s.dim;
    float *grads = calloc(n, sizeof *grads);
    struct store_change push;
    for (size_t i = 0; i < n; i++)
        grads[i] = 1;
    grads[n - 1] = NAN;
    struct outcome outcome = lent_push(pair, batch, EMBD_DTYPE_F32, grads, 0, &push);
    assert_int_equal(outcome.status, EMBD_NOT_FINITE);
    free(grads);
}

/* With a pull before, what that found is used; else keys are looked up. */
static void push_known(struct pair *pair, const struct batch *batch, bool pulls)
{
    uint64_t n_whole = pair->store->n_whole;
    for (int turn = 0; turn < 4; turn++) {
        if (pulls)
            lent_pull(pair, batch, EMBD_DTYPE_F32, false);
        lent_push_drawn(pair, batch, EMBD_DTYPE_F32);
    }
    assert_true(pair->store->n_whole >= n_whole + 2);
    n_whole = pair->store->n_whole;
    if (pulls)
        lent_pull(pair, batch, EMBD_DTYPE_F32, false);
    push_nan(pair, batch);
    pair_compare(pair);
    assert_int_equal(pair->store->n_whole, n_whole);
}

static void push_known_by(embd_optimizer_kind kind)
{
    enum { N = 4300, DIM = 8 };
    static uint64_t drawn[N];
    embd_schema s;
    struct pair pair;
    struct batch known, other;
    embd_schema_init(&s);
    strcpy(s.name, "lent");
    s.dim = DIM;
    embd_optimizer_init(&s.optimizer, kind, 0.05f);
    pair_open(&pair, "cuda", &s, 3);
    for (uint64_t i = 0; i < N; i++)
        drawn[i] = i % 3 > 0 ? 1 + i / 2 * 5 % 4001 : 0; /* key 0 has a long run */
    batch_of(&known, drawn, N);
    drawn[N / 2] = UINT64_C(1) << 60;
    batch_of(&other, drawn, N);
    push_known(&pair, &known, false);
    push_known(&pair, &known, true);
    uint64_t n_whole = pair.store->n_whole;
    push_nan(&pair, &other); /* with a new key */
    lent_push_drawn(&pair, &other, EMBD_DTYPE_F32);
    assert_int_equal(pair.store->n_whole, n_whole);
    pair_compare(&pair);
    push_known(&pair, &other, true);
    batch_free(&known);
    batch_free(&other);
    pair_close(&pair);
}

static void test_pushes_of_known_keys_have_no_way_back_to_the_host(void **state)
{
    (void)state;
    push_known_by(EMBD_OPTIMIZER_SGD);
    push_known_by(EMBD_OPTIMIZER_ROWWISE_ADAGRAD);
    push_known_by(EMBD_OPTIMIZER_ADAM);
}

static embd_schema schema_of(uint32_t number)
{
    static const uint32_t dims[] = {1, 3, 4, 7, 16, 32, 64, 65};
    embd_schema s;
    embd_schema_init(&s);
    strcpy(s.name, "lent");
    s.dim = dims[number % (sizeof dims / sizeof dims[0])];
    s.dtype = pair_dtypes[number % PAIR_DTYPES];
    embd_optimizer_init(&s.optimizer, (embd_optimizer_kind)(number % (EMBD_OPTIMIZER_FTRL + 1)),
                        0.05f);
    s.optimizer.update =
        number % 7 == 6 && !model_has_codes(s.dtype) ? EMBD_UPDATE_GLOBAL : EMBD_UPDATE_LOCAL;
    s.admit_after = number % 3;
    if (number % 4 == 3) {
        s.on_full = number % 8 == 7 ? EMBD_ON_FULL_EVICT_LRU : EMBD_ON_FULL_ERROR;
        s.capacity = 120;
    }
    return s;
}

static void begin(struct pair *pair, uint32_t number, uint64_t pool[POOL])
{
    embd_schema schema = schema_of(number);
    pair_open(pair, "cuda", &schema, number);
    for (uint32_t i = 0; i < POOL; i++)
        pool[i] = dice_next(&pair->dice) >> i % 3 * 20;
    pair->pool = pool;
    pair->n_pool = POOL;
    pair->store->lookup_keys_min = 20; /* pulls are kept for pushes of their keys */
    if (number % 2) {                  /* rows are read window by window */
        pair->store->window_bytes = 1000;
        pair->store->window_keys = 10;
    }
}

static void one_turn(struct pair *pair)
{
    struct batch batch;
    embd_dtype wire = (embd_dtype)dice_below(&pair->dice, EMBD_DTYPE_BF16 + 1);
    batch_draw(pair, &batch, dice_below(&pair->dice, ROWS_MAX), 1, true, false);
    uint32_t what = dice_below(&pair->dice, 6);
    if (what < 4)
        lent_pull(pair, &batch, wire, what == 0);
    if (what > 1)
        lent_push_drawn(pair, &batch, wire);
    else if (what == 1) /* the ways of the host's memory lie between */
        pair_push(pair, &batch, wire, dice_below(&pair->dice, 2));
    batch_free(&batch);
}

static void test_lent_memory_gives_the_models_bits(void **state)
{
    (void)state;
    for (uint32_t number = 0; number < 32; number++) {
        uint64_t pool[POOL];
        struct pair pair;
        begin(&pair, number, pool);
        for (int turn = 0; turn < TURNS; turn++)
            one_turn(&pair);
        pair_compare(&pair);
        pair_close(&pair);
    }
}

/* More keys than go in one launch, of which pulls are kept for pushes. */
static void test_large_batches(void **state)
{
    (void)state;
    enum { KEYS = 4500 };
    uint64_t pool[POOL];
    struct pair pair;
    struct batch batch;
    begin(&pair, 10, pool);
    for (int turn = 0; turn < 4; turn++) {
        batch_draw(&pair, &batch, KEYS, 1, true, false);
        if (turn != 1)
            lent_pull(&pair, &batch, EMBD_DTYPE_F32, false);
        lent_push_drawn(&pair, &batch, turn % 2 ? EMBD_DTYPE_BF16 : EMBD_DTYPE_F32);
        batch_free(&batch);
    }
    pair_compare(&pair);
    pair_close(&pair);
}

/* ---- gradients that are not finite ---- */

static const uint32_t bad_values[][3] = {
    /* by dtype: infinities and what is no number */
    [EMBD_DTYPE_F32] = {0x7f800000u, 0xff800000u, 0x7fc00001u},
    [EMBD_DTYPE_F16] = {0x7c00u, 0xfc00u, 0x7e01u},
    [EMBD_DTYPE_BF16] = {0x7f80u, 0xff80u, 0x7fc1u},
};

static void push_bad(struct pair *pair, const struct batch *batch, embd_dtype wire, uint32_t at)
{
    size_t size = embd__dtype_bytes(wire), n = (size_t)batch->in.n_rows * pair->schema.s.dim;
    uint8_t *grads = calloc(n, size);
    struct store_change push;
    memcpy(grads + at * size, &bad_values[wire][at % 3], size);
    struct outcome outcome = lent_push(pair, batch, wire, grads, 0, &push);
    assert_int_equal(outcome.status, EMBD_NOT_FINITE);
    assert_non_null(strstr(outcome.done.error.text, "not finite"));
    assert_non_null(strstr(outcome.done.error.text, pair->schema.s.name));
    free(grads);
}

static void test_gradients_that_are_not_finite_change_nothing(void **state)
{
    (void)state;
    uint64_t pool[POOL];
    struct pair pair;
    struct batch batch;
    begin(&pair, 2,
          pool); /* f16 rows that are admitted at the second sight, by a rule with state */
    for (int round = 0; round < 8; round++) {
        batch_draw(&pair, &batch, 1 + dice_below(&pair.dice, 20), 1, true, false);
        uint32_t n = batch.in.n_rows * pair.schema.s.dim;
        for (int wire = EMBD_DTYPE_F32; wire <= EMBD_DTYPE_BF16; wire++)
            for (uint32_t at = 0; at < n; at++)
                push_bad(&pair, &batch, (embd_dtype)wire, at);
        lent_push_drawn(&pair, &batch, EMBD_DTYPE_F32);
        pair_compare(&pair);
        batch_free(&batch);
    }
    pair_close(&pair);
}

static void test_where_any_gradient_is_admitted(void **state)
{
    (void)state;
    embd_schema schema = schema_of(0);
    struct pair pair;
    struct batch batch;
    struct store_change push;
    const float infinite[2] = {INFINITY, 1.0f};
    const uint64_t keys[2] = {5, 6};
    schema.admit_nonfinite = true;
    pair_open(&pair, "cuda", &schema, 1);
    batch_of(&batch, keys, 2);
    struct outcome outcome = lent_push(&pair, &batch, EMBD_DTYPE_F32, infinite, 0, &push);
    assert_int_equal(outcome.status, EMBD_OK);
    assert_int_equal(push.n_inserted, 2);
    batch_free(&batch);
    pair_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lent_memory_gives_the_models_bits),
        cmocka_unit_test(test_large_batches),
        cmocka_unit_test(test_gradients_that_are_not_finite_change_nothing),
        cmocka_unit_test(test_bad_gradients_of_new_keys),
        cmocka_unit_test(test_pushes_of_known_keys_have_no_way_back_to_the_host),
        cmocka_unit_test(test_where_any_gradient_is_admitted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
