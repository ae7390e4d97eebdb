/* keys.c - the keys a table has seen: pointers, sorted by key and slot. None is ever taken out: a
 * key that was erased or evicted has an entry with neither a row nor sights. */
#include <stdlib.h>
#include <string.h>

#include "tests/model/inside.h"

uint64_t model_least_candidates = 1u << 20;

struct model *model_new(const embd_schema *schema)
{
    struct model *model = calloc(1, sizeof *model);
    model->schema = *schema;
    model->least_candidates = model_least_candidates;
    model_lay_out_state(model);
    return model;
}

void model_free(struct model *model)
{
    for (uint64_t i = 0; i < model->n_keys; i++) {
        free(model->keys[i]->w);
        free(model->keys[i]->state);
        free(model->keys[i]);
    }
    free(model->keys);
    free(model);
}

static bool is_before(const struct model_key *k, uint64_t key, uint32_t slot)
{
    return k->key < key || (k->key == key && k->slot < slot);
}

/* How many entries come before the key. */
static uint64_t place_of(const struct model *model, uint64_t key, uint32_t slot)
{
    uint64_t low = 0, high = model->n_keys;
    while (low < high) {
        uint64_t middle = (low + high) / 2;
        if (is_before(model->keys[middle], key, slot))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct model_key *model_find(const struct model *model, uint64_t key, uint32_t slot)
{
    uint64_t place = place_of(model, key, slot);
    struct model_key *k = place < model->n_keys ? model->keys[place] : NULL;
    return k && k->key == key && k->slot == slot ? k : NULL;
}

struct model_key *model_see(struct model *model, uint64_t key, uint32_t slot)
{
    struct model_key *k = model_find(model, key, slot);
    if (k)
        return k;
    uint64_t place = place_of(model, key, slot), n_after = model->n_keys - place;
    k = calloc(1, sizeof *k);
    k->key = key;
    k->slot = slot;
    k->w = calloc(model->schema.dim, sizeof *k->w);
    k->state = calloc(model->state_floats + 1, sizeof *k->state);
    if (model->n_keys == model->n_keys_max) {
        model->n_keys_max = 2 * model->n_keys_max + 1;
        model->keys = realloc(model->keys, model->n_keys_max * sizeof *model->keys);
    }
    memmove(&model->keys[place + 1], &model->keys[place], n_after * sizeof *model->keys);
    model->keys[place] = k;
    model->n_keys++;
    return k;
}

void model_become(struct model *model, struct model_key *k, bool has_row, uint32_t sights)
{
    model->n_rows += has_row;
    model->n_rows -= k->has_row;
    model->n_candidates += sights > 0;
    model->n_candidates -= k->sights > 0;
    k->has_row = has_row;
    k->sights = sights;
}

void model_make_row(struct model *model, struct model_key *k)
{
    embd_optimizer_kind kind = model->schema.optimizer.kind;
    bool accumulates = kind == EMBD_OPTIMIZER_ADAGRAD || kind == EMBD_OPTIMIZER_ROWWISE_ADAGRAD;
    model_become(model, k, true, 0);
    k->scale = model_first_row(model, k->key, k->slot, k->w);
    for (uint32_t i = 0; i < model->state_floats; i++)
        k->state[i] = 0;
    for (uint32_t i = 0; i < model->optimizer_floats && accumulates; i++)
        k->state[i] = model->schema.optimizer.initial_accumulator;
    if (model->has_master)
        model_first_exact(model, k->key, k->slot, k->state + model->master_at);
    model_note_use(model, k, 0);
}

static void set_values(struct model *model, struct model_key *k, const float *w)
{
    const embd_schema *s = &model->schema;
    memcpy(k->w, w, s->dim * sizeof *w);
    if (model_has_codes(s->dtype))
        k->scale = model_round_codes(k->w, s->dim, s->dtype, NULL);
}

void model_set_row(struct model *model, uint64_t key, uint32_t slot, const float *w,
                   const float *state)
{
    struct model_key *k = model_see(model, key, slot);
    model_become(model, k, true, 0);
    set_values(model, k, w);
    if (model->state_floats)
        memcpy(k->state, state, model->state_floats * sizeof *state);
    if (model_is_timed(model) && model_read_step(k->state + model->use_at) > model->clock)
        model->clock = model_read_step(k->state + model->use_at);
}

void model_reset_clock(struct model *model)
{
    model->clock = 0;
    for (uint64_t i = 0; i < model->n_keys && model_is_timed(model); i++) {
        const struct model_key *k = model->keys[i];
        uint64_t second = k->has_row ? model_read_step(k->state + model->use_at) : 0;
        model->clock = second > model->clock ? second : model->clock;
    }
}

void model_keep_codes(struct model *model, const struct model_key *from)
{
    struct model_key *k = model_find(model, from->key, from->slot);
    memcpy(k->w, from->w, model->schema.dim * sizeof *k->w);
    k->scale = from->scale;
}

void model_copy_row(struct model *model, const struct model_key *from)
{
    model_set_row(model, from->key, from->slot, from->w, from->state);
    model_keep_codes(model, from);
}

void model_put_row(struct model *model, uint64_t key, uint32_t slot, const float *w)
{
    struct model_key *k = model_see(model, key, slot);
    model_make_row(model, k);
    model_advance_clock(model);
    set_values(model, k, w);
    if (model->has_master)
        memcpy(k->state + model->master_at, k->w, model->schema.dim * sizeof *w);
}

void model_set_candidate(struct model *model, uint64_t key, uint32_t slot, uint32_t sights)
{
    struct model_key *k = model_see(model, key, slot);
    if (!k->has_row)
        model_become(model, k, false, sights);
}
