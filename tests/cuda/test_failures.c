/* test_failures.c - the cuda store when memory runs out, and when the device fails. The stand-in of
 * the device lets the n-th allocation fail, for every n there is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/store/cuda/cuda_store.h"
#include "tests/store/pair.h"
#include "tests/cuda/stand_in_device.h"

enum { N = 6000 };

static embd_schema small_schema(void)
{
    embd_schema s;
    embd_schema_init(&s);
    strcpy(s.name, "small");
    s.dim = 24;
    embd_optimizer_init(&s.optimizer, EMBD_OPTIMIZER_ADAM, 0.01f);
    return s;
}

static void draw(struct batch *batch, uint64_t first)
{
    uint64_t *keys = malloc(N * sizeof *keys);
    for (uint64_t i = 0; i < N; i++)
        keys[i] = first + i;
    batch_of(batch, keys, N);
    free(keys);
}

static int push(struct pair *pair, const struct batch *batch, const float *grads,
                struct outcome *outcome)
{
    struct store_change push = {.in = batch_keys(batch), .grads = grads};
    outcome_init(outcome);
    pair->ops->apply(pair->store, &push, &outcome->done);
    while (outcome->calls == 0)
        pair->ops->collect(pair->store);
    return outcome->status;
}

/* From now on the store notes what changes, as far as there is memory for it. */
static void note_changes(struct pair *pair)
{
    struct embd__error e = {0};
    struct store_cut cut = {.id = 1};
    assert_int_equal(pair->ops->freeze(pair->store, &cut, &e), EMBD_OK);
    pair->ops->thaw(pair->store);
    assert_non_null(pair->store->view.row_sets);
}

static void push_without_memory(embd_update update)
{
    embd_schema schema = small_schema();
    schema.optimizer.update = update;
    struct batch old, new;
    struct pair pair;
    struct outcome outcome;
    float *grads = calloc((size_t)N * 24, sizeof *grads);
    uint32_t n_failed = 0;
    pair_open(&pair, "cuda", &schema, 3);
    draw(&old, 0);
    draw(&new, 1000000);
    pair_push(&pair, &old, EMBD_DTYPE_F32, false);
    note_changes(&pair);
    for (uint64_t n = 0;; n++) {
        stand_in_calls_left = n;
        int status = push(&pair, &new, grads, &outcome);
        stand_in_calls_left = UINT64_MAX;
        if (status == EMBD_OK)
            break;
        assert_int_equal(status, EMBD_NO_MEMORY);
        assert_non_null(strstr(outcome.done.error.text, "memory"));
        pair_compare(&pair);
        n_failed++;
    }
    assert_true(n_failed >= 4);
    struct store_stats stats;
    pair.ops->stats(pair.store, &stats);
    assert_int_equal(stats.rows, 2 * N);
    batch_free(&old);
    batch_free(&new);
    free(grads);
    pair_close(&pair);
    assert_int_equal(stand_in_bytes, 0);
}

static void test_no_memory(void **state)
{
    (void)state;
    push_without_memory(EMBD_UPDATE_LOCAL);
    push_without_memory(EMBD_UPDATE_GLOBAL);
}

/* What is reserved is not asked for again, also while a push is under way. */
static void test_reserved(void **state)
{
    (void)state;
    embd_schema schema = small_schema();
    struct batch old, new;
    struct pair pair;
    struct outcome outcome;
    struct embd__error e = {.status = EMBD_NO_MEMORY};
    float *grads = calloc((size_t)N * 24, sizeof *grads);
    struct store_change first = {.in = {.n_keys = 0}, .grads = grads};
    uint64_t n = 0, keys[2 * N];
    uint8_t statuses[2 * N];
    for (uint64_t i = 0; i < 2 * N; i++)
        keys[i] = 1000000 + i;
    struct store_change whole = {.in = {2 * N, 2 * N, keys, NULL, NULL, NULL}}, some = whole;
    some.statuses = statuses;
    pair_open(&pair, "cuda", &schema, 3);
    draw(&old, 0);
    draw(&new, 1000000);
    pair_push(&pair, &old, EMBD_DTYPE_F32, false);
    first.in = batch_keys(&new);
    for (; e.status == EMBD_NO_MEMORY; n++) {
        e.status = EMBD_OK;
        stand_in_calls_left = n;
        assert_int_equal(pair.ops->prepare(pair.store, &some, STORE_PREPARE_MEMORY, &e), EMBD_OK);
        pair.ops->cancel(pair.store, &some.ticket);
        pair.ops->prepare(pair.store, &whole, STORE_PREPARE_MEMORY, &e);
        stand_in_calls_left = UINT64_MAX;
        pair_compare(&pair);
    }
    assert_int_equal(e.status, EMBD_OK);
    assert_true(n > 3);
    uint64_t capacity = pair.store->capacity, n_buckets = pair.store->view.n_buckets;
    pair.ops->cancel(pair.store, &whole.ticket);
    whole.in.n_keys = whole.in.n_rows = N;
    outcome_init(&outcome);
    pair.ops->apply(pair.store, &first, &outcome.done);
    assert_int_equal(pair.ops->prepare(pair.store, &whole, STORE_PREPARE_MEMORY, &e), EMBD_OK);
    while (outcome.calls == 0)
        pair.ops->collect(pair.store);
    assert_int_equal(outcome.status, EMBD_OK);
    assert_int_equal(model_push(pair.model, &new.in, grads, false, NULL, NULL), EMBD_OK);
    assert_int_equal(pair.store->capacity, capacity);
    assert_int_equal(pair.store->view.n_buckets, n_buckets);
    pair_compare(&pair);
    batch_free(&old);
    batch_free(&new);
    free(grads);
    pair_close(&pair);
    assert_int_equal(stand_in_bytes, 0);
}

static void test_no_memory_to_erase(void **state)
{
    (void)state;
    embd_schema schema = small_schema();
    struct batch batch;
    struct pair pair;
    struct embd__error e = {0};
    uint32_t n_failed = 0;
    pair_open(&pair, "cuda", &schema, 3);
    draw(&batch, 0);
    pair_push(&pair, &batch, EMBD_DTYPE_F32, false);
    note_changes(&pair);
    for (struct store_erase erase = {.in = batch_keys(&batch)}; erase.n_erased == 0;) {
        stand_in_calls_left = n_failed;
        int status = pair.ops->erase(pair.store, &erase, &e);
        stand_in_calls_left = UINT64_MAX;
        if (status == EMBD_OK)
            break;
        assert_int_equal(status, EMBD_NO_MEMORY);
        assert_non_null(strstr(e.text, "memory"));
        pair_compare(&pair);
        n_failed++;
    }
    assert_true(n_failed >= 1);
    model_erase(pair.model, &batch.in, NULL);
    pair_compare(&pair);
    batch_free(&batch);
    pair_close(&pair);
    assert_int_equal(stand_in_bytes, 0);
}

static void test_no_memory_to_read(void **state)
{
    (void)state;
    embd_schema schema = small_schema();
    struct batch batch;
    struct pair pair;
    struct embd__error e = {.status = EMBD_NO_MEMORY};
    uint32_t n_failed = 0;
    pair_open(&pair, "cuda", &schema, 3);
    draw(&batch, 0);
    pair_push(&pair, &batch, EMBD_DTYPE_F32, false);
    struct store_read read = {.in = batch_keys(&batch)};
    read.rows = malloc(read.in.n_keys * schema.dim * sizeof(float));
    read.statuses = malloc(read.in.n_keys);
    for (; e.status != EMBD_OK; n_failed += e.status != EMBD_OK) {
        stand_in_calls_left = n_failed;
        pair.ops->read(pair.store, &read, &e);
        stand_in_calls_left = UINT64_MAX;
        assert_true(e.status == EMBD_OK || e.status == EMBD_NO_MEMORY);
        pair_compare(&pair);
    }
    assert_true(n_failed >= 1);
    free(read.rows);
    free(read.statuses);
    batch_free(&batch);
    pair_close(&pair);
    assert_int_equal(stand_in_bytes, 0);
}

/* Every allocation of a push that evicts comes before any row goes. */
static void test_no_memory_to_evict(void **state)
{
    (void)state;
    embd_schema schema = small_schema();
    struct batch old, new;
    struct pair pair;
    struct outcome outcome;
    float *grads = calloc((size_t)N * 24, sizeof *grads);
    int status = EMBD_NO_MEMORY;
    uint64_t n = 0;
    schema.on_full = EMBD_ON_FULL_EVICT_LFU;
    schema.capacity = N;
    schema.optimizer.update = EMBD_UPDATE_GLOBAL;
    pair_open(&pair, "cuda", &schema, 3);
    draw(&old, 0);
    draw(&new, N / 2);
    pair_push(&pair, &old, EMBD_DTYPE_F32, false);
    note_changes(&pair);
    for (; status == EMBD_NO_MEMORY; n++) {
        stand_in_calls_left = n;
        status = push(&pair, &new, grads, &outcome);
        stand_in_calls_left = UINT64_MAX;
        if (status == EMBD_NO_MEMORY)
            pair_compare(&pair);
    }
    assert_int_equal(status, EMBD_OK);
    assert_true(n >= 5);
    assert_int_equal(model_push(pair.model, &new.in, grads, false, NULL, NULL), EMBD_OK);
    pair_compare(&pair);
    batch_free(&old);
    batch_free(&new);
    free(grads);
    pair_close(&pair);
    assert_int_equal(stand_in_bytes, 0);
}

/* The device has no memory for more than `room` rows: a push that asks for statuses is told so key
 * by key, in the order of the keys, and one that does not changes nothing. */
static void push_beyond(struct pair *pair, uint64_t room, uint32_t n)
{
    struct batch batch;
    struct outcome outcome;
    uint64_t *keys = malloc(n * sizeof *keys);
    float *grads = calloc((size_t)n * 24, sizeof *grads);
    for (uint32_t i = 0; i < n; i++)
        keys[i] = 2000000 + i / 2 * 7;
    batch_of(&batch, keys, n);
    assert_int_equal(push(pair, &batch, grads, &outcome), EMBD_NO_MEMORY);
    pair_compare(pair);
    pair->model->schema.on_full = EMBD_ON_FULL_ERROR;
    pair->model->schema.capacity = room;
    assert_int_equal(pair_push(pair, &batch, EMBD_DTYPE_F32, true), EMBD_OK);
    assert_true(pair->model->n_rows == room);
    pair_compare(pair);
    assert_int_equal(pair_push(pair, &batch, EMBD_DTYPE_F32, true), EMBD_OK);
    assert_int_equal(pair_pull(pair, &batch, EMBD_DTYPE_F32, false, false), EMBD_OK);
    pair_compare(pair);
    pair->model->schema.on_full = EMBD_ON_FULL_GROW;
    batch_free(&batch);
    free(keys);
    free(grads);
}

static void push_new(struct pair *pair, uint64_t first)
{
    struct batch batch;
    draw(&batch, first);
    pair_push(pair, &batch, EMBD_DTYPE_F32, true);
    batch_free(&batch);
}

/* And when there is memory again, it goes on. */
static void grow_again(struct pair *pair)
{
    push_new(pair, 3000000);
    pair_compare(pair);
    assert_true(pair->model->n_rows == pair->store->n_rows && pair->store->n_rows > 2 * N);
    pair_close(pair);
}

static void test_full_rows(void **state)
{
    (void)state;
    embd_schema schema = small_schema();
    struct pair pair;
    pair_open(&pair, "cuda", &schema, 3);
    push_new(&pair, 0);
    stand_in_is_full = true;
    push_beyond(&pair, pair.store->capacity, 1000);
    stand_in_is_full = false;
    grow_again(&pair);
}

static void test_full_entries(void **state)
{
    (void)state;
    embd_schema schema = small_schema();
    struct pair pair;
    pair_open(&pair, "cuda", &schema, 3);
    push_new(&pair, 0);
    stand_in_block_max = 130000; /* less than the entries have */
    assert_true(pair.store->n_entries_max < pair.store->capacity);
    push_beyond(&pair, pair.store->n_entries_max, 500);
    stand_in_block_max = UINT64_MAX;
    grow_again(&pair);
}

/* Rows are worth more than what pulls found. */
static void test_full_of_lookups(void **state)
{
    (void)state;
    embd_schema schema = small_schema();
    struct batch batch;
    struct pair pair;
    pair_open(&pair, "cuda", &schema, 3);
    push_new(&pair, 0);
    pair.store->lookup_keys_min = 1;
    pair.store->lookups.n_trusted = LOOKUPS_MAX;
    draw(&batch, 0);
    pair_pull(&pair, &batch, EMBD_DTYPE_F32, false, false);
    batch_free(&batch);
    assert_true(pair.store->lookups.n > 0);
    stand_in_is_full = true;
    push_beyond(&pair, pair.store->capacity, 1000);
    stand_in_is_full = false;
    assert_int_equal(pair.store->lookups.n, 0);
    grow_again(&pair);
}

/* A push of pulled keys without memory changes nothing, wherever it lacks. */
static void test_no_memory_with_lookups(void **state)
{
    (void)state;
    embd_schema schema = small_schema();
    schema.optimizer.kind = EMBD_OPTIMIZER_ADAM;
    schema.optimizer.update = EMBD_UPDATE_GLOBAL; /* such pushes go alone */
    float *grads = calloc((size_t)N * 24, sizeof *grads);
    struct batch batch;
    struct pair pair;
    struct outcome outcome;
    int status = EMBD_NO_MEMORY;
    pair_open(&pair, "cuda", &schema, 3);
    pair.store->lookup_keys_min = 1;
    draw(&batch, 0);
    pair_push(&pair, &batch, EMBD_DTYPE_F32, false);
    for (uint64_t n = 0; status != EMBD_OK; n++) {
        pair.store->lookups.n_trusted = LOOKUPS_MAX;
        pair_pull(&pair, &batch, EMBD_DTYPE_F32, false, false);
        stand_in_calls_left = n;
        status = push(&pair, &batch, grads, &outcome);
        stand_in_calls_left = UINT64_MAX;
        if (status == EMBD_OK)
            model_push(pair.model, &batch.in, grads, false, NULL, NULL);
        pair_compare(&pair);
    }
    batch_free(&batch);
    free(grads);
    pair_close(&pair);
}

static int read_or_erase(struct pair *pair, const struct batch *batch, bool erases)
{
    struct embd__error e = {0};
    float *rows = calloc((size_t)N * 24, sizeof *rows);
    uint8_t statuses[N];
    struct store_read read = {.in = batch_keys(batch), .rows = rows, .statuses = statuses};
    struct store_erase erase = {.in = read.in};
    int status = erases ? pair->ops->erase(pair->store, &erase, &e)
                        : pair->ops->read(pair->store, &read, &e);
    free(rows);
    return status;
}

/* To whatever lacks memory of the device. */
static void test_lookups_give_way(void **state)
{
    (void)state;
    embd_schema schema = small_schema();
    for (int erases = 0; erases < 2; erases++) {
        struct batch batch;
        struct pair pair;
        bool gave_way = false;
        int status = EMBD_NO_MEMORY;
        pair_open(&pair, "cuda", &schema, 3);
        draw(&batch, 0);
        pair_push(&pair, &batch, EMBD_DTYPE_F32, false);
        pair.store->lookup_keys_min = 1;
        for (uint64_t n = 0; status != EMBD_OK; n++) {
            pair.store->lookups.n_trusted = LOOKUPS_MAX;
            pair_pull(&pair, &batch, EMBD_DTYPE_F32, false, false);
            assert_true(pair.store->lookups.n > 0);
            stand_in_calls_left = n;
            status = read_or_erase(&pair, &batch, erases);
            stand_in_calls_left = UINT64_MAX;
            gave_way = gave_way || (status != EMBD_OK && pair.store->lookups.n == 0);
        }
        assert_true(gave_way);
        batch_free(&batch);
        pair_close(&pair);
        assert_int_equal(stand_in_bytes, 0);
    }
}

/* Nothing filled its lookup in: no push may find it. */
static void test_no_memory_to_pull(void **state)
{
    (void)state;
    embd_schema schema = small_schema();
    struct batch batch;
    struct pair pair;
    struct outcome outcome;
    float *values = calloc((size_t)N * 24, sizeof *values);
    int status = EMBD_NO_MEMORY;
    uint32_t n_failed = 0;
    pair_open(&pair, "cuda", &schema, 3);
    draw(&batch, 0);
    pair_push(&pair, &batch, EMBD_DTYPE_F32, false);
    pair.store->lookup_keys_min = pair.store->window_keys = 1;
    pair.store->window_bytes = 4096; /* such pulls take memory */
    struct store_pull pull = {.in = batch_keys(&batch), .count = N, .values = values};
    for (; status != EMBD_OK; n_failed += status != EMBD_OK) {
        pair.store->lookups.n_trusted = LOOKUPS_MAX;
        stand_in_calls_left = n_failed;
        outcome_init(&outcome);
        pair.ops->pull(pair.store, &pull, &outcome.done);
        while (outcome.calls == 0)
            pair.ops->collect(pair.store);
        stand_in_calls_left = UINT64_MAX;
        status = outcome.status;
        assert_int_equal(pair.store->lookups.n, status == EMBD_OK);
    }
    assert_true(n_failed >= 3);
    pair_push(&pair, &batch, EMBD_DTYPE_F32, false);
    pair_compare(&pair);
    batch_free(&batch);
    free(values);
    pair_close(&pair);
    assert_int_equal(stand_in_bytes, 0);
}

/* Every later call is answered with the first failure, also when the device seems well again. */
static void test_device_fails(void **state)
{
    (void)state;
    embd_schema schema = small_schema();
    struct batch batch;
    struct pair pair;
    struct outcome outcome;
    struct embd__error e = {0};
    struct scanned scanned;
    uint64_t cursor = 0;
    float *grads = calloc((size_t)N * 24, sizeof *grads);
    pair_open(&pair, "cuda", &schema, 3);
    draw(&batch, 0);
    stand_in_failure = 700;
    assert_int_equal(push(&pair, &batch, grads, &outcome), EMBD_INTERNAL);
    stand_in_failure = 0;
    assert_int_equal(push(&pair, &batch, grads, &outcome), EMBD_INTERNAL);
    assert_non_null(strstr(outcome.done.error.text, "device failed"));
    scanned_init(&scanned, &schema, 10, 48);
    assert_int_equal(pair.ops->scan(pair.store, &cursor, 10, &scanned.out, &e), EMBD_INTERNAL);
    scanned_free(&scanned);
    batch_free(&batch);
    free(grads);
    pair_close(&pair);
}

/* Calls made while others are under way take effect in their order; one of a caller that is gone
 * takes effect too. */
static void test_order(void **state)
{
    (void)state;
    embd_schema schema = small_schema();
    struct batch batch;
    struct pair pair;
    struct outcome pushed, forgotten, pulled;
    struct store_stats stats;
    float *grads = calloc((size_t)N * 24, sizeof *grads);
    uint8_t statuses[N];
    pair_open(&pair, "cuda", &schema, 3);
    draw(&batch, 0);
    struct store_change first = {.in = batch_keys(&batch), .grads = grads}, second = first;
    struct store_pull pull = {.in = batch_keys(&batch),
                              .count = N,
                              .values = malloc((size_t)N * 24 * sizeof(float)),
                              .statuses = statuses};
    outcome_init(&pushed);
    outcome_init(&forgotten);
    outcome_init(&pulled);
    pair.ops->apply(pair.store, &first, &pushed.done);
    pair.ops->apply(pair.store, &second, &forgotten.done);
    pair.ops->pull(pair.store, &pull, &pulled.done);
    assert_int_equal(pushed.calls + pulled.calls, 0);
    pair.ops->cancel(pair.store, &second.ticket);
    while (pair.ops->collect(pair.store))
        ;
    assert_int_equal(pushed.calls, 1);
    assert_int_equal(pulled.calls, 1);
    assert_int_equal(forgotten.calls, 0);
    assert_int_equal(first.n_inserted, N);
    for (int i = 0; i < N; i++)
        assert_int_equal(statuses[i], EMBD_KEY_HIT);
    pair.ops->stats(pair.store, &stats);
    assert_int_equal(stats.steps, 2);
    free(pull.values);
    free(grads);
    batch_free(&batch);
    pair_close(&pair);
}

/* ---- small pushes, which go together ---- */

enum { SMALL = 50, PUSHES = 8, OLD = 700 };

struct small {
    struct outcome outcome; /* first: its done comes with it */
    struct batch batch;
    struct store_change push;
    float *grads;
};

/* Half of their keys are new, and in the next push too. */
static void begin_small(struct pair *pair, struct small *pushes)
{
    uint64_t keys[SMALL];
    for (uint32_t i = 0; i < PUSHES; i++) {
        struct small *s = &pushes[i];
        for (uint32_t k = 0; k < SMALL; k++)
            keys[k] = 5000000 + i * SMALL / 2 + k;
        outcome_init(&s->outcome);
        batch_of(&s->batch, keys, SMALL);
        s->grads = malloc((size_t)SMALL * 24 * sizeof *s->grads);
        for (uint32_t k = 0; k < SMALL * 24; k++)
            s->grads[k] = dice_float(&pair->dice);
        s->push = (struct store_change){.in = batch_keys(&s->batch), .grads = s->grads};
        pair->ops->apply(pair->store, &s->push, &s->outcome.done);
    }
}

/* So that there is room for more. */
static void push_old(struct pair *pair)
{
    struct batch old;
    draw(&old, 0);
    old.in.n_keys = old.in.n_rows = OLD;
    pair_push(pair, &old, EMBD_DTYPE_F32, false);
    batch_free(&old);
}

static void free_small(struct small *pushes)
{
    for (uint32_t i = 0; i < PUSHES; i++) {
        batch_free(&pushes[i].batch);
        free(pushes[i].grads);
    }
}

/* Where there is no memory to go together there may be for each alone; what fails changes nothing.
 * Returns how many failed. */
static uint32_t push_small_without_memory(uint64_t n_allocations)
{
    embd_schema schema = small_schema();
    struct small pushes[PUSHES];
    struct pair pair;
    uint32_t n_failed = 0;
    pair_open(&pair, "cuda", &schema, 3);
    push_old(&pair);
    stand_in_calls_left = n_allocations;
    begin_small(&pair, pushes);
    while (pair.ops->collect(pair.store))
        ;
    stand_in_calls_left = UINT64_MAX;
    for (uint32_t i = 0; i < PUSHES; i++) {
        assert_int_equal(pushes[i].outcome.calls, 1);
        if (pushes[i].outcome.status == EMBD_OK)
            model_push(pair.model, &pushes[i].batch.in, pushes[i].grads, false, NULL, NULL);
        else
            assert_int_equal(pushes[i].outcome.status, EMBD_NO_MEMORY);
        n_failed += pushes[i].outcome.status != EMBD_OK;
    }
    pair_compare(&pair);
    free_small(pushes);
    pair_close(&pair);
    assert_int_equal(stand_in_bytes, 0);
    return n_failed;
}

static void test_no_memory_together(void **state)
{
    (void)state;
    uint64_t n = 0;
    assert_int_equal(push_small_without_memory(n++), PUSHES);
    while (push_small_without_memory(n) > 0)
        n++;
    assert_true(n >= 3);
}

/* The device fails while they are under way: each is answered. */
static void test_device_fails_together(void **state)
{
    (void)state;
    embd_schema schema = small_schema();
    struct small pushes[PUSHES];
    struct pair pair;
    pair_open(&pair, "cuda", &schema, 3);
    begin_small(&pair, pushes);
    stand_in_failure = 700;
    while (pair.ops->collect(pair.store))
        ;
    stand_in_failure = 0;
    for (uint32_t i = 0; i < PUSHES; i++) {
        assert_int_equal(pushes[i].outcome.calls, 1);
        assert_int_equal(pushes[i].outcome.status, EMBD_INTERNAL);
    }
    free_small(pushes);
    pair_close(&pair);
    assert_int_equal(stand_in_bytes, 0);
}

/* A push whose caller is gone takes effect, and the answers of those that went with it are right.
 */
static void test_forgotten_together(void **state)
{
    (void)state;
    embd_schema schema = small_schema();
    struct small pushes[PUSHES];
    struct pair pair;
    pair_open(&pair, "cuda", &schema, 3);
    push_old(&pair);
    begin_small(&pair, pushes);
    pair.ops->cancel(pair.store, &pushes[PUSHES / 2].push.ticket);
    while (pair.ops->collect(pair.store))
        ;
    for (uint32_t i = 0; i < PUSHES; i++) {
        struct model_counts counts;
        model_push(pair.model, &pushes[i].batch.in, pushes[i].grads, false, NULL, &counts);
        assert_int_equal(pushes[i].outcome.calls, i != PUSHES / 2);
        assert_int_equal(pushes[i].push.n_inserted, counts.n_inserted);
    }
    pair_compare(&pair);
    free_small(pushes);
    pair_close(&pair);
}

/* All memory of the device is in use, the last of it by a lookup of old keys. */
static void fill_device(struct pair *pair)
{
    struct batch old;
    draw(&old, 0);
    stand_in_bytes_max = UINT64_MAX;
    pair->store->lookups.n_trusted = 1;
    pair->store->lookup_keys_min = N;
    pair_pull(pair, &old, EMBD_DTYPE_F32, false, true);
    assert_int_equal(pair->store->lookups.n, 1);
    stand_in_bytes_max = stand_in_bytes;
    batch_free(&old);
}

/* From where they may batch: keys in device memory do not. */
static void push_few_old(struct pair *pair)
{
    struct batch old;
    draw(&old, 0);
    while (memory_kind(old.in.keys) == MEMORY_DEVICE)
        old.in.keys += 4;
    old.in.n_keys = old.in.n_rows = SMALL;
    pair_push(pair, &old, EMBD_DTYPE_F32, false);
    batch_free(&old);
}

/* Lookups save time; a cut, its copies and a batch of small pushes cannot do without memory. */
static void test_lookups_give_way_further(void **state)
{
    (void)state;
    embd_schema schema = small_schema();
    struct batch old;
    struct pair pair;
    struct embd__error e = {0};
    pair_open(&pair, "cuda", &schema, 3);
    draw(&old, 0);
    for (int turn = 0; turn < 2; turn++) /* the second one creates no rows: small ones may batch */
        pair_push(&pair, &old, EMBD_DTYPE_F32, false);
    batch_free(&old);
    fill_device(&pair);
    push_few_old(&pair);
    assert_non_null(pair.store->batch_block);
    assert_int_equal(pair.store->lookups.n, 0);
    fill_device(&pair);
    assert_int_equal(pair.ops->freeze(pair.store, &(struct store_cut){.id = 0}, &e), EMBD_OK);
    assert_int_equal(pair.store->lookups.n, 0);
    frozen_chunk_bytes = 1;
    fill_device(&pair);
    push_few_old(&pair);
    assert_non_null(pair.store->frozen.first);
    assert_false(pair.store->frozen.first->is_pinned);
    assert_int_equal(pair.store->lookups.n, 0);
    stand_in_bytes_max = UINT64_MAX;
    frozen_chunk_bytes = (uint64_t)64 << 20;
    pair.ops->thaw(pair.store);
    pair_compare(&pair);
    pair_close(&pair);
    assert_int_equal(stand_in_bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_reserved),
        cmocka_unit_test(test_no_memory_to_erase),
        cmocka_unit_test(test_no_memory_to_evict),
        cmocka_unit_test(test_full_rows),
        cmocka_unit_test(test_full_entries),
        cmocka_unit_test(test_device_fails),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_no_memory_together),
        cmocka_unit_test(test_device_fails_together),
        cmocka_unit_test(test_forgotten_together),
        cmocka_unit_test(test_no_memory_to_read),
        cmocka_unit_test(test_no_memory_to_pull),
        cmocka_unit_test(test_lookups_give_way),
        cmocka_unit_test(test_lookups_give_way_further),
        cmocka_unit_test(test_full_of_lookups),
        cmocka_unit_test(test_no_memory_with_lookups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
