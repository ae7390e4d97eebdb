/* test_own.c - calls in lent memory of which each shard takes the keys of its set: the bits, counts
 * and rows are those of ordinary calls with these keys alone, and rows of other keys stay as they
 * were. Runs under the emulator, and on a device. */
#include "tests/cuda/own_pair.h"

#include <stdlib.h>
#include <string.h>

enum { TURNS = 25, ROWS_MAX = 120, LARGE = 4600 };

static embd_schema schema_of(uint32_t number)
{
    static const uint32_t dims[] = {1, 3, 4, 7, 16, 32, 64, 65};
    embd_schema s;
    embd_schema_init(&s);
    strcpy(s.name, "own");
    s.dim = dims[number % (sizeof dims / sizeof dims[0])];
    s.dtype = pair_dtypes[number % PAIR_DTYPES];
    embd_optimizer_init(&s.optimizer, (embd_optimizer_kind)(number % (EMBD_OPTIMIZER_FTRL + 1)),
                        0.05f);
    s.optimizer.update =
        number % 7 == 6 && !model_has_codes(s.dtype) ? EMBD_UPDATE_GLOBAL : EMBD_UPDATE_LOCAL;
    s.admit_after = number % 3;
    if (number % 4 == 3) {
        s.on_full = number % 8 == 7 ? EMBD_ON_FULL_EVICT_LRU : EMBD_ON_FULL_ERROR;
        s.capacity = 60;
    }
    return s;
}

static void begin(struct owners *o, uint32_t number)
{
    static const uint32_t residues[] = {0, 0, 1, 2, 7, 1023, 1024};
    embd_schema schema = schema_of(number);
    uint32_t n_residues = residues[number % (sizeof residues / sizeof residues[0])];
    owners_open(o, &schema, 1 + number % OWN_SHARDS, n_residues, number + 1);
    for (uint32_t s = 0; s < o->n_shards; s++) {
        struct store *store = o->pairs[s].store;
        store->lookup_keys_min = 20; /* pulls are kept for pushes of their keys */
        if (number % 2) {            /* rows are read window by window */
            store->window_bytes = 1000;
            store->window_keys = 10;
        }
    }
}

static void one_turn(struct owners *o)
{
    uint32_t n = dice_below(&o->dice, ROWS_MAX), what = dice_below(&o->dice, 8);
    embd_dtype wire = (embd_dtype)dice_below(&o->dice, EMBD_DTYPE_BF16 + 1);
    uint64_t *keys = owners_draw(o, n);
    if (what < 5)
        owners_pull(o, keys, n, wire, what == 0);
    if (what == 1)
        owners_push_plain(o, keys, n, wire); /* the ways of the host's memory lie between */
    else if (what == 5)
        owners_insert(o, keys, n);
    else if (what > 1)
        owners_push(o, keys, n, wire);
    if (what == 4 || what == 6)
        owners_pull(o, keys, n, wire, false);
    free(keys);
}

static void each_shard_does_what_its_own_keys_alone_would(void **state)
{
    (void)state;
    for (uint32_t number = 0; number < 40; number++) {
        static struct owners o;
        begin(&o, number);
        for (int turn = 0; turn < TURNS; turn++)
            one_turn(&o);
        owners_compare(&o);
        owners_close(&o);
    }
}

/* More keys than go in one launch; of most of them pulls are kept for pushes. is_light: their rows
 * are of no rule that needs a plan. */
static void run_large(uint32_t number, bool is_light)
{
    static struct owners o;
    uint64_t n_used = 0, n_whole = 0;
    begin(&o, number);
    uint64_t *keys = owners_draw(&o, LARGE);
    for (int turn = 0; turn < 5; turn++) {
        if (turn == 3) /* another one of the same number of keys */
            keys[LARGE / 2] = o.pool[turn];
        if (turn != 1)
            owners_pull(&o, keys, LARGE, EMBD_DTYPE_F32, turn == 2);
        owners_push(&o, keys, LARGE, turn % 2 ? EMBD_DTYPE_BF16 : EMBD_DTYPE_F32);
    }
    owners_compare(&o);
    for (uint32_t s = 0; s < o.n_shards; s++) {
        n_used += o.pairs[s].store->lookups.n_used;
        n_whole += o.pairs[s].store->n_whole;
    }
    if (is_light)
        assert_true(n_used > 0 && n_whole > 0);
    free(keys);
    owners_close(&o);
}

static void large_batches(void **state)
{
    (void)state;
    for (uint32_t number = 0; number < 12; number++)
        run_large(number, number < 3 || number == 10);
}

static void take_place(struct owners *o, uint32_t place)
{
    o->of_place[place] = 0;
    o->of_place[1 - place] = OWN_NOBODY;
    o->sets[0].words[0] = 1u << place;
}

/* A lookup is of a set: nothing is found by it for the other half of the same keys. */
static void a_pull_of_one_set_is_no_lookup_for_another(void **state)
{
    static struct owners o;
    embd_schema schema = schema_of(10);
    (void)state;
    schema.admit_after = 0;
    owners_open(&o, &schema, 1, 2, 5);
    uint64_t *keys = owners_draw(&o, LARGE);
    for (uint32_t turn = 0; turn < 10; turn++) {
        uint64_t n_used = o.pairs[0].store->lookups.n_used;
        bool is_other = turn > 5;
        take_place(&o, turn % 2);
        owners_pull(&o, keys, LARGE, EMBD_DTYPE_F32, false);
        take_place(&o, is_other ? 1 - turn % 2 : turn % 2);
        owners_push(&o, keys, LARGE, EMBD_DTYPE_F32);
        pair_compare(&o.pairs[0]);
        if (turn == 0) { /* the keys of the other half have rows, too */
            take_place(&o, 1);
            owners_push_plain(&o, keys, LARGE, EMBD_DTYPE_F32);
        }
        if (turn > 1)
            assert_true(is_other || o.pairs[0].store->lookups.n_used == n_used + 1);
    }
    free(keys);
    owners_close(&o);
}

/* It does not forget the candidates that are too many, as one with keys does. */
static void a_push_of_other_keys_alone_is_one_without_keys(void **state)
{
    static struct owners o;
    enum { KEYS = 50 };
    uint64_t keys[KEYS];
    embd_schema schema = schema_of(1);
    (void)state;
    schema.admit_after = 2;
    for (uint32_t is_insert = 0; is_insert < 2; is_insert++) {
        owners_open(&o, &schema, 1, 2, 5);
        take_place(&o, 0);
        for (uint32_t turn = 0; turn < 4; turn++) {
            for (uint64_t i = 0; i < KEYS; i++)
                keys[i] = i * 2 + turn % 2; /* the shard's in the first turn */
            if (is_insert && turn == 1)
                owners_insert(&o, keys, KEYS);
            owners_push(&o, keys, KEYS, EMBD_DTYPE_F32);
            pair_compare(&o.pairs[0]);
        }
        assert_true(o.pairs[0].model->lost.forgotten == KEYS); /* in the third turn */
        owners_close(&o);
    }
}

/* ---- gradients that are not finite ---- */

static void push_bad(struct owners *o, const uint64_t *keys, uint32_t n, uint32_t at)
{
    enum { DIM = 3 };
    struct pair *pair = &o->pairs[0];
    float *grads = calloc(n * DIM, sizeof *grads);
    uint64_t *d_keys = lent_new(pair, keys, n * sizeof *keys);
    struct outcome outcome;
    char named[32];
    memset(&grads[at], 0xff, sizeof *grads);
    void *d_grads = lent_new(pair, grads, n * DIM * sizeof *grads);
    struct store_change push = {.in = lent_keys(d_keys, n), .grads = d_grads};
    push.in.own = &o->sets[0];
    outcome_init(&outcome);
    pair->ops->apply(pair->store, &push, &outcome.done);
    lent_await(pair, &outcome);
    bool is_own = owner_of(o, keys[at / DIM]) == 0;
    assert_int_equal(outcome.status, is_own ? EMBD_NOT_FINITE : EMBD_OK);
    snprintf(named, sizeof named, "row %u, column %u ", at / 4 * 4 / DIM, at / 4 * 4 % DIM);
    if (is_own)
        assert_non_null(strstr(outcome.done.error.text, named));
    lent_free(pair, d_grads);
    lent_free(pair, d_keys);
    free(grads);
}

static void a_gradient_counts_where_its_key_takes_part(void **state)
{
    static struct owners o;
    embd_schema schema = schema_of(0);
    (void)state;
    schema.dim = 3;
    schema.dtype = EMBD_DTYPE_F32;
    owners_open(&o, &schema, 1, 7, 3);
    for (uint32_t p = 0; p < 7; p++)
        o.of_place[p] = p % 2 ? 0 : OWN_NOBODY;
    o.sets[0].words[0] = 0x2a;
    uint64_t *keys = owners_draw(&o, 40);
    struct pair *pair = &o.pairs[0];
    for (uint32_t at = 0; at < 120; at++) {
        uint64_t step = pair->store->step;
        bool is_own = owner_of(&o, keys[at / 3]) == 0;
        push_bad(&o, keys, 40, at);
        assert_int_equal(pair->store->step, step + !is_own);
    }
    free(keys);
    owners_close(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_shard_does_what_its_own_keys_alone_would),
        cmocka_unit_test(large_batches),
        cmocka_unit_test(a_pull_of_one_set_is_no_lookup_for_another),
        cmocka_unit_test(a_push_of_other_keys_alone_is_one_without_keys),
        cmocka_unit_test(a_gradient_counts_where_its_key_takes_part),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
