#include "tests/store/pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/convert.h"
#include "server/store/candidates.h"
#include "server/store/slice.h"

/* So few that tables of tests forget theirs again and again. */
#define PAIR_CANDIDATES UINT64_C(40)
/* So few that the host has rows left to step when the next call comes. */
#define PAIR_SLICE UINT64_C(64)

uint64_t dice_next(struct dice *dice)
{
    uint64_t x = dice->state += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

uint32_t dice_below(struct dice *dice, uint32_t n)
{
    return (uint32_t)((dice_next(dice) >> 32) * n >> 32);
}

float dice_float(struct dice *dice)
{
    return (float)((int)dice_below(dice, 4096) - 2048) / 2048.0f;
}

void pair_set_way(const char *way)
{
    store_gpus.way = strcmp(way, "peer") == 0   ? STORE_WAY_PEER
                     : strcmp(way, "nccl") == 0 ? STORE_WAY_NCCL
                                                : STORE_WAY_AUTO;
}

void pair_open(struct pair *pair, const char *store, const embd_schema *schema, uint64_t seed)
{
    struct embd__error e = {0};
    *pair = (struct pair){.dice = {seed}};
    store_least_candidates = model_least_candidates = PAIR_CANDIDATES;
    store_slice = PAIR_SLICE;
    pair->ops = store_find(store, &e);
    assert_non_null(pair->ops);
    assert_int_equal(embd__schema_copy(&pair->schema, schema, &e), EMBD_OK);
    if (pair->ops->open(&pair->schema, &pair->store, &e) != EMBD_OK)
        fail_msg("open: %s", e.text);
    pair->model = model_new(&pair->schema.s);
}

void pair_close(struct pair *pair)
{
    pair->ops->close(pair->store);
    model_free(pair->model);
    embd__schema_fini(&pair->schema);
}

/* ---- batches ---- */

static uint64_t draw_key(struct pair *pair, uint32_t slot)
{
    const embd_schema *s = &pair->schema.s;
    if (pair->schema.slot_starts)
        return pair->schema.slot_starts[slot] + dice_next(&pair->dice) % s->slot_sizes[slot];
    return pair->pool[dice_below(&pair->dice, pair->n_pool)];
}

void batch_draw(struct pair *pair, struct batch *batch, uint32_t n_rows, uint32_t row_max,
                bool is_raw, bool weights)
{
    struct dice *dice = &pair->dice;
    bool has_slots = pair->schema.s.partition == EMBD_PARTITION_SLOT;
    uint32_t *offsets = malloc((n_rows + 1) * sizeof *offsets);
    offsets[0] = 0;
    for (uint32_t r = 0; r < n_rows; r++)
        offsets[r + 1] = offsets[r] + (is_raw ? 1 : dice_below(dice, row_max + 1));
    uint32_t n = offsets[n_rows];
    *batch = (struct batch){.offsets = offsets, .keys = malloc(n * 8 + 1)};
    if (has_slots)
        batch->slots = malloc(n_rows * sizeof *batch->slots + 1);
    for (uint32_t r = 0; r < n_rows; r++) {
        uint32_t slot = dice_below(dice, pair->schema.s.slots);
        if (has_slots)
            batch->slots[r] = (uint16_t)slot;
        for (uint32_t k = offsets[r]; k < offsets[r + 1]; k++)
            batch->keys[k] = draw_key(pair, slot);
    }
    if (weights && !is_raw) {
        batch->weights = malloc(n * sizeof *batch->weights + 1);
        for (uint32_t k = 0; k < n; k++)
            batch->weights[k] = dice_below(dice, 8) ? dice_float(dice) : 0.0f;
    }
    batch->in = (struct model_batch){.n_keys = n,
                                     .n_rows = n_rows,
                                     .keys = batch->keys,
                                     .offsets = is_raw ? NULL : offsets,
                                     .slots = batch->slots,
                                     .weights = batch->weights};
}

void batch_of(struct batch *batch, const uint64_t *keys, uint32_t n_keys)
{
    *batch = (struct batch){.keys = malloc(n_keys * sizeof *keys + 1)};
    if (n_keys)
        memcpy(batch->keys, keys, n_keys * sizeof *keys);
    batch->in = (struct model_batch){.n_keys = n_keys, .n_rows = n_keys, .keys = batch->keys};
}

void batch_free(struct batch *batch)
{
    free(batch->keys);
    free(batch->offsets);
    free(batch->slots);
    free(batch->weights);
    free(batch->scores);
}

struct store_keys batch_keys(const struct batch *batch)
{
    return (struct store_keys){.n_keys = batch->in.n_keys,
                               .n_rows = batch->in.n_rows,
                               .keys = batch->in.keys,
                               .offsets = batch->in.offsets,
                               .slots = batch->in.slots,
                               .weights = batch->in.weights,
                               .scores = batch->in.scores};
}

static void on_done(struct store_done *done, int status)
{
    struct outcome *outcome = (struct outcome *)done;
    outcome->status = status;
    outcome->calls++;
}

void outcome_init(struct outcome *outcome)
{
    *outcome = (struct outcome){.done.fn = on_done};
}

/* The next call finds the host at any place of what a push left to do. */
static void await(struct pair *pair, const struct outcome *outcome)
{
    static uint32_t turn;
    while (outcome->calls == 0)
        pair->ops->collect(pair->store);
    for (uint32_t n = turn++ % 3; n > 0; n--)
        pair->ops->collect(pair->store);
}

/* ---- pull ---- */

/* The pull under way, and its rows that the store said are made: those of the first n_rows. */
static struct {
    struct pair *pair;
    const struct store_pull *pull;
    uint8_t *rows;
    size_t row_bytes;
    uint32_t n_rows;
} told;

static void on_made(struct store_pull *pull, uint32_t n_rows)
{
    size_t from = told.n_rows * told.row_bytes;
    assert_ptr_equal(pull, told.pull);
    assert_true(n_rows > told.n_rows && n_rows < pull->count);
    memcpy(told.rows + from, (uint8_t *)pull->values + from, n_rows * told.row_bytes - from);
    told.n_rows = n_rows;
    told.pair->n_told++;
}

/* They are there, and stay. */
static void compare_told(const struct store_pull *pull)
{
    assert_memory_equal(told.rows, pull->values, told.n_rows * told.row_bytes);
    free(told.rows);
}

/* As one call or cut into ranges of rows. */
static void pull_store(struct pair *pair, struct store_pull *pull, bool in_pieces)
{
    uint8_t *values = pull->values;
    size_t row_bytes = pair->schema.s.dim * embd__dtype_bytes(pull->dtype);
    uint32_t n_rows = pull->in.n_rows;
    for (pull->first = 0; pull->first < n_rows || n_rows == 0; pull->first += pull->count) {
        struct outcome outcome;
        outcome_init(&outcome);
        uint32_t left = n_rows - pull->first;
        pull->count = in_pieces && left ? 1 + dice_below(&pair->dice, left) : left;
        pull->values = malloc(pull->count * row_bytes + 1);
        memset(pull->values, 0xee, pull->count * row_bytes);
        told.n_rows = 0;
        told.pair = pair;
        told.pull = pull;
        told.row_bytes = row_bytes;
        told.rows = malloc(pull->count * row_bytes + 1);
        pull->made = on_made;
        pair->ops->pull(pair->store, pull, &outcome.done);
        await(pair, &outcome);
        assert_int_equal(outcome.status, EMBD_OK);
        compare_told(pull);
        assert_int_equal(outcome.calls, 1);
        memcpy(values + pull->first * row_bytes, pull->values, pull->count * row_bytes);
        free(pull->values);
        if (n_rows == 0)
            break;
    }
    pull->values = values;
}

static void compare_values(const struct pair *pair, const void *got, embd_dtype wire,
                           const float *expected, uint32_t n)
{
    uint32_t dim = pair->schema.s.dim;
    float *values = malloc(n * dim * sizeof *values + 1);
    embd__to_f32(values, got, wire, (size_t)n * dim);
    for (uint32_t i = 0; i < n * dim; i++) {
        float e = model_round(expected[i], wire);
        if (memcmp(&values[i], &e, sizeof e) != 0)
            fail_msg("row %u column %u: store %a, model %a", i / dim, i % dim, (double)values[i],
                     (double)e);
    }
    free(values);
}

int pair_pull(struct pair *pair, const struct batch *batch, embd_dtype wire, bool zero_missing,
              bool scale)
{
    uint32_t dim = pair->schema.s.dim, n_rows = batch->in.n_rows, n_keys = batch->in.n_keys;
    float *expected = malloc(n_rows * dim * sizeof *expected + 1);
    uint8_t *statuses = malloc(n_keys + 1), *expected_statuses = malloc(n_keys + 1);
    model_pull(pair->model, &batch->in, zero_missing, scale, expected, expected_statuses);
    for (int in_pieces = 0; in_pieces < 2; in_pieces++) {
        struct store_pull pull = {.in = batch_keys(batch),
                                  .dtype = wire,
                                  .zero_missing = zero_missing,
                                  .scale = scale,
                                  .values = malloc(n_rows * dim * 4 + 1),
                                  .statuses = statuses};
        memset(statuses, 0xee, n_keys);
        pull_store(pair, &pull, in_pieces);
        compare_values(pair, pull.values, wire, expected, n_rows);
        assert_memory_equal(statuses, expected_statuses, n_keys);
        free(pull.values);
    }
    free(expected);
    free(statuses);
    free(expected_statuses);
    return EMBD_OK;
}

/* ---- push and insert ---- */

static void draw_gradients(struct pair *pair, embd_dtype wire, float *grads, void *on_wire,
                           size_t n)
{
    for (size_t i = 0; i < n; i++)
        grads[i] =
            pair->spares_first && i % pair->schema.s.dim == 0
                ? 0.0f
                : model_round(pair->gradient != 0 ? pair->gradient : dice_float(&pair->dice) * 1.3f,
                              wire);
    embd__from_f32(on_wire, wire, grads, n);
}

static void compare_counts(const struct model_counts *expected, uint32_t inserted, uint32_t full,
                           uint32_t filtered, uint32_t evicted)
{
    assert_int_equal(evicted, expected->n_evicted);
    assert_int_equal(inserted, expected->n_inserted);
    assert_int_equal(full, expected->n_full);
    assert_int_equal(filtered, expected->n_filtered);
}

/* What was said of a request before it was made. */
struct beforehand {
    uint32_t n_inserted, n_full, n_filtered, n_evicted;
    bool is_known, is_refused;
};

/* Of four requests one is as it comes, or its keys are prepared; memory is for one, the outcome of
 * one is decided, and one has both. Now and then another one was prepared and does not come. */
static struct beforehand prepare(const struct pair *pair, struct store_change *change,
                                 struct outcome *outcome)
{
    static uint32_t turn;
    struct embd__error e = {.status = EMBD_OK};
    struct beforehand b = {.is_known = false};
    struct store_change other = *change;
    turn++;
    if (turn % 16 >= 13) {
        pair->ops->prepare(pair->store, &other, (enum store_prepare)(turn % 3), &e);
        pair->ops->cancel(pair->store, &other.ticket);
        assert_int_equal(other.ticket.number + other.ticket.n_keys, 0);
    }
    if (turn % 8 == 0 || turn % 8 == 1)
        assert_int_equal(pair->ops->prepare(pair->store, change, STORE_PREPARE_KEYS, &e), EMBD_OK);
    e.status = EMBD_OK;
    if (turn % 4 >= 2)
        assert_int_equal(pair->ops->prepare(pair->store, change, STORE_PREPARE_MEMORY, &e),
                         EMBD_OK);
    if (turn % 2 == 0)
        return b;
    int status =
        pair->ops->prepare(pair->store, change, STORE_PREPARE_OUTCOME, &outcome->done.error);
    assert_int_equal(status, outcome->done.error.status);
    b = (struct beforehand){change->n_inserted, change->n_full, change->n_filtered,
                            change->n_evicted, .is_refused = status != EMBD_OK};
    b.is_known = !pair->ops->caps.is_async || b.n_inserted + b.n_full + b.n_filtered > 0;
    if (b.is_refused) {
        pair->ops->cancel(pair->store, &change->ticket);
        outcome->status = status;
        outcome->calls = 1;
    }
    return b;
}

/* What was said beforehand is what came. */
static void compare_beforehand(const struct beforehand *b, const struct model_counts *expected)
{
    if (!b->is_known)
        return;
    assert_int_equal(b->n_inserted, expected->n_inserted);
    assert_int_equal(b->n_full, expected->n_full);
    assert_int_equal(b->n_filtered, expected->n_filtered);
    assert_int_equal(b->n_evicted, expected->n_evicted);
}

float pair_draw_lr(struct pair *pair)
{
    static const float rates[] = {0.0f, 0.0f, 0.25f, 0.003f};
    return pair->has_one_lr ? 0.0f : rates[dice_below(&pair->dice, 4)];
}

int pair_push(struct pair *pair, const struct batch *batch, embd_dtype wire, bool want_status)
{
    uint32_t n_keys = batch->in.n_keys;
    size_t n = (size_t)batch->in.n_rows * pair->schema.s.dim;
    float *grads = malloc(n * sizeof *grads + 1);
    uint8_t *statuses = malloc(n_keys + 1), *expected_statuses = malloc(n_keys + 1);
    struct model_batch in = batch->in;
    float *scores = pair_draw_scores(pair, n_keys);
    in.scores = scores;
    struct store_change push = {.in = batch_keys(batch),
                                .dtype = wire,
                                .grads = malloc(n * embd__dtype_bytes(wire) + 1),
                                .lr = pair->model->lr = pair_draw_lr(pair),
                                .seconds = pair_draw_seconds(pair),
                                .statuses = want_status ? statuses : NULL};
    struct model_counts counts;
    struct outcome outcome;
    push.in.scores = scores;
    outcome_init(&outcome);
    draw_gradients(pair, wire, grads, (void *)push.grads, n);
    struct beforehand b = prepare(pair, &push, &outcome);
    if (!b.is_refused)
        pair->ops->apply(pair->store, &push, &outcome.done);
    await(pair, &outcome);
    int expected =
        model_push(pair->model, &in, grads, false, want_status ? expected_statuses : NULL, &counts);
    pair->model->lr = 0;
    assert_int_equal(outcome.status, expected);
    assert_int_equal(outcome.calls, 1);
    if (expected == EMBD_OK)
        compare_beforehand(&b, &counts);
    if (expected == EMBD_OK)
        compare_counts(&counts, push.n_inserted, push.n_full, push.n_filtered, push.n_evicted);
    else
        assert_int_not_equal(outcome.done.error.text[0], 0);
    if (want_status)
        assert_memory_equal(statuses, expected_statuses, n_keys);
    free((void *)push.grads);
    free(scores);
    free(grads);
    free(statuses);
    free(expected_statuses);
    return expected;
}

int pair_insert(struct pair *pair, const struct batch *batch, bool want_status)
{
    uint32_t n_keys = batch->in.n_keys;
    uint8_t *statuses = malloc(n_keys + 1), *expected_statuses = malloc(n_keys + 1);
    struct store_change insert = {.kind = STORE_INSERT,
                                  .in = batch_keys(batch),
                                  .seconds = pair_draw_seconds(pair),
                                  .statuses = want_status ? statuses : NULL};
    struct model_counts counts;
    struct outcome outcome;
    outcome_init(&outcome);
    struct beforehand b = prepare(pair, &insert, &outcome);
    if (!b.is_refused)
        pair->ops->apply(pair->store, &insert, &outcome.done);
    await(pair, &outcome);
    int expected =
        model_insert(pair->model, &batch->in, want_status ? expected_statuses : NULL, &counts);
    assert_int_equal(outcome.status, expected);
    if (expected == EMBD_OK)
        compare_beforehand(&b, &counts);
    if (expected == EMBD_OK)
        compare_counts(&counts, insert.n_inserted, insert.n_full, insert.n_filtered,
                       insert.n_evicted);
    if (want_status)
        assert_memory_equal(statuses, expected_statuses, n_keys);
    free(statuses);
    free(expected_statuses);
    return expected;
}

void pair_erase(struct pair *pair, const struct batch *batch, bool want_status)
{
    uint32_t n_keys = batch->in.n_keys;
    struct embd__error e = {0};
    uint8_t *statuses = malloc(n_keys + 1), *expected_statuses = malloc(n_keys + 1);
    struct store_erase erase = {.in = batch_keys(batch), .statuses = want_status ? statuses : NULL};
    erase.in.weights = NULL;
    int status = pair->ops->erase(pair->store, &erase, &e);
    assert_int_equal(status, EMBD_OK);
    assert_int_equal(erase.n_erased,
                     model_erase(pair->model, &batch->in, want_status ? expected_statuses : NULL));
    if (want_status)
        assert_memory_equal(statuses, expected_statuses, n_keys);
    free(statuses);
    free(expected_statuses);
}

/* ---- scan and load ---- */

void scanned_init(struct scanned *scanned, const embd_schema *schema, uint32_t max_rows,
                  uint32_t state_floats)
{
    bool has_slots = schema->partition == EMBD_PARTITION_SLOT;
    scanned->out = (struct store_scan){
        .keys = malloc(max_rows * 8),
        .slots = has_slots ? malloc(max_rows * 2) : NULL,
        .rows = malloc(max_rows * embd__value_bytes(schema->dtype, schema->dim)),
        .states = state_floats ? malloc(max_rows * state_floats * 4) : NULL,
        .candidate_keys = malloc(max_rows * 8),
        .candidate_slots = has_slots ? malloc(max_rows * 2) : NULL,
        .candidate_counts = malloc(max_rows * 4),
    };
}

void scanned_free(struct scanned *scanned)
{
    free(scanned->out.keys);
    free(scanned->out.slots);
    free(scanned->out.rows);
    free(scanned->out.states);
    free(scanned->out.candidate_keys);
    free(scanned->out.candidate_slots);
    free(scanned->out.candidate_counts);
}

struct row_block scanned_block(const struct scanned *scanned)
{
    const struct store_scan *out = &scanned->out;
    return (struct row_block){.n_rows = out->n_rows,
                              .n_candidates = out->n_candidates,
                              .keys = out->keys,
                              .slots = out->slots,
                              .rows = out->rows,
                              .states = out->states,
                              .candidate_keys = out->candidate_keys,
                              .candidate_slots = out->candidate_slots,
                              .candidate_counts = out->candidate_counts};
}

void pair_stored(const struct pair *pair, const struct model_key *k, uint8_t *row)
{
    const embd_schema *s = &pair->schema.s;
    if (model_has_codes(s->dtype))
        model_write_codes(pair->model, k, row);
    else
        embd__from_f32(row, s->dtype, k->w, s->dim);
}

static void compare_row(const struct pair *pair, const struct store_scan *out, uint32_t i)
{
    const embd_schema *s = &pair->schema.s;
    uint32_t state_floats = pair->model->state_floats;
    const struct model_key *k =
        model_find(pair->model, out->keys[i], out->slots ? out->slots[i] : 0);
    if (k == NULL || !k->has_row)
        fail_msg("key %llx has a row in the store only", (unsigned long long)out->keys[i]);
    size_t row_bytes = embd__value_bytes(s->dtype, s->dim);
    const uint8_t *row = (const uint8_t *)out->rows + i * row_bytes;
    if (model_has_codes(s->dtype)) {
        uint8_t expected[4 + EMBD_DIM_MAX];
        float values[EMBD_DIM_MAX];
        pair_stored(pair, k, expected);
        assert_memory_equal(row, expected, row_bytes);
        embd__row_to_f32(values, row, s->dtype, s->dim);
        compare_values(pair, values, EMBD_DTYPE_F32, k->w, 1);
    } else {
        compare_values(pair, row, s->dtype, k->w, 1);
    }
    if (state_floats)
        assert_memory_equal(out->states + (size_t)i * state_floats, k->state, state_floats * 4);
}

static void compare_candidate(const struct pair *pair, const struct store_scan *out, uint32_t i)
{
    uint32_t slot = out->candidate_slots ? out->candidate_slots[i] : 0;
    const struct model_key *k = model_find(pair->model, out->candidate_keys[i], slot);
    assert_non_null(k);
    assert_false(k->has_row);
    assert_int_equal(out->candidate_counts[i], k->sights);
}

void pair_compare(struct pair *pair)
{
    struct scanned scanned;
    uint32_t max_rows = 1 + dice_below(&pair->dice, 500);
    uint64_t cursor = 0, n_rows = 0, n_candidates = 0;
    struct embd__error e = {0};
    scanned_init(&scanned, &pair->schema.s, max_rows, pair->model->state_floats);
    while (cursor != UINT64_MAX) {
        assert_int_equal(pair->ops->scan(pair->store, &cursor, max_rows, &scanned.out, &e),
                         EMBD_OK);
        assert_true(scanned.out.n_rows + scanned.out.n_candidates <= max_rows);
        for (uint32_t i = 0; i < scanned.out.n_rows; i++)
            compare_row(pair, &scanned.out, i);
        for (uint32_t i = 0; i < scanned.out.n_candidates; i++)
            compare_candidate(pair, &scanned.out, i);
        n_rows += scanned.out.n_rows;
        n_candidates += scanned.out.n_candidates;
    }
    scanned_free(&scanned);
    assert_int_equal(n_rows, pair->model->n_rows);
    assert_int_equal(n_candidates, pair->model->n_candidates);
    pair_compare_stats(pair);
    pair_read(pair);
}

void pair_reload(struct pair *pair)
{
    pair_reload_at(pair, pair->model->step);
}

void pair_reload_at(struct pair *pair, uint64_t step)
{
    struct store *fresh;
    struct embd__error e = {0};
    struct scanned scanned;
    uint32_t max_rows = 1 + dice_below(&pair->dice, 500);
    uint64_t cursor = 0;
    assert_int_equal(pair->ops->open(&pair->schema, &fresh, &e), EMBD_OK);
    scanned_init(&scanned, &pair->schema.s, max_rows, pair->model->state_floats);
    while (cursor != UINT64_MAX) {
        assert_int_equal(pair->ops->scan(pair->store, &cursor, max_rows, &scanned.out, &e),
                         EMBD_OK);
        struct row_block block = scanned_block(&scanned);
        if (pair->ops->load(fresh, &block, &e) != EMBD_OK)
            fail_msg("load: %s", e.text);
    }
    pair->ops->set_step(fresh, step);
    scanned_free(&scanned);
    pair->ops->close(pair->store);
    pair->store = fresh;
    pair->model->lost.forgotten = 0; /* since it was opened */
    model_reset_clock(pair->model);
}
