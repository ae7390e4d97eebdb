/* test_own_hostile.c - calls of a set of keys, in memory whose owner writes other keys before every
 * launch of a kernel, and where allocations fail. Whatever comes, a shard writes rows of its own
 * keys alone, makes rows for these alone, and steps by gradients that it has looked at. */
#include "tests/cuda/own_pair.h"

#include <stdlib.h>
#include <string.h>

#include "tests/cuda/stand_in_device.h"

enum { N = 64, DIM = 4, LARGE = 4200 };

/* ---- a racing writer ---- */

static struct {
    struct owners *owners;
    uint64_t *keys; /* lent */
    uint32_t n;
} race;

/* Keys of the pool: of this shard, and of others. */
static void write_other_keys(void)
{
    struct owners *o = race.owners;
    for (uint32_t i = 0; i < race.n; i++)
        race.keys[i] = o->pool[dice_below(&o->dice, OWN_POOL)];
}

static embd_schema counting_schema(void)
{
    embd_schema s;
    embd_schema_init(&s);
    strcpy(s.name, "raced");
    s.dim = DIM;
    s.initializer = (embd_initializer){EMBD_INITIALIZER_CONSTANT, 0, 0};
    embd_optimizer_init(&s.optimizer, EMBD_OPTIMIZER_SGD, 1);
    return s;
}

/* Each step took 1 off each column, for each time that the key was there. */
static void check_rows(struct owners *o, uint32_t n_pushed)
{
    struct pair *pair = &o->pairs[0];
    struct scanned scanned;
    struct embd__error e = {0};
    uint64_t cursor = 0;
    double sum = 0;
    scanned_init(&scanned, &pair->schema.s, 500, 0);
    while (cursor != UINT64_MAX) {
        assert_int_equal(pair->ops->scan(pair->store, &cursor, 500, &scanned.out, &e), EMBD_OK);
        for (uint32_t r = 0; r < scanned.out.n_rows; r++) {
            assert_int_equal(owner_of(o, scanned.out.keys[r]), 0);
            const float *row = (const float *)scanned.out.rows + (size_t)r * DIM;
            for (uint32_t c = 1; c < DIM; c++)
                assert_true(row[c] == row[0]);
            assert_true(row[0] <= -1 && row[0] == (float)(int)row[0]);
            sum -= (double)row[0];
        }
    }
    assert_true(sum <= n_pushed);
    scanned_free(&scanned);
}

/* Rows of the shard's keys, which are whole numbers, or what was there before. */
static void check_pulled(const float *rows, uint32_t n, float before)
{
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t c = 0; c < DIM; c++) {
            float got = rows[(size_t)i * DIM + c];
            assert_true(got == rows[(size_t)i * DIM]);
            assert_true(got == before || (got <= 0 && got == (float)(int)got));
        }
}

static void pull_raced(struct owners *o, uint32_t n)
{
    struct pair *pair = &o->pairs[0];
    float *rows = malloc(n * DIM * sizeof *rows);
    struct outcome outcome;
    for (uint32_t i = 0; i < n * DIM; i++)
        rows[i] = 0.5f;
    struct store_pull pull = {.in = lent_keys(race.keys, n),
                              .count = n,
                              .values = lent_new(pair, rows, n * DIM * sizeof *rows)};
    pull.in.own = &o->sets[0];
    outcome_init(&outcome);
    pair->ops->pull(pair->store, &pull, &outcome.done);
    lent_await(pair, &outcome);
    assert_int_equal(outcome.status, EMBD_OK);
    lent_fetch(pair, rows, pull.values, n * DIM * sizeof *rows);
    check_pulled(rows, n, 0.5f);
    lent_free(pair, pull.values);
    free(rows);
}

static void push_raced(struct owners *o, uint32_t n)
{
    struct pair *pair = &o->pairs[0];
    float *ones = malloc(n * DIM * sizeof *ones);
    struct outcome outcome;
    for (uint32_t i = 0; i < n * DIM; i++)
        ones[i] = 1;
    void *grads = lent_new(pair, ones, n * DIM * sizeof *ones);
    struct store_change push = {.in = lent_keys(race.keys, n), .grads = grads};
    push.in.own = &o->sets[0];
    outcome_init(&outcome);
    pair->ops->apply(pair->store, &push, &outcome.done);
    lent_await(pair, &outcome);
    assert_int_equal(outcome.status, EMBD_OK);
    lent_free(pair, grads);
    free(ones);
}

static void run_race(uint32_t n, bool by_windows, uint32_t n_residues)
{
    static struct owners o;
    embd_schema schema = counting_schema();
    owners_open(&o, &schema, 2, n_residues, 11 + n_residues);
    struct pair *pair = &o.pairs[0];
    if (by_windows) {
        pair->store->window_bytes = 1000;
        pair->store->window_keys = 10;
    }
    uint64_t *keys = owners_draw(&o, n);
    race.owners = &o;
    race.keys = lent_new(pair, keys, n * sizeof *keys);
    race.n = n;
    emulator_before_launch = write_other_keys;
    for (uint32_t turn = 0; turn < 8; turn++) {
        pull_raced(&o, n);
        push_raced(&o, n);
    }
    emulator_before_launch = NULL;
    check_rows(&o, 8 * n);
    lent_free(pair, race.keys);
    free(keys);
    owners_close(&o);
}

static void whatever_is_written_a_shard_takes_its_own_keys_alone(void **state)
{
    (void)state;
    for (uint32_t windows = 0; windows < 2; windows++) {
        run_race(N, windows, 0);
        run_race(N, windows, 7);
        run_race(LARGE, windows, 0);
        run_race(LARGE, windows, 3);
    }
}

/* ---- without memory ---- */

static int call_once(struct owners *o, const uint64_t *keys, uint32_t n, bool is_push)
{
    struct pair *pair = &o->pairs[0];
    float *grads = calloc(n * DIM, sizeof *grads);
    uint64_t left = stand_in_calls_left;
    struct outcome outcome;
    stand_in_calls_left = UINT64_MAX;
    uint64_t *d_keys = lent_new(pair, keys, n * sizeof *keys);
    void *rows = lent_new(pair, grads, n * DIM * sizeof *grads);
    stand_in_calls_left = left;
    struct store_pull pull = {.in = lent_keys(d_keys, n), .count = n, .values = rows};
    struct store_change push = {.in = lent_keys(d_keys, n), .grads = rows};
    pull.in.own = push.in.own = &o->sets[0];
    outcome_init(&outcome);
    if (is_push)
        pair->ops->apply(pair->store, &push, &outcome.done);
    else
        pair->ops->pull(pair->store, &pull, &outcome.done);
    lent_await(pair, &outcome);
    lent_free(pair, d_keys);
    lent_free(pair, rows);
    free(grads);
    return outcome.status;
}

/* A push's gradients are zeros: only its step shows, once all keys have rows. */
static void a_call_without_memory_changes_nothing(void **state)
{
    static struct owners o;
    embd_schema schema = counting_schema();
    (void)state;
    owners_open(&o, &schema, 2, 0, 5);
    struct pair *pair = &o.pairs[0];
    uint64_t *keys = owners_draw(&o, LARGE);
    owners_push(&o, keys, LARGE, EMBD_DTYPE_F32);
    for (uint32_t is_push = 0; is_push < 2; is_push++) {
        int status = EMBD_NO_MEMORY;
        for (uint64_t n = 0; status != EMBD_OK; n++) {
            uint64_t step = pair->store->step, bytes = stand_in_bytes;
            pair->store->lookups.n_trusted = 1;
            stand_in_calls_left = n;
            status = call_once(&o, keys, LARGE, is_push);
            stand_in_calls_left = UINT64_MAX;
            assert_true(status == EMBD_OK || status == EMBD_NO_MEMORY);
            assert_int_equal(pair->store->step, step + (is_push && status == EMBD_OK));
            assert_true(status == EMBD_OK || stand_in_bytes <= bytes);
            assert_false(pair->store->failed);
        }
    }
    free(keys);
    owners_close(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whatever_is_written_a_shard_takes_its_own_keys_alone),
        cmocka_unit_test(a_call_without_memory_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
