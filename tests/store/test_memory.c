/* test_memory.c - the n-th allocation of a call fails, for every n: the call says so, nothing has
 * changed, and the same call succeeds afterwards. All memory of the host store comes through the
 * functions of memory.h, which the linker puts these in front of. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/store/candidates.h"
#include "server/store/host/memory.h"
#include "tests/store/pair.h"

static uint64_t allowed = UINT64_MAX; /* allocations until one fails */
static int64_t live;

void *__real_memory_new(size_t bytes);
void *__real_memory_reserve(size_t bytes);
bool __real_memory_commit(void *memory, size_t bytes);
void __real_memory_free(void *memory, size_t bytes);
void *__wrap_memory_new(size_t bytes);
void *__wrap_memory_reserve(size_t bytes);
bool __wrap_memory_commit(void *memory, size_t bytes);
void __wrap_memory_free(void *memory, size_t bytes);

static bool may(void)
{
    if (allowed == 0)
        return false;
    allowed--;
    return true;
}

void *__wrap_memory_new(size_t bytes)
{
    void *memory = may() ? __real_memory_new(bytes) : NULL;
    live += memory != NULL;
    return memory;
}

void *__wrap_memory_reserve(size_t bytes)
{
    void *memory = may() ? __real_memory_reserve(bytes) : NULL;
    live += memory != NULL;
    return memory;
}

bool __wrap_memory_commit(void *memory, size_t bytes)
{
    return may() && __real_memory_commit(memory, bytes);
}

void __wrap_memory_free(void *memory, size_t bytes)
{
    live -= memory != NULL;
    __real_memory_free(memory, bytes);
}

static embd_schema schema_of(uint32_t dim)
{
    embd_schema s;
    embd_schema_init(&s);
    strcpy(s.name, "tight");
    s.dim = dim;
    embd_optimizer_init(&s.optimizer, EMBD_OPTIMIZER_ADAGRAD, 0.1f);
    return s;
}

static void test_open(void **state)
{
    (void)state;
    static const uint64_t slot_sizes[] = {3, 4};
    embd_schema s = schema_of(8);
    s.capacity = 300000;
    s.slots = 2;
    s.slot_sizes = slot_sizes;
    s.initializer.kind = EMBD_INITIALIZER_UNIFORM_SLOT;
    struct table_schema schema;
    struct embd__error e = {0};
    assert_int_equal(embd__schema_copy(&schema, &s, &e), EMBD_OK);
    for (uint64_t n = 0;; n++) {
        struct store *store = (struct store *)&store;
        e.status = EMBD_OK;
        allowed = n;
        int status = store_host.open(&schema, &store, &e);
        allowed = UINT64_MAX;
        if (status == EMBD_OK) {
            store_host.close(store);
            assert_int_equal(live, 0);
            assert_true(n > 10);
            break;
        }
        assert_int_equal(status, EMBD_NO_MEMORY);
        assert_null(store);
        assert_int_equal(live, 0);
    }
    embd__schema_fini(&schema);
}

static void test_capacity_beyond_the_machine(void **state)
{
    (void)state;
    embd_schema s = schema_of(8);
    s.capacity = UINT64_MAX;
    struct table_schema schema;
    struct store *store;
    struct embd__error e = {0};
    assert_int_equal(embd__schema_copy(&schema, &s, &e), EMBD_OK);
    assert_int_equal(store_host.open(&schema, &store, &e), EMBD_NO_MEMORY);
    assert_non_null(strstr(e.text, "18446744073709551615"));
    assert_int_equal(live, 0);
    embd__schema_fini(&schema);
}

/* The push, or first what takes all that it may fail of: after that it has no memory to ask for. */
static void push_once(const struct pair *pair, struct store_change *push, bool is_prepared,
                      struct outcome *outcome)
{
    outcome_init(outcome);
    outcome->done.error.status = EMBD_OK;
    if (is_prepared) {
        outcome->status =
            pair->ops->prepare(pair->store, push, STORE_PREPARE_OUTCOME, &outcome->done.error);
        allowed = 0;
    }
    if (is_prepared && outcome->status != EMBD_OK)
        return;
    pair->ops->apply(pair->store, push, &outcome->done);
    while (outcome->calls == 0) /* it is applied in slices */
        pair->ops->collect(pair->store);
}

/* Fails every allocation of a push in turn; the push that succeeds is the model's too. Returns the
 * failures. */
static int push_failing(struct pair *pair, const struct batch *batch, bool is_prepared)
{
    uint32_t n = batch->in.n_rows * pair->schema.s.dim;
    float *grads = malloc(n * sizeof *grads);
    for (uint32_t i = 0; i < n; i++)
        grads[i] = dice_float(&pair->dice);
    for (int failures = 0;; failures++) {
        struct store_change push = {.in = batch_keys(batch), .grads = grads};
        struct outcome outcome;
        allowed = (uint64_t)failures;
        push_once(pair, &push, is_prepared, &outcome);
        allowed = UINT64_MAX;
        if (outcome.status == EMBD_OK) {
            assert_int_equal(model_push(pair->model, &batch->in, grads, false, NULL, NULL),
                             EMBD_OK);
            free(grads);
            return failures;
        }
        assert_int_equal(outcome.status, EMBD_NO_MEMORY);
        assert_int_not_equal(outcome.done.error.text[0], 0);
        pair_compare(pair);
    }
}

static void keys_from(uint64_t *keys, uint32_t n, uint64_t first)
{
    for (uint32_t i = 0; i < n; i++)
        keys[i] = first + i;
}

static void test_push(void **state)
{
    (void)state;
    enum { N = 2000 };
    embd_schema schema = schema_of(40);
    struct pair pair;
    struct batch batch;
    uint64_t keys[N];
    pair_open(&pair, "host", &schema, 3);
    int failures = 0;
    for (uint64_t first = 0; first < 12000; first += N) {
        keys_from(keys, N, first);
        batch_of(&batch, keys, N);
        failures += push_failing(&pair, &batch, first / N % 2 == 1);
        batch_free(&batch);
    }
    assert_true(failures >= 11);
    pair_compare(&pair);
    pair_close(&pair);
    assert_int_equal(live, 0);
}

/* Keys that go, rows that all step, and those of an earlier large push: none asks for more when it
 * is prepared. */
static void test_prepared(void **state)
{
    (void)state;
    enum { N = 3000 };
    static const embd_on_full on_full[] = {EMBD_ON_FULL_GROW, EMBD_ON_FULL_EVICT_LRU,
                                           EMBD_ON_FULL_EVICT_LFU};
    uint64_t keys[N];
    for (int i = 0; i < 3; i++) {
        struct pair pair;
        struct batch batch;
        embd_schema schema = schema_of(4);
        int failures = 0;
        schema.on_full = on_full[i];
        schema.capacity = on_full[i] == EMBD_ON_FULL_GROW ? 0 : N + N / 2;
        if (on_full[i] == EMBD_ON_FULL_EVICT_LFU) {
            embd_optimizer_init(&schema.optimizer, EMBD_OPTIMIZER_ADAM, 0.1f);
            schema.optimizer.update = EMBD_UPDATE_GLOBAL;
        }
        pair_open(&pair, "host", &schema, 3);
        for (uint64_t first = 0; first < 3 * N; first += N) {
            keys_from(keys, N, first);
            batch_of(&batch, keys, N);
            failures += push_failing(&pair, &batch, true);
            batch_free(&batch);
        }
        assert_true(failures > 6);
        pair_compare(&pair);
        pair_close(&pair);
        assert_int_equal(live, 0);
    }
}

/* What is reserved is there: a push whose keys were merged before finds no reason to ask. */
static void test_reserved(void **state)
{
    (void)state;
    enum { N = 40000 };
    embd_schema schema = schema_of(4);
    struct pair pair;
    struct batch batch;
    uint64_t *keys = malloc(N * sizeof *keys), failures = 0;
    struct embd__error e = {.status = EMBD_NO_MEMORY};
    keys_from(keys, N, 0);
    batch_of(&batch, keys, N);
    struct store_change push = {.in = batch_keys(&batch)};
    pair_open(&pair, "host", &schema, 3);
    for (; e.status == EMBD_NO_MEMORY; failures++) {
        e.status = EMBD_OK;
        allowed = failures;
        pair.ops->prepare(pair.store, &push, STORE_PREPARE_MEMORY, &e);
        allowed = UINT64_MAX;
        pair_compare(&pair);
    }
    assert_int_equal(e.status, EMBD_OK);
    assert_true(failures > 4);
    allowed = 0;
    assert_int_equal(pair.ops->prepare(pair.store, &push, STORE_PREPARE_MEMORY, &e), EMBD_OK);
    allowed = UINT64_MAX;
    pair_close(&pair); /* which has merged them already, where it lacked memory */
    pair_open(&pair, "host", &schema, 3);
    push.ticket = (struct store_ticket){0};
    assert_int_equal(pair.ops->prepare(pair.store, &push, STORE_PREPARE_MEMORY, &e), EMBD_OK);
    assert_int_equal(push_failing(&pair, &batch, false), 5); /* what merges them in slices */
    pair_compare(&pair);
    batch_free(&batch);
    free(keys);
    pair_close(&pair);
    assert_int_equal(live, 0);
}

/* A table just below the load at which its segment has to split, filled without the model for
 * speed, and with no memory to split it ahead. */
static void test_split(void **state)
{
    (void)state;
    enum { N = 104700, MORE = 200 };
    embd_schema schema = schema_of(1);
    struct pair pair;
    struct batch batch;
    struct embd__error e = {0};
    pair_open(&pair, "host", &schema, 5);
    uint64_t *keys = malloc(N * sizeof *keys);
    float *values = calloc(N, sizeof *values);
    keys_from(keys, N, 0);
    struct row_block block = {.n_rows = N, .keys = keys, .rows = values, .states = values};
    for (uint64_t n = 0;; n++) {
        allowed = n;
        e.status = EMBD_OK;
        int status = pair.ops->load(pair.store, &block, &e);
        allowed = UINT64_MAX;
        if (status == EMBD_OK)
            break;
        assert_int_equal(status, EMBD_NO_MEMORY);
        pair_compare(&pair);
    }
    for (uint32_t i = 0; i < N; i++)
        model_set_row(pair.model, keys[i], 0, values, values);
    keys_from(keys, MORE, N);
    batch_of(&batch, keys, MORE);
    assert_true(push_failing(&pair, &batch, false) >=
                4); /* a new directory and a segment among them */
    pair_compare(&pair);
    batch_free(&batch);
    free(keys);
    free(values);
    pair_close(&pair);
    assert_int_equal(live, 0);
}

/* An erase asks for memory, and does without: with and without statuses, of keys that occur twice
 * or have no row. */
static void test_erase(void **state)
{
    (void)state;
    enum { N = 3000 };
    uint64_t *keys = malloc(2 * N * sizeof *keys);
    for (uint32_t wants = 0; wants < 2; wants++) {
        embd_schema schema = schema_of(2);
        struct pair pair;
        struct batch batch;
        schema.admit_after = 2;
        schema.on_full = EMBD_ON_FULL_EVICT_LRU;
        schema.capacity = 2 * N;
        pair_open(&pair, "host", &schema, 7);
        store_least_candidates = pair.model->least_candidates = STORE_LEAST_CANDIDATES;
        for (uint32_t turn = 0; turn < 6; turn++) {
            keys_from(keys, N, turn / 2 * N);
            batch_of(&batch, keys, N);
            pair_push(&pair, &batch, EMBD_DTYPE_F32, false);
            batch_free(&batch);
        }
        assert_true(pair.model->n_rows == 2 * N);
        for (uint32_t i = 0; i < 2 * N; i++)
            keys[i] = dice_below(&pair.dice, 4 * N);
        batch_of(&batch, keys, 2 * N);
        allowed = 0;
        pair_erase(&pair, &batch, wants > 0);
        allowed = UINT64_MAX;
        pair_compare(&pair);
        pair_erase(&pair, &batch, wants > 0);
        pair_push(&pair, &batch, EMBD_DTYPE_F32, true);
        pair_push(&pair, &batch, EMBD_DTYPE_F32, true);
        pair_compare(&pair);
        batch_free(&batch);
        pair_close(&pair);
    }
    free(keys);
    assert_int_equal(live, 0);
}

/* A large request's memory does not stay. */
static void test_large_request(void **state)
{
    (void)state;
    enum { N = 300000 };
    embd_schema schema = schema_of(1);
    struct pair pair;
    struct store_stats before, after;
    pair_open(&pair, "host", &schema, 5);
    pair.ops->stats(pair.store, &before);
    uint64_t *keys = calloc(N, sizeof *keys);
    float *grads = calloc(N, sizeof *grads);
    struct store_change push = {.in = {.n_keys = N, .n_rows = N, .keys = keys}, .grads = grads};
    struct outcome outcome;
    outcome_init(&outcome);
    pair.ops->apply(pair.store, &push, &outcome.done);
    while (outcome.calls == 0)
        pair.ops->collect(pair.store);
    assert_int_equal(outcome.status, EMBD_OK);
    pair.ops->stats(pair.store, &after);
    assert_int_equal(after.rows, 1);
    assert_true(after.index_bytes < before.index_bytes + 4096);
    free(keys);
    free(grads);
    pair_close(&pair);
}

/* Pages of this process that are in memory, in bytes. */
static uint64_t resident(void)
{
    unsigned long long all = 0, pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%llu %llu", &all, &pages), 2);
    fclose(f);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* New keys in pushes of 65,536: after each the table takes their rows, 24 bytes a key, and 12 MiB
 * for the request and for pages that are not full. */
static void test_bytes_of_a_table(void **state)
{
    (void)state;
    enum { N = 65536, PUSHES = 20, DIM = 16, SLACK = 12 << 20 };
    embd_schema s = schema_of(DIM);
    embd_optimizer_init(&s.optimizer, EMBD_OPTIMIZER_SGD, 0.1f);
    struct table_schema schema;
    struct store *store;
    struct store_stats stats;
    struct outcome outcome;
    assert_int_equal(embd__schema_copy(&schema, &s, &outcome.done.error), EMBD_OK);
    uint64_t *keys = calloc(N, sizeof *keys);
    float *grads = calloc((size_t)N * DIM, sizeof *grads);
    memset(grads, 1, (size_t)N * DIM * sizeof *grads);
    uint64_t before = resident();
    assert_int_equal(store_host.open(&schema, &store, &outcome.done.error), EMBD_OK);
    for (uint64_t n = 0; n < (uint64_t)N * PUSHES;) {
        for (uint32_t i = 0; i < N; i++)
            keys[i] = n++;
        struct store_change push = {.in = {.n_keys = N, .n_rows = N, .keys = keys}, .grads = grads};
        outcome_init(&outcome);
        store_host.apply(store, &push, &outcome.done);
        while (store_host.collect(store)) /* other tests have it applied in slices */
            ;
        assert_int_equal(outcome.status, EMBD_OK);
        store_host.stats(store, &stats);
        assert_true(stats.memory_bytes <= n * (4 * DIM + 24) + SLACK / 2);
#ifndef __SANITIZE_ADDRESS__
        assert_true(resident() - before <= n * (4 * DIM + 24) + SLACK);
#else
        (void)before;
#endif
    }
    store_host.close(store);
    embd__schema_fini(&schema);
    free(keys);
    free(grads);
    assert_int_equal(live, 0);
}

static bool is_mapped(void *page)
{
    unsigned char is_in_memory;
    return mincore(page, 1, &is_in_memory) == 0;
}

static void test_buffers(void **state)
{
    (void)state;
    static const size_t sizes[] = {
        0, 1, 63, 64, 4096, (2u << 20) - 1, 2u << 20, (2u << 20) + 1, 64u << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint8_t *buffer = store_host.buffer_new(sizes[i]);
        assert_non_null(buffer);
        assert_int_equal((uintptr_t)buffer % 64, 0);
        memset(buffer, 1, sizes[i]);
        store_host.buffer_free(buffer, sizes[i]);
        assert_true(sizes[i] < MEMORY_HUGE_PAGE || !is_mapped(buffer));
    }
    assert_null(store_host.buffer_new(SIZE_MAX));
    assert_null(store_host.buffer_new((size_t)1 << 60));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_capacity_beyond_the_machine),
        cmocka_unit_test(test_push),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_prepared),
        cmocka_unit_test(test_reserved),
        cmocka_unit_test(test_erase),
        cmocka_unit_test(test_large_request),
        cmocka_unit_test(test_bytes_of_a_table),
        {"S2.2 S3.12 buffers come from the store and go back to it", test_buffers, NULL, NULL,
         NULL},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
