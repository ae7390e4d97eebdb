/* test_cut_failures.c - cuts of the cuda store when memory runs out, and when the device fails: a
 * cut that cannot be made says so, one that cannot be kept is given up, and calls never notice. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/store/candidates.h"
#include "server/store/cuda/cuda_store.h"
#include "server/store/cuda/memory.h"
#include "tests/store/image.h"
#include "tests/cuda/stand_in_device.h"

enum { ROWS = 400, DIM = 20 };

static uint64_t pool[2 * ROWS];

/* Rows and candidates. */
static void open_table(struct pair *pair, embd_update update)
{
    embd_schema s;
    struct batch batch;
    embd_schema_init(&s);
    strcpy(s.name, "kept");
    s.dim = DIM;
    s.admit_after = 2;
    embd_optimizer_init(&s.optimizer, EMBD_OPTIMIZER_ADAM, 0.01f);
    s.optimizer.update = update;
    for (uint32_t i = 0; i < 2 * ROWS; i++)
        pool[i] = i * 7;
    pair_open(pair, "cuda", &s, 5);
    store_least_candidates = pair->model->least_candidates = STORE_LEAST_CANDIDATES;
    batch_of(&batch, pool, ROWS);
    pair_push(pair, &batch, EMBD_DTYPE_F32, false);
    pair_push(pair, &batch, EMBD_DTYPE_F32, false);
    batch_free(&batch);
    batch_of(&batch, pool + ROWS, 60);
    pair_push(pair, &batch, EMBD_DTYPE_F32, false);
    batch_free(&batch);
}

static void push_pool(struct pair *pair)
{
    struct batch batch;
    batch_of(&batch, pool, 2 * ROWS);
    pair_push(pair, &batch, EMBD_DTYPE_F32, true);
    batch_free(&batch);
}

static void close_table(struct pair *pair)
{
    pair_compare(pair);
    pair_close(pair);
    assert_int_equal(stand_in_bytes, 0);
}

/* Pinned buffers that are idle, so that nobody gets one without an allocation. */
static struct idle {
    struct idle *next;
    size_t bytes;
} * hoard;

static void take_idle(void)
{
    stand_in_calls_left = 0;
    for (size_t bytes = 4096; bytes <= 1 << 20; bytes *= 2)
        for (struct idle *buffer = buffer_new(bytes); buffer != NULL; buffer = buffer_new(bytes)) {
            *buffer = (struct idle){hoard, bytes};
            hoard = buffer;
        }
    stand_in_calls_left = UINT64_MAX;
}

static void give_idle(void)
{
    while (hoard != NULL) {
        struct idle *buffer = hoard;
        hoard = buffer->next;
        buffer_free(buffer, buffer->bytes);
    }
}

/* Until it was read, or an error. */
static int read_all(struct pair *pair, struct image *image, struct embd__error *e)
{
    struct scanned scanned;
    bool done = false;
    int status = EMBD_OK;
    scanned_init(&scanned, &pair->schema.s, 30, pair->model->state_floats);
    while (!done && status == EMBD_OK) {
        status = pair->ops->scan_frozen(pair->store, 30, &scanned.out, &done, e);
        if (status == EMBD_OK)
            image_add(image, pair, &scanned.out);
    }
    scanned_free(&scanned);
    return status;
}

/* A cut of all rows or, since another one, of what changed. */
static void freeze_without_memory(bool has_all)
{
    struct pair pair;
    struct embd__error e = {0};
    uint64_t n = 0;
    open_table(&pair, EMBD_UPDATE_LOCAL);
    assert_int_equal(pair.ops->freeze(pair.store, &(struct store_cut){.id = 1}, &e), EMBD_OK);
    pair.ops->thaw(pair.store);
    push_pool(&pair);
    struct image expected = scan_all(&pair), read = image_new(&pair);
    for (int status = EMBD_NO_MEMORY; status != EMBD_OK; n++) {
        stand_in_calls_left = n;
        status = pair.ops->freeze(pair.store, &(struct store_cut){.since = has_all ? 0 : 1}, &e);
        stand_in_calls_left = UINT64_MAX;
        if (status == EMBD_OK)
            break;
        assert_int_equal(status, EMBD_NO_MEMORY);
        assert_non_null(strstr(e.text, "table kept: no device memory for a cut"));
        assert_false(pair.store->frozen.is_on);
    }
    assert_true(n >= 1);
    push_pool(&pair);
    assert_int_equal(read_all(&pair, &read, &e), EMBD_OK);
    pair.ops->thaw(pair.store);
    compare_images(&read, &expected);
    close_table(&pair);
}

static void a_cut_that_there_is_no_memory_for_is_refused(void **state)
{
    (void)state;
    freeze_without_memory(true);
    freeze_without_memory(false);
}

/* A push with so many allocations; whether the cut was given up. *has_failed: the push was refused.
 */
static bool push_without_memory(embd_update update, uint64_t n_allocations, bool *has_failed)
{
    struct pair pair;
    struct batch batch;
    struct embd__error e = {0};
    struct outcome outcome;
    float *grads = calloc(2 * ROWS * DIM, sizeof *grads);
    open_table(&pair, update);
    struct image expected = scan_all(&pair), read = image_new(&pair);
    assert_int_equal(pair.ops->freeze(pair.store, &(struct store_cut){0}, &e), EMBD_OK);
    batch_of(&batch, pool, 2 * ROWS);
    struct store_change push = {.in = batch_keys(&batch), .grads = grads};
    outcome_init(&outcome);
    take_idle();
    stand_in_calls_left = n_allocations;
    pair.ops->apply(pair.store, &push, &outcome.done);
    while (outcome.calls == 0)
        pair.ops->collect(pair.store);
    stand_in_calls_left = UINT64_MAX;
    give_idle();
    *has_failed = outcome.status != EMBD_OK;
    if (!*has_failed)
        model_push(pair.model, &batch.in, grads, false, NULL, NULL);
    push_pool(&pair);
    int status = read_all(&pair, &read, &e);
    pair.ops->thaw(pair.store);
    if (status == EMBD_OK) {
        compare_images(&read, &expected);
    } else {
        assert_int_equal(status, EMBD_NO_MEMORY);
        assert_non_null(
            strstr(e.text, "table kept: no memory to copy rows that change while a cut is read"));
        free(read.records);
        free(expected.records);
    }
    close_table(&pair);
    batch_free(&batch);
    free(grads);
    return status != EMBD_OK;
}

static void a_push_goes_on_where_rows_cannot_be_kept(void **state)
{
    (void)state;
    for (int update = EMBD_UPDATE_LOCAL; update <= EMBD_UPDATE_GLOBAL; update++) {
        uint32_t n_given_up = 0, n_refused = 0;
        bool has_failed = true, is_given_up = true;
        for (uint64_t n = 0; has_failed || is_given_up; n++) {
            is_given_up = push_without_memory((embd_update)update, n, &has_failed);
            assert_false(has_failed && is_given_up);
            n_given_up += is_given_up;
            n_refused += has_failed;
        }
        assert_true(n_given_up > 0 && n_refused > 0);
    }
}

static void rows_are_kept_in_pinned_memory_where_the_device_has_none(void **state)
{
    (void)state;
    struct pair pair;
    struct embd__error e = {0};
    open_table(&pair, EMBD_UPDATE_LOCAL);
    struct image expected = scan_all(&pair), read = image_new(&pair);
    uint64_t chunk_bytes = frozen_chunk_bytes;
    frozen_chunk_bytes = 1 << 20;
    struct batch batch;
    batch_of(&batch, pool, ROWS);
    stand_in_block_max = 600; /* less than the candidates take */
    assert_int_equal(pair.ops->freeze(pair.store, &(struct store_cut){0}, &e), EMBD_OK);
    stand_in_block_max = 90000; /* less than the rows take, enough for a push of them */
    pair_push(&pair, &batch, EMBD_DTYPE_F32, false);
    stand_in_block_max = UINT64_MAX;
    assert_non_null(pair.store->frozen.first);
    assert_true(pair.store->frozen.first->is_pinned && pair.store->frozen.is_pinned);
    assert_int_equal(read_all(&pair, &read, &e), EMBD_OK);
    pair.ops->thaw(pair.store);
    compare_images(&read, &expected);
    batch_free(&batch);
    close_table(&pair);
    frozen_chunk_bytes = chunk_bytes;
}

static void a_cut_of_a_device_that_failed_ends_with_an_error(void **state)
{
    (void)state;
    struct pair pair;
    struct embd__error e = {0};
    open_table(&pair, EMBD_UPDATE_LOCAL);
    struct image read = image_new(&pair);
    assert_int_equal(pair.ops->freeze(pair.store, &(struct store_cut){0}, &e), EMBD_OK);
    push_pool(&pair);
    stand_in_failure = 700;
    assert_int_equal(read_all(&pair, &read, &e), EMBD_INTERNAL);
    assert_non_null(strstr(e.text, "the device failed copying rows of a cut out"));
    stand_in_failure = 0;
    pair.ops->thaw(pair.store);
    pair_close(&pair);
    free(read.records);
    assert_int_equal(stand_in_bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cut_that_there_is_no_memory_for_is_refused),
        cmocka_unit_test(a_push_goes_on_where_rows_cannot_be_kept),
        cmocka_unit_test(rows_are_kept_in_pinned_memory_where_the_device_has_none),
        cmocka_unit_test(a_cut_of_a_device_that_failed_ends_with_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
