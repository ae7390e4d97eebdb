/* redefine.c - a table becomes one of another definition, as loads with fields set make it. */
#include <string.h>

#include "tests/model/inside.h"

/* The values that a row is made from: its master values, or its own. Columns that it did not have
 * begin as a new row's. */
static void exact_values(const struct model *was, const struct model *is, const struct model_key *k,
                         float *w)
{
    model_first_exact(is, k->key, k->slot, w);
    memcpy(w, was->has_master ? k->state + was->master_at : k->w, was->schema.dim * sizeof *w);
}

static void redefine_values(const struct model *was, const struct model *is,
                            const struct model_key *k, float *w)
{
    embd_dtype dtype = is->schema.dtype;
    exact_values(was, is, k, w);
    for (uint32_t c = 0; c < is->schema.dim && !model_has_codes(dtype); c++)
        w[c] = model_round(w[c], dtype);
}

/* Vectors of a column each, or one value a row, of the same optimizer. */
static void redefine_optimizer(const struct model *was, const struct model *is,
                               const struct model_key *k, float *state)
{
    uint32_t old_dim = was->schema.dim, dim = is->schema.dim, at = 0;
    const embd_optimizer *o = &is->schema.optimizer;
    bool accumulates =
        o->kind == EMBD_OPTIMIZER_ADAGRAD || o->kind == EMBD_OPTIMIZER_ROWWISE_ADAGRAD;
    for (uint32_t i = 0; i < is->optimizer_floats; i++)
        state[i] = accumulates ? o->initial_accumulator : 0;
    if (was->schema.optimizer.kind != o->kind)
        return;
    bool has_columns = o->kind != EMBD_OPTIMIZER_COUNTER_ADAGRAD;
    for (uint32_t i = 0; i < was->optimizer_floats; i++, at++) {
        if (has_columns && i > 0 && i % old_dim == 0)
            at += dim - old_dim;
        state[at] = k->state[i];
    }
}

static void redefine_use(const struct model *was, const struct model *is, const struct model_key *k,
                         float *use)
{
    uint32_t n_old = was->state_floats - was->use_at, n = is->state_floats - is->use_at;
    if (n == 0)
        return;
    use[n - 1] = 0;
    bool is_same = was->schema.on_full == is->schema.on_full;
    if (n_old == 0)
        model_write_step(use, is->step);
    else
        memcpy(use, k->state + was->use_at, (is_same && n == n_old ? n : 2) * sizeof *use);
}

static void redefine_row(const struct model *was, struct model *is, const struct model_key *k)
{
    float w[EMBD_DIM_MAX], state[5 * EMBD_DIM_MAX];
    redefine_values(was, is, k, w);
    redefine_optimizer(was, is, k, state);
    if (is->has_stamp && was->has_stamp)
        memcpy(state + is->optimizer_floats, k->state + was->optimizer_floats, 2 * sizeof *state);
    else if (is->has_stamp)
        model_write_step(state + is->optimizer_floats, is->step);
    if (is->has_master)
        exact_values(was, is, k, state + is->master_at);
    redefine_use(was, is, k, state + is->use_at);
    model_set_row(is, k->key, k->slot, w, state);
    if (is->schema.dim == was->schema.dim && is->schema.dtype == was->schema.dtype)
        model_keep_codes(is, k);
}

struct model *model_redefine(const struct model *was, const embd_schema *to)
{
    struct model *is = model_new(to);
    is->step = was->step;
    for (uint64_t i = 0; i < was->n_keys; i++) {
        const struct model_key *k = was->keys[i];
        if (k->has_row)
            redefine_row(was, is, k);
        else if (k->sights > 0 && to->admit_after > 1)
            model_set_candidate(is, k->key, k->slot, k->sights);
    }
    return is;
}
