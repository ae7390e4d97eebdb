/* test_batch_push.c - many small pushes at once against the model, which has them one after the
 * other: every rule and type, the same keys in several pushes, new ones, keys that are filtered,
 * refused and evict others, with pulls and inserts among them. What each answers is compared when
 * it ends, its step too; rows and states when all have. Runs under the emulator, and on a device.
 * Argument: n to run only every n-th case. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/convert.h"
#include "server/store/candidates.h"
#include "server/store/cuda/cuda_store.h"
#include "tests/store/pair.h"

enum { CALLS = 40, TURNS = 3, POOL = 300, SAME = 16 };

static uint32_t every = 1;
static uint32_t
    n_together; /* pushes that were told their end while others that ended with them were not */

enum what { PUSH, PULL, INSERT };

/* A call that waits, beside what the model answers. */
struct waiting {
    struct store_done done;
    struct pair *pair;
    enum what what;
    struct batch batch;
    struct store_change push;
    struct store_pull pull;
    struct store_change insert;
    void *values; /* gradients, or what is pulled; */
    float *expected;
    size_t values_bytes;
    bool is_pinned;
    uint8_t *statuses, *expected_statuses;
    struct model_counts counts;
    int expected_status;
    uint64_t step;
    uint32_t calls;
};

/* ---- arrays ---- */

/* A copy where the host can read it: the stand-in takes some addresses for the device's. */
static void *moved(void *from, size_t bytes)
{
    void *rejected[20], *to = from;
    int n = 0;
    while (from != NULL && memory_kind(to) == MEMORY_DEVICE && n < 20) {
        rejected[n++] = to;
        to = malloc(bytes + 1);
        memcpy(to, from, bytes);
    }
    while (n > 0)
        free(rejected[--n]);
    return to;
}

static void move_batch(struct batch *batch)
{
    struct model_batch *in = &batch->in;
    bool has_offsets = in->offsets != NULL;
    batch->keys = moved(batch->keys, in->n_keys * sizeof *batch->keys);
    batch->offsets = moved(batch->offsets, (in->n_rows + 1) * sizeof *batch->offsets);
    batch->slots = moved(batch->slots, in->n_rows * sizeof *batch->slots);
    batch->weights = moved(batch->weights, in->n_keys * sizeof *batch->weights);
    in->keys = batch->keys;
    in->offsets = has_offsets ? batch->offsets : NULL;
    in->slots = batch->slots;
    in->weights = batch->weights;
}

static void draw_gradients(struct waiting *w, embd_dtype wire)
{
    size_t n = (size_t)w->batch.in.n_rows * w->pair->schema.s.dim;
    for (size_t i = 0; i < n; i++)
        w->expected[i] = model_round(dice_float(&w->pair->dice) * 1.3f, wire);
    embd__from_f32(w->values, wire, w->expected, n);
}

/* ---- what ends ---- */

static void check_counts(const struct waiting *w, uint32_t inserted, uint32_t full,
                         uint32_t filtered, uint32_t evicted)
{
    assert_int_equal(inserted, w->counts.n_inserted);
    assert_int_equal(full, w->counts.n_full);
    assert_int_equal(filtered, w->counts.n_filtered);
    assert_int_equal(evicted, w->counts.n_evicted);
}

static void check_push(const struct waiting *w)
{
    struct store_stats stats;
    w->pair->ops->stats(w->pair->store, &stats);
    assert_int_equal(stats.steps, w->step);
    n_together += w->pair->store->n_unreported > 0;
    if (w->expected_status == EMBD_OK)
        check_counts(w, w->push.n_inserted, w->push.n_full, w->push.n_filtered, w->push.n_evicted);
}

static void on_ended(struct store_done *done, int status)
{
    struct waiting *w = (struct waiting *)done;
    w->calls++;
    assert_int_equal(status, w->expected_status);
    if (w->what == PUSH)
        check_push(w);
    else if (w->what == PULL)
        assert_memory_equal(w->values, w->expected, w->values_bytes);
    else if (status == EMBD_OK)
        check_counts(w, w->insert.n_inserted, w->insert.n_full, w->insert.n_filtered,
                     w->insert.n_evicted);
    if (w->statuses)
        assert_memory_equal(w->statuses, w->expected_statuses, w->batch.in.n_keys);
}

/* ---- what begins ---- */

static void begin_push(struct waiting *w, embd_dtype wire)
{
    struct pair *pair = w->pair;
    draw_gradients(w, wire);
    w->batch.in.scores = w->batch.scores = pair_draw_scores(pair, w->batch.in.n_keys);
    w->push = (struct store_change){
        .in = batch_keys(&w->batch), .dtype = wire, .grads = w->values, .statuses = w->statuses};
    w->push.lr = pair->model->lr = pair_draw_lr(pair);
    w->expected_status = model_push(pair->model, &w->batch.in, w->expected, false,
                                    w->statuses ? w->expected_statuses : NULL, &w->counts);
    pair->model->lr = 0;
    w->step = pair->model->step;
    pair->ops->apply(pair->store, &w->push, &w->done);
}

static void begin_pull(struct waiting *w)
{
    struct pair *pair = w->pair;
    w->pull = (struct store_pull){.in = batch_keys(&w->batch),
                                  .count = w->batch.in.n_rows,
                                  .values = w->values,
                                  .statuses = w->statuses};
    model_pull(pair->model, &w->batch.in, false, false, w->expected, w->expected_statuses);
    pair->ops->pull(pair->store, &w->pull, &w->done);
}

static void begin_insert(struct waiting *w)
{
    struct pair *pair = w->pair;
    w->insert = (struct store_change){
        .kind = STORE_INSERT, .in = batch_keys(&w->batch), .statuses = w->statuses};
    w->expected_status = model_insert(pair->model, &w->batch.in,
                                      w->statuses ? w->expected_statuses : NULL, &w->counts);
    pair->ops->apply(pair->store, &w->insert, &w->done);
}

/* Rows of up to three keys or of one; now and then one key very often. */
static void draw(struct waiting *w, bool is_raw, bool weights)
{
    struct pair *pair = w->pair;
    uint32_t n_pool = pair->n_pool;
    bool is_long = dice_below(&pair->dice, 30) == 0;
    pair->n_pool = is_long ? 2 : n_pool;
    batch_draw(pair, &w->batch, is_long ? 700 : dice_below(&pair->dice, 25), 3, is_raw, weights);
    pair->n_pool = n_pool;
    move_batch(&w->batch);
}

static void begin_call(struct pair *pair, struct waiting *w, embd_dtype wire, bool weights)
{
    uint32_t dice = dice_below(&pair->dice, 24);
    *w = (struct waiting){.done.fn = on_ended, .pair = pair};
    w->what = dice == 0 ? PULL : dice == 1 ? INSERT : PUSH;
    draw(w, pair->schema.s.combiner == EMBD_COMBINER_CONCAT, weights);
    size_t n = (size_t)w->batch.in.n_rows * pair->schema.s.dim;
    w->values_bytes = n * (w->what == PUSH ? embd__dtype_bytes(wire) : sizeof(float));
    w->is_pinned = dice_below(&pair->dice, 2);
    w->values = w->is_pinned ? pair->ops->buffer_new(w->values_bytes) : malloc(w->values_bytes + 1);
    w->expected = malloc(n * sizeof(float) + 1);
    w->expected_statuses = malloc(w->batch.in.n_keys + 1);
    w->statuses = dice_below(&pair->dice, 2) ? malloc(w->batch.in.n_keys + 1) : NULL;
    if (w->what == PUSH)
        begin_push(w, wire);
    else if (w->what == PULL)
        begin_pull(w);
    else
        begin_insert(w);
}

static void end_call(struct waiting *w)
{
    assert_int_equal(w->calls, 1);
    if (w->is_pinned)
        w->pair->ops->buffer_free(w->values, w->values_bytes);
    else
        free(w->values);
    free(w->expected);
    free(w->expected_statuses);
    free(w->statuses);
    batch_free(&w->batch);
}

static void run_turns(struct pair *pair, embd_dtype wire, bool weights)
{
    struct waiting *calls = calloc(CALLS, sizeof *calls);
    uint64_t pool[POOL];
    for (uint32_t i = 0; i < POOL; i++)
        pool[i] = dice_next(&pair->dice) >> i % 2 * 50;
    pair->pool = pool;
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        pair->n_pool = POOL * (turn + 1) / TURNS;
        for (uint32_t i = 0; i < CALLS; i++) {
            embd_dtype other = dice_below(&pair->dice, 10) ? wire : EMBD_DTYPE_F32;
            begin_call(pair, &calls[i], other, weights);
        }
        while (pair->ops->collect(pair->store))
            ;
        for (uint32_t i = 0; i < CALLS; i++)
            end_call(&calls[i]);
        pair_compare(pair);
    }
    free(calls);
}

/* ---- the cases ---- */

static const uint32_t dims[] = {1, 3, 4, 8, 16, 20, 33, 64, 130, 300};

static embd_schema schema_of(uint32_t number, embd_optimizer_kind optimizer)
{
    embd_schema s;
    embd_schema_init(&s);
    strcpy(s.name, "joined");
    s.dim = dims[number % (sizeof dims / sizeof dims[0])];
    s.dtype = (embd_dtype)(number / 2 % 3);
    s.partition = number % 3 == 0 ? EMBD_PARTITION_SLOT : EMBD_PARTITION_HASH;
    s.slots = s.partition == EMBD_PARTITION_SLOT ? 3 : 1;
    s.combiner = number % 4 < 2 ? EMBD_COMBINER_CONCAT : EMBD_COMBINER_SUM;
    s.initializer.kind = EMBD_INITIALIZER_UNIFORM;
    s.initializer.a = -0.5f;
    s.initializer.b = 0.5f;
    embd_optimizer_init(&s.optimizer, optimizer, 0.05f);
    s.optimizer.initial_accumulator = 0.1f;
    s.optimizer.scaler = number % 5 ? 1.0f : 64.0f;
    s.optimizer.l1 = 0.001f;
    if (optimizer == EMBD_OPTIMIZER_ADAM && number % 3 == 1)
        s.optimizer.update = EMBD_UPDATE_LAZY_GLOBAL;
    if (s.dtype != EMBD_DTYPE_F32)
        s.rounding = number % 7 < 3   ? EMBD_ROUNDING_STOCHASTIC
                     : number % 7 < 6 ? EMBD_ROUNDING_MASTER
                                      : EMBD_ROUNDING_NEAREST;
    return s;
}

/* What a table does with keys that have no row; again: of counts, the half-life. */
static void set_bounds(embd_schema *s, uint32_t kind, uint32_t again)
{
    if (kind == 1) {
        s->admit_after = 2;
    } else if (kind >= 2) {
        s->on_full = kind == 2   ? EMBD_ON_FULL_ERROR
                     : kind == 3 ? EMBD_ON_FULL_EVICT_LFU
                     : kind == 5 ? EMBD_ON_FULL_EVICT_SCORE
                                 : EMBD_ON_FULL_EVICT_LRU;
        s->capacity = kind == 4 ? 2000 : POOL / 2;
        s->lfu_half_life = again;
        s->lfu_occurrences = again > 0;
    }
}

static void run_case(uint32_t number, embd_optimizer_kind optimizer, uint32_t kind, uint32_t again)
{
    embd_schema schema = schema_of(number, optimizer);
    struct pair pair;
    set_bounds(&schema, kind, again);
    pair_open(&pair, "cuda", &schema, number);
    run_turns(&pair, (embd_dtype)(number % 3), number % 8 == 3);
    pair_close(&pair);
}

static void test_cases(void **state)
{
    (void)state;
    uint32_t number = 0, n_run = 0;
    n_together = 0;
    for (int optimizer = EMBD_OPTIMIZER_SGD; optimizer <= EMBD_OPTIMIZER_FTRL; optimizer++)
        for (uint32_t kind = 0; kind < 6; kind++)
            for (uint32_t again = 0; again < 3; again++)
                if (++number % every == 0) {
                    run_case(number, (embd_optimizer_kind)optimizer, kind, again);
                    n_run++;
                }
    assert_true(n_together > n_run * TURNS * CALLS / 8);
}

/* Rows of all widths that have a way of their own, whose keys are in every push. */
static void test_same_keys(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < sizeof dims / sizeof dims[0]; i++) {
        embd_schema schema =
            schema_of(i, i % 2 ? EMBD_OPTIMIZER_ROWWISE_ADAGRAD : EMBD_OPTIMIZER_ADAM);
        struct waiting calls[SAME];
        struct pair pair;
        pair_open(&pair, "cuda", &schema, i);
        pair.pool = (const uint64_t[]){1, 2, 3, 4, 5};
        pair.n_pool = 5;
        for (uint32_t turn = 0; turn < 2; turn++) {
            for (uint32_t c = 0; c < SAME; c++)
                begin_call(&pair, &calls[c], EMBD_DTYPE_F32, false);
            while (pair.ops->collect(pair.store))
                ;
            for (uint32_t c = 0; c < SAME; c++)
                end_call(&calls[c]);
            pair_compare(&pair);
        }
        pair_close(&pair);
    }
}

static void run_calls(struct pair *pair, const uint64_t *pool, uint32_t n_pool, uint32_t n)
{
    struct waiting calls[SAME];
    pair->pool = pool;
    pair->n_pool = n_pool;
    for (uint32_t c = 0; c < n; c++)
        begin_call(pair, &calls[c], EMBD_DTYPE_F32, false);
    while (pair->ops->collect(pair->store))
        ;
    for (uint32_t c = 0; c < n; c++)
        end_call(&calls[c]);
    pair_compare(pair);
}

/* A full table of candidates is forgotten by pushes together, whose keys all have rows. */
static void test_forgetting(void **state)
{
    (void)state;
    static const uint64_t with_rows[] = {1, 2, 3, 4, 5};
    uint64_t others[200];
    for (uint32_t i = 0; i < 200; i++)
        others[i] = 1000 + i;
    for (uint32_t i = 0; i < 12; i++) {
        embd_schema schema = schema_of(i, EMBD_OPTIMIZER_ADAGRAD);
        struct store_stats stats;
        struct pair pair;
        schema.admit_after = 2;
        pair_open(&pair, "cuda", &schema, i);
        for (uint32_t turn = 0; turn < 4; turn++)
            run_calls(&pair, with_rows, 5, SAME);
        for (uint32_t tries = 0; tries < 200; tries++) {
            run_calls(&pair, others, 200, 1);
            pair.ops->stats(pair.store, &stats);
            if (stats.candidates >= candidates_most(stats.rows))
                break;
        }
        assert_true(stats.candidates >= candidates_most(stats.rows));
        pair_reload(&pair); /* a store that has seen no key without a row yet */
        run_calls(&pair, with_rows, 5, SAME);
        pair_close(&pair);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1)
        every = (uint32_t)atoi(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_same_keys),
        cmocka_unit_test(test_forgetting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
