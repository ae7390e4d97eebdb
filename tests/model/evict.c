/* evict.c - which rows go when there is no room for new ones: as many as are missing, or a
 * sixteenth of the capacity at once, the least used first. Rows of the request's own keys stay. */
#include <stdlib.h>

#include "tests/model/inside.h"

static bool evicts(const struct model *model)
{
    embd_on_full on_full = model->schema.on_full;
    return on_full == EMBD_ON_FULL_EVICT_LRU || on_full == EMBD_ON_FULL_EVICT_LFU ||
           on_full == EMBD_ON_FULL_EVICT_TTL;
}

/* The last step that used the row; evict_lfu: then how many pushes have. */
static float *use_of(const struct model *model, const struct model_key *k)
{
    return k->state + model->use_at;
}

void model_note_use(const struct model *model, struct model_key *k, uint32_t pushes)
{
    if (!evicts(model))
        return;
    model_write_step(use_of(model, k), model->step);
    float *count = use_of(model, k) + 2;
    if (model->schema.on_full == EMBD_ON_FULL_EVICT_LFU && *count + (float)pushes < 16777216.0f)
        *count += (float)pushes;
}

static bool may_go(const struct model *model, const struct model_key *k)
{
    if (!k->has_row || k->request == model->request)
        return false;
    uint64_t last = model_read_step(use_of(model, k));
    return model->schema.on_full != EMBD_ON_FULL_EVICT_TTL ||
           model->step - last >= model->schema.ttl;
}

/* Among rows used equally, an order that is none of the keys'. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 33) * 0xff51afd7ed558ccdULL;
    x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53ULL;
    return x ^ x >> 33;
}

static int in_order(const void *left, const void *right, void *arg)
{
    const struct model *model = arg;
    const struct model_key *a = *(struct model_key *const *)left;
    const struct model_key *b = *(struct model_key *const *)right;
    const float *use_a = use_of(model, a), *use_b = use_of(model, b);
    uint64_t last_a = model_read_step(use_a), last_b = model_read_step(use_b);
    if (model->schema.on_full == EMBD_ON_FULL_EVICT_LFU && use_a[2] != use_b[2])
        return use_a[2] < use_b[2] ? -1 : 1;
    if (last_a != last_b)
        return last_a < last_b ? -1 : 1;
    if (a->key != b->key)
        return mix(a->key) < mix(b->key) ? -1 : 1;
    return (a->slot > b->slot) - (a->slot < b->slot);
}

struct model_key **model_choose_victims(const struct model *model, uint32_t missing,
                                        uint32_t *n_out)
{
    uint64_t sixteenth = model->schema.capacity / 16,
             most = missing > sixteenth ? missing : sixteenth;
    struct model_key **victims = malloc((model->n_rows + 1) * sizeof *victims);
    uint32_t n = 0;
    for (uint64_t i = 0; i < model->n_keys && missing > 0 && evicts(model); i++)
        if (may_go(model, model->keys[i]))
            victims[n++] = model->keys[i];
    qsort_r(victims, n, sizeof *victims, in_order, (void *)model);
    *n_out = n < most ? n : (uint32_t)most;
    return victims;
}
