/* pair_read.c - rows by key, of a store and of the model: of keys with a row, of candidates, of
 * keys that were erased or evicted, of some twice, and of one that was never named. What is wanted
 * may be the values alone. */
#include "tests/store/pair.h"

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

void pair_compare_stats(const struct pair *pair)
{
    struct store_stats stats;
    pair->ops->stats(pair->store, &stats);
    assert_int_equal(stats.rows, pair->model->n_rows);
    assert_int_equal(stats.candidates, pair->model->n_candidates);
    assert_int_equal(stats.steps, pair->model->step);
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
    size_t row_bytes = s->dim * embd__dtype_bytes(s->dtype),
           state_bytes = pair->model->state_floats * sizeof *state;
    bool has_row = k != NULL && k->has_row;
    uint8_t *expected = calloc(1, row_bytes + state_bytes + 1);
    assert_non_null(expected);
    if (has_row) {
        embd__from_f32(expected, s->dtype, k->w, s->dim);
        memcpy(expected + row_bytes, k->state, state_bytes);
    }
    assert_int_equal(status, has_row ? EMBD_KEY_HIT : EMBD_KEY_MISSING);
    assert_memory_equal(row, expected, row_bytes);
    if (state != NULL)
        assert_memory_equal(state, expected + row_bytes, state_bytes);
    free(expected);
}

void pair_read(struct pair *pair)
{
    static struct asked asked;
    const embd_schema *s = &pair->schema.s;
    size_t row_bytes = s->dim * embd__dtype_bytes(s->dtype), floats = pair->model->state_floats;
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
