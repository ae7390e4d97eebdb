/* pair_read.c - rows by key, of a store and of the model: of keys with a row, of candidates, of
 * keys that were erased or evicted, of some twice, and of one that was never named. What is wanted
 * may be the values alone. */
#include "tests/store/pair.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/convert.h"

enum { KEYS_MOST = 300 };

struct asked {
    uint32_t n;
    uint64_t keys[KEYS_MOST];
    uint16_t slots[KEYS_MOST];
    const struct model_key *known[KEYS_MOST]; /* NULL: never named */
};

uint64_t pair_draw_seconds(struct pair *pair)
{
    struct model *model = pair->model;
    if (pair->schema.s.ttl_seconds > 0 && dice_below(&pair->dice, 8) > 0)
        model->seconds = (model->clock == 0 ? 1u << 31 : model->clock) +
                         dice_below(&pair->dice, 6) - dice_below(&pair->dice, 4);
    return model->seconds;
}

/* Few numbers, which are equal often, or many. Rows fall as often as they rise. */
float *pair_draw_scores(struct pair *pair, uint32_t n_keys)
{
    static const float few[] = {-INFINITY, -FLT_MAX, -2.5f, -0.0f, 0.0f, 1e-40f, 1.0f, FLT_MAX};
    if (pair->schema.s.on_full != EMBD_ON_FULL_EVICT_SCORE || dice_below(&pair->dice, 4) == 0)
        return NULL;
    float *scores = malloc((n_keys + 1) * sizeof *scores);
    bool are_few = dice_below(&pair->dice, 2);
    for (uint32_t i = 0; i < n_keys; i++)
        scores[i] = are_few ? few[dice_below(&pair->dice, 8)] : dice_float(&pair->dice) * 100.0f;
    return scores;
}

void pair_compare_stats(const struct pair *pair)
{
    struct store_stats stats;
    pair->ops->stats(pair->store, &stats);
    assert_int_equal(stats.rows, pair->model->n_rows);
    assert_int_equal(stats.candidates, pair->model->n_candidates);
    assert_int_equal(stats.steps, pair->model->step);
    assert_int_equal(stats.clock, pair->model->clock);
    assert_int_equal(stats.forgotten, pair->model->lost.forgotten);
    assert_true(stats.capacity >= stats.rows);
}

static void draw(struct pair *pair, struct asked *asked)
{
    const struct model *model = pair->model;
    uint32_t n = dice_below(&pair->dice, KEYS_MOST), at = 0;
    for (uint32_t i = 0; i < n && model->n_keys > 0; i++) {
        const struct model_key *k = model->keys[dice_below(&pair->dice, (uint32_t)model->n_keys)];
        asked->keys[at] = k->key;
        asked->slots[at] = (uint16_t)k->slot;
        asked->known[at++] = k;
    }
    if (model_find(model, 0x5eed0000ff, 0) == NULL) {
        asked->keys[at] = 0x5eed0000ff;
        asked->slots[at] = 0;
        asked->known[at++] = NULL;
    }
    asked->n = at;
}

static void compare_row(const struct pair *pair, const struct model_key *k, uint8_t status,
                        const uint8_t *row, const float *state)
{
    const embd_schema *s = &pair->schema.s;
    size_t row_bytes = embd__value_bytes(s->dtype, s->dim),
           state_bytes = pair->model->state_floats * sizeof *state;
    bool has_row = k != NULL && k->has_row;
    uint8_t *expected = calloc(1, row_bytes + state_bytes + 1);
    assert_non_null(expected);
    if (has_row) {
        pair_stored(pair, k, expected);
        memcpy(expected + row_bytes, k->state, state_bytes);
    }
    assert_int_equal(status, has_row ? EMBD_KEY_HIT : EMBD_KEY_MISSING);
    assert_memory_equal(row, expected, row_bytes);
    if (state != NULL)
        assert_memory_equal(state, expected + row_bytes, state_bytes);
    free(expected);
}

/* ---- which keys have rows ---- */

/* Each of them is one of the model's; a table that does not change lists each once. */
static void compare_keys(const struct pair *pair, const struct store_scan *out, uint64_t n_before)
{
    bool has_slots = pair->schema.s.partition == EMBD_PARTITION_SLOT;
    for (uint32_t i = 0; i < out->n_rows; i++) {
        const struct model_key *k =
            model_find(pair->model, out->keys[i], has_slots ? out->slots[i] : 0);
        assert_true(k != NULL && k->has_row);
    }
    assert_true(n_before + out->n_rows <= pair->model->n_rows);
}

static int by_place(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    if (x[0] != y[0])
        return x[0] < y[0] ? -1 : 1;
    return (x[1] > y[1]) - (x[1] < y[1]);
}

static void check_distinct(uint64_t (*listed)[2], uint64_t n)
{
    qsort(listed, n, sizeof *listed, by_place);
    for (uint64_t i = 1; i < n; i++)
        assert_true(by_place(listed[i - 1], listed[i]) != 0);
}

/* The next part; of some cases keys of several slots have one hash, and do not fit a small one. */
static void list_part(const struct pair *pair, uint64_t *cursor, uint32_t *most,
                      struct store_scan *out)
{
    struct embd__error e = {.status = EMBD_OK};
    int status;
    while ((status = pair->ops->list(pair->store, cursor, *most, out, &e)) == EMBD_TOO_LARGE &&
           *most < 64) {
        *most *= 2;
        e.status = EMBD_OK;
        out->keys = realloc(out->keys, *most * sizeof *out->keys);
        if (out->slots != NULL)
            out->slots = realloc(out->slots, *most * sizeof *out->slots);
        assert_non_null(out->keys);
    }
    if (status != EMBD_OK)
        fail_msg("%s", e.text);
    assert_true(out->n_rows <= *most);
}

static void pair_list(struct pair *pair)
{
    uint32_t most = 1 + dice_below(&pair->dice, dice_below(&pair->dice, 2) ? 40 : 5000);
    bool has_slots = pair->schema.s.partition == EMBD_PARTITION_SLOT;
    uint64_t(*listed)[2] = calloc(pair->model->n_rows + 1, sizeof *listed), n = 0, cursor = 0;
    struct store_scan out = {.keys = malloc(most * sizeof *out.keys),
                             .slots = has_slots ? malloc(most * sizeof *out.slots) : NULL};
    assert_true(listed != NULL && out.keys != NULL);
    while (cursor != UINT64_MAX) {
        list_part(pair, &cursor, &most, &out);
        compare_keys(pair, &out, n);
        for (uint32_t i = 0; i < out.n_rows; i++, n++) {
            listed[n][0] = out.keys[i];
            listed[n][1] = has_slots ? out.slots[i] : 0;
        }
    }
    assert_int_equal(n, pair->model->n_rows);
    check_distinct(listed, n);
    free(out.keys);
    free(out.slots);
    free(listed);
}

void pair_read(struct pair *pair)
{
    pair_list(pair);
    static struct asked asked;
    const embd_schema *s = &pair->schema.s;
    size_t row_bytes = embd__value_bytes(s->dtype, s->dim), floats = pair->model->state_floats;
    struct embd__error e = {.status = EMBD_OK};
    draw(pair, &asked);
    bool wants_states = floats > 0 && dice_below(&pair->dice, 4) > 0;
    struct store_read read = {
        .in = {.n_keys = asked.n,
               .n_rows = asked.n,
               .keys = asked.keys,
               .slots = s->partition == EMBD_PARTITION_SLOT ? asked.slots : NULL},
        .rows = malloc(asked.n * row_bytes + 1),
        .states = wants_states ? malloc(asked.n * floats * sizeof(float) + 1) : NULL,
        .statuses = malloc(asked.n + 1u),
    };
    assert_true(read.rows != NULL && read.statuses != NULL);
    if (pair->ops->read(pair->store, &read, &e) != EMBD_OK)
        fail_msg("%s", e.text);
    for (uint32_t i = 0; i < asked.n; i++)
        compare_row(pair, asked.known[i], read.statuses[i],
                    (const uint8_t *)read.rows + i * row_bytes,
                    wants_states ? read.states + i * floats : NULL);
    free(read.rows);
    free(read.states);
    free(read.statuses);
}
