/* test_expected.c - keys that are expected to be new, as those of the call before were: they
 * are, or one of them has a row, or comes twice. Each call gives the model's bits. Runs under the
 * emulator, and on a device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/store/cuda/cuda_store.h"
#include "tests/store/pair.h"

enum { LARGE = 4200 }; /* a push of fewer keys may go another way (batch_push.h) */

static uint64_t n_drawn;

static embd_schema schema_of(embd_dtype dtype, uint32_t dim, embd_optimizer_kind optimizer)
{
    embd_schema s;
    embd_schema_init(&s);
    strcpy(s.name, "expected");
    s.dim = dim;
    s.dtype = dtype;
    s.capacity = 20 * LARGE; /* there is memory */
    embd_optimizer_init(&s.optimizer, optimizer, 0.01f);
    return s;
}

/* New keys, each once. */
static void draw_new(struct pair *pair, struct batch *batch, uint32_t n)
{
    uint64_t *keys = malloc(n * sizeof *keys);
    for (uint32_t i = 0; i < n; i++)
        keys[i] = ++n_drawn * 3;
    batch_of(batch, keys, n);
    free(keys);
    if (pair->schema.s.partition != EMBD_PARTITION_SLOT)
        return;
    batch->slots = malloc(n * sizeof *batch->slots);
    for (uint32_t i = 0; i < n; i++)
        batch->slots[i] = (uint16_t)dice_below(&pair->dice, pair->schema.s.slots);
    batch->in.slots = batch->slots;
}

/* A key that comes twice, or one that has a row, or none that is wrong. */
static void spoil(struct pair *pair, struct batch *batch, uint32_t what)
{
    uint32_t n = batch->in.n_keys, to = dice_below(&pair->dice, n),
             from = (to + 1 + dice_below(&pair->dice, n - 1)) % n;
    if (what == 1)
        batch->keys[to] = batch->keys[from];
    else if (what == 2)
        batch->keys[to] = 3 * (1 + dice_below(&pair->dice, (uint32_t)n_drawn - n));
    if (what == 1 && batch->slots)
        batch->slots[to] = batch->slots[from];
}

static void run_turn(struct pair *pair, uint32_t turn, uint32_t n, bool pushes)
{
    struct batch batch;
    bool has_statuses = turn % 5 < 2;
    draw_new(pair, &batch, n);
    spoil(pair, &batch, turn % 3 == 2 ? 1 + turn / 3 % 2 : 0);
    if (turn % 2 == 0 || !pushes)
        pair_insert(pair, &batch, has_statuses);
    else
        pair_push(pair, &batch, EMBD_DTYPE_F32, has_statuses);
    batch_free(&batch);
}

static void run(const embd_schema *schema, uint32_t turns, uint32_t n, bool pushes)
{
    struct pair pair;
    n_drawn = 0;
    pair_open(&pair, "cuda", schema, 7);
    for (uint32_t turn = 0; turn < turns; turn++) {
        run_turn(&pair, turn, n, pushes);
        if (turn % 8 == 7)
            pair_compare(&pair);
    }
    assert_true(pair.store->n_unexpected >= turns / 8);
    assert_true(pair.store->n_expected >= pair.store->n_unexpected + turns / 4);
    pair_close(&pair);
}

static void test_plain(void **state)
{
    (void)state;
    embd_schema s = schema_of(EMBD_DTYPE_F32, 8, EMBD_OPTIMIZER_SGD);
    run(&s, 12, LARGE, true);
    s = schema_of(EMBD_DTYPE_F32, 4, EMBD_OPTIMIZER_ROWWISE_ADAGRAD);
    run(&s, 12, LARGE, true);
}

static void test_slots(void **state)
{
    (void)state;
    embd_schema s = schema_of(EMBD_DTYPE_F32, 5, EMBD_OPTIMIZER_ADAM);
    s.partition = EMBD_PARTITION_SLOT;
    s.slots = 3;
    run(&s, 12, LARGE, true);
}

/* Inserts alone: no step, coded rows, values that are drawn otherwise, rows that are used. */
static void test_inserts(void **state)
{
    (void)state;
    embd_schema s = schema_of(EMBD_DTYPE_I8, 12, EMBD_OPTIMIZER_SGD);
    run(&s, 16, 500, false);
    s = schema_of(EMBD_DTYPE_F16, 6, EMBD_OPTIMIZER_ADAM);
    s.initializer.kind = EMBD_INITIALIZER_NORMAL;
    s.on_full = EMBD_ON_FULL_EVICT_LRU;
    run(&s, 16, 500, false);
}

/* A table without room for all: nothing is expected, and what is refused changes nothing. */
static void test_no_room(void **state)
{
    (void)state;
    struct pair pair;
    struct batch batch;
    embd_schema s = schema_of(EMBD_DTYPE_F32, 4, EMBD_OPTIMIZER_SGD);
    s.on_full = EMBD_ON_FULL_ERROR;
    s.capacity = 150;
    n_drawn = 0;
    pair_open(&pair, "cuda", &s, 7);
    for (int turn = 0; turn < 4; turn++) {
        draw_new(&pair, &batch, 70);
        pair_insert(&pair, &batch, turn % 2);
        batch_free(&batch);
        pair_compare(&pair);
    }
    assert_true(pair.store->n_expected <= 2);
    pair_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_slots),
        cmocka_unit_test(test_inserts),
        cmocka_unit_test(test_no_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
