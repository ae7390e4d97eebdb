/* test_shortlist.c - a table of several segments at its bound: the rows to go are found ahead, over
 * many pushes, between which rows are pushed, erased and made again. They are the model's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "pair.h"

enum { ROWS = 200000, FILL = 20000, BATCH = 2500, PUSHES = 21 };

static void name_all(struct pair *pair, uint64_t n_keys, bool push)
{
    static uint64_t keys[FILL];
    for (uint64_t first = 0; first < n_keys; first += FILL) {
        struct batch batch;
        for (uint32_t i = 0; i < FILL; i++)
            keys[i] = first + i;
        batch_of(&batch, keys, FILL);
        if (push)
            pair_push(pair, &batch, EMBD_F32, true);
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

/* Where `is_hot`, half of all rows are pushed before the second pass, so that few of its list are
 * left. */
static void run(embd_on_full policy, bool is_hot)
{
    static uint64_t keys[BATCH];
    struct pair pair;
    struct store_stats stats;
    embd_schema schema;
    uint64_t n_seen = ROWS;
    embd_schema_init(&schema);
    strcpy(schema.name, "t");
    schema.dim = 1;
    schema.on_full = policy;
    schema.capacity = ROWS;
    schema.ttl = 9;
    embd_optimizer_init(&schema.optimizer, EMBD_SGD, 0.5f);
    pair_open(&pair, "host", &schema, 7);
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
            pair_push(&pair, &batch, EMBD_F32, true);
        batch_free(&batch);
    }
    pair_compare(&pair);
    pair.ops->stats(pair.store, &stats);
    assert_true(stats.evicted >= ROWS / 16 && stats.rows <= ROWS);
    pair_close(&pair);
}

static void rows_found_ahead_are_those_that_have_to_go(void **state)
{
    (void)state;
    for (int policy = EMBD_EVICT_LRU; policy <= EMBD_EVICT_TTL; policy++)
        run((embd_on_full)policy, false);
}

static void rows_found_ahead_that_are_pushed_stay(void **state)
{
    (void)state;
    run(EMBD_EVICT_LRU, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_found_ahead_are_those_that_have_to_go),
        cmocka_unit_test(rows_found_ahead_that_are_pushed_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
