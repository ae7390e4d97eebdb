/* test_in_flight.c - pulls, pushes and erases that are asked for before those before them have
 * ended, as trainers do: each answers what the model says when they are made one after the other.
 * usage: test_in_flight STORE CALLS ROWS [WAY]; ROWS: the most rows of a call */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/store/pair.h"

enum { DEPTH = 6, ROW_MAX = 6, DIM = 12, POOL = 3000 };

static const char *store_name;
static uint32_t n_calls, max_rows;

/* One call with what it is to answer. */
struct flight {
    struct outcome outcome;
    struct batch batch;
    struct store_pull pull;
    struct store_change push;
    float *values, *expected; /* a push's gradients are in `values` */
    uint8_t *statuses, *expected_statuses;
    bool is_under_way, is_pull, has_statuses;
    uint64_t steps, expected_steps; /* that the table tells when a push is done */
};

static struct pair *flown;

static embd_schema schema_of(embd_partition partition)
{
    embd_schema s;
    embd_schema_init(&s);
    strcpy(s.name, "flight");
    s.dim = DIM;
    s.slots = partition == EMBD_PARTITION_SLOT ? 5 : 1;
    s.partition = partition;
    s.combiner = EMBD_COMBINER_SUM;
    embd_optimizer_init(&s.optimizer, EMBD_OPTIMIZER_ADAGRAD, 0.05f);
    if (partition ==
        EMBD_PARTITION_SLOT) { /* a call's keys have room, those of a few calls have not */
        s.on_full = EMBD_ON_FULL_EVICT_LRU;
        s.capacity = max_rows * ROW_MAX < 4 * POOL ? max_rows * ROW_MAX : 4 * POOL;
    }
    return s;
}

static void on_landed(struct store_done *done, int status)
{
    struct flight *f = (struct flight *)done;
    struct store_stats stats;
    flown->ops->stats(flown->store, &stats);
    f->steps = stats.steps;
    f->outcome.status = status;
    f->outcome.calls++;
}

static void await(struct pair *pair, struct flight *f)
{
    if (!f->is_under_way)
        return;
    while (f->outcome.calls == 0)
        pair->ops->collect(pair->store);
    assert_int_equal(f->outcome.status, EMBD_OK);
    if (f->is_pull)
        assert_memory_equal(f->values, f->expected, f->batch.in.n_rows * DIM * sizeof(float));
    else
        assert_int_equal(f->steps, f->expected_steps);
    if (f->has_statuses)
        assert_memory_equal(f->statuses, f->expected_statuses, f->batch.in.n_keys);
    batch_free(&f->batch);
    f->is_under_way = false;
}

static void start_pull(struct pair *pair, struct flight *f)
{
    f->is_pull = true;
    f->pull = (struct store_pull){.in = batch_keys(&f->batch),
                                  .count = f->batch.in.n_rows,
                                  .values = f->values,
                                  .statuses = f->has_statuses ? f->statuses : NULL};
    model_pull(pair->model, &f->batch.in, false, false, f->expected, f->expected_statuses);
    pair->ops->pull(pair->store, &f->pull, &f->outcome.done);
}

static void start_push(struct pair *pair, struct flight *f)
{
    for (uint32_t i = 0; i < f->batch.in.n_rows * DIM; i++)
        f->values[i] = dice_float(&pair->dice);
    f->is_pull = false;
    f->push = (struct store_change){.in = batch_keys(&f->batch),
                                    .grads = f->values,
                                    .lr = pair->model->lr = pair_draw_lr(pair),
                                    .statuses = f->has_statuses ? f->statuses : NULL};
    model_push(pair->model, &f->batch.in, f->values, false, f->expected_statuses, NULL);
    pair->model->lr = 0;
    f->expected_steps = pair->model->step;
    pair->ops->apply(pair->store, &f->push, &f->outcome.done);
}

static void start(struct pair *pair, struct flight *f)
{
    struct dice *dice = &pair->dice;
    outcome_init(&f->outcome);
    f->outcome.done.fn = on_landed;
    batch_draw(pair, &f->batch, dice_below(dice, max_rows), ROW_MAX, dice_below(dice, 2), false);
    f->is_under_way = true;
    f->has_statuses = dice_below(dice, 2);
    if (dice_below(dice, 3) == 0)
        start_push(pair, f);
    else
        start_pull(pair, f);
}

/* Waits for all that is under way, but goes on without waiting for the devices. */
static void erase_some(struct pair *pair)
{
    struct batch batch;
    batch_draw(pair, &batch, 20, ROW_MAX, true, false);
    pair_erase(pair, &batch, true);
    batch_free(&batch);
}

static void fly(embd_partition partition)
{
    static uint64_t pool[POOL];
    static struct flight flights[DEPTH];
    embd_schema schema = schema_of(partition);
    struct pair pair;
    pair_open(&pair, store_name, &schema, partition + 1u);
    flown = &pair;
    for (uint64_t i = 0; i < POOL; i++)
        pool[i] = i * i;
    pair.pool = pool;
    pair.n_pool = POOL;
    for (int i = 0; i < DEPTH; i++)
        flights[i] = (struct flight){.values = malloc(max_rows * DIM * sizeof(float)),
                                     .expected = malloc(max_rows * DIM * sizeof(float)),
                                     .statuses = malloc(max_rows * ROW_MAX),
                                     .expected_statuses = malloc(max_rows * ROW_MAX)};
    for (uint32_t i = 0; i < n_calls; i++) {
        await(&pair, &flights[i % DEPTH]);
        start(&pair, &flights[i % DEPTH]);
        if (dice_below(&pair.dice, 20) == 0)
            erase_some(&pair);
    }
    for (uint32_t i = 0; i < DEPTH; i++) {
        struct flight *f = &flights[(n_calls + i) % DEPTH];
        await(&pair, f);
        free(f->values);
        free(f->expected);
        free(f->statuses);
        free(f->expected_statuses);
    }
    pair_compare(&pair);
    pair_close(&pair);
}

static void test_calls_under_way_by_key(void **state)
{
    (void)state;
    fly(EMBD_PARTITION_HASH);
}

static void test_calls_under_way_by_slot(void **state)
{
    (void)state;
    fly(EMBD_PARTITION_SLOT);
}

int main(int argc, char **argv)
{
    store_name = argc > 1 ? argv[1] : "nccl";
    n_calls = argc > 2 ? (uint32_t)atoi(argv[2]) : 100;
    max_rows = argc > 3 ? (uint32_t)atoi(argv[3]) : 40;
    if (argc > 4)
        pair_set_way(argv[4]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_under_way_by_key),
        cmocka_unit_test(test_calls_under_way_by_slot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
