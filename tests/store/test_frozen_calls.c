/* test_frozen_calls.c - a cut is read between calls that wait, as trainers make them: pushes and
 * inserts of which several are under way at a time, and go together where the store lets them. The
 * cut is the table as it was, and the table ends as the model, which has the calls one after the
 * other. Arguments: the store, how many tables are tried, and the way of a group of GPUs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/store/image.h"

enum { POOL = 300, CALLS = 6, BLOCK = 12 };

static const char *store_name = "host";
static uint64_t n_tables = 60;

struct waiting {
    struct outcome outcome; /* first: its done comes with it */
    struct batch batch;
    struct store_change push;
    struct store_change insert;
    float *grads;
    uint8_t *statuses;
    int expected;
};

static void begin_push(struct pair *pair, struct waiting *w)
{
    size_t n = (size_t)w->batch.in.n_rows * pair->schema.s.dim;
    w->grads = malloc(n * sizeof *w->grads + 1);
    for (size_t i = 0; i < n; i++)
        w->grads[i] = dice_float(&pair->dice);
    w->push = (struct store_change){
        .in = batch_keys(&w->batch), .grads = w->grads, .statuses = w->statuses};
    w->expected = model_push(pair->model, &w->batch.in, w->grads, false, w->statuses, NULL);
    pair->ops->apply(pair->store, &w->push, &w->outcome.done);
}

static void begin_insert(struct pair *pair, struct waiting *w)
{
    w->grads = NULL;
    w->insert = (struct store_change){
        .kind = STORE_INSERT, .in = batch_keys(&w->batch), .statuses = w->statuses};
    w->expected = model_insert(pair->model, &w->batch.in, w->statuses, NULL);
    pair->ops->apply(pair->store, &w->insert, &w->outcome.done);
}

static void begin(struct pair *pair, struct waiting *w)
{
    outcome_init(&w->outcome);
    batch_draw(pair, &w->batch, dice_below(&pair->dice, 20), 3, dice_below(&pair->dice, 2), false);
    w->statuses = dice_below(&pair->dice, 2) ? malloc(w->batch.in.n_keys + 1) : NULL;
    if (dice_below(&pair->dice, 8) == 0)
        begin_insert(pair, w);
    else
        begin_push(pair, w);
}

static void end(struct waiting *w)
{
    assert_int_equal(w->outcome.calls, 1);
    assert_int_equal(w->outcome.status, w->expected);
    batch_free(&w->batch);
    free(w->grads);
    free(w->statuses);
}

static void fill(struct pair *pair)
{
    for (int i = 0; i < 6; i++) {
        struct waiting call;
        begin(pair, &call);
        while (pair->ops->collect(pair->store))
            ;
        end(&call);
    }
}

/* Up to CALLS of them under way, and what of the cut can be read between any two. True: all was
 * read. */
static bool call_and_read(struct pair *pair, struct image *read)
{
    struct waiting calls[CALLS];
    uint32_t n = 1 + dice_below(&pair->dice, CALLS);
    bool is_read = false;
    for (uint32_t i = 0; i < n; i++) {
        begin(pair, &calls[i]);
        if (dice_below(&pair->dice, 3) == 0)
            pair->ops->collect(pair->store);
        if (!is_read && dice_below(&pair->dice, 2))
            is_read = scan_some(pair, 1 + dice_below(&pair->dice, BLOCK), read);
    }
    while (pair->ops->collect(pair->store))
        if (!is_read)
            is_read = scan_some(pair, 1 + dice_below(&pair->dice, BLOCK), read);
    for (uint32_t i = 0; i < n; i++)
        end(&calls[i]);
    return is_read;
}

static void a_cut_is_read_between_calls_under_way(void **state)
{
    (void)state;
    uint64_t keys[POOL];
    for (uint32_t i = 0; i < POOL; i++)
        keys[i] = i * 0x9e3779b97f4a7c15ULL;
    for (uint64_t number = 0; number < n_tables; number++) {
        struct dice dice = {1000 + number};
        struct pair pair;
        embd_schema schema = image_schema(&dice);
        pair_open(&pair, store_name, &schema, dice_next(&dice));
        pair.pool = keys;
        pair.n_pool = POOL;
        for (int cut = 0; cut < 2; cut++) {
            struct embd__error e = {0};
            fill(&pair);
            struct image expected = scan_all(&pair), read = image_new(&pair);
            assert_int_equal(
                pair.ops->freeze(pair.store, &(struct store_cut){.id = 1 + (uint64_t)cut}, &e),
                EMBD_OK);
            while (!call_and_read(&pair, &read))
                ;
            pair.ops->thaw(pair.store);
            compare_images(&read, &expected);
            pair_compare(&pair);
        }
        pair_close(&pair);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1)
        store_name = argv[1];
    if (argc > 2)
        n_tables = strtoull(argv[2], NULL, 10);
    if (argc > 3)
        pair_set_way(argv[3]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_cut_is_read_between_calls_under_way)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
