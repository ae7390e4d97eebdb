/* sweep.c - update = global: after a push, every row that it did not name steps with a gradient of
 * 0. Each push passes over the whole table; rows lie in a row, so that the pass runs at the speed
 * of memory for wide rows and of the optimizer's root and division for adam.
 *
 * The rows a push named, and those no key has, are marked first. Memory for the marks is reserved
 * before the push changes anything. */
#include "server/store/host/host.h"

#include "server/store/optimizer.h"

bool sweep_reserve(struct store *store)
{
    return marks_reserve(&store->marks, store->rows.n + store->merge.n);
}

/* Steps a row's columns without a gradient, w as f32. */
typedef void row_rest(const struct optimizer_step *p, float *restrict w, float *restrict state,
                      uint32_t dim);

static inline void rest_record(const struct store *store, const struct optimizer_step *p,
                               row_rest *rest, uint8_t *record)
{
    float *state = host_state(store, record);
    if (store->dtype == EMBD_DTYPE_F32) {
        rest(p, (float *)(void *)record, state, store->dim);
        return;
    }
    float w[EMBD_DIM_MAX];
    embd__to_f32(w, record, store->dtype, store->dim);
    rest(p, w, state, store->dim);
    embd__from_f32(record, store->dtype, w, store->dim);
}

static inline void rest_rows(const struct store *store, const struct optimizer_step *p,
                             row_rest *rest)
{
    for (uint64_t row = 0; row < store->rows.n; row++)
        if (!marks_has(&store->marks, row))
            rest_record(store, p, rest, rows_at(&store->rows, (uint32_t)row));
}

#define SWEEP(kind)                                                                                \
    static inline void rest_##kind(const struct optimizer_step *p, float *restrict w,              \
                                   float *restrict state, uint32_t dim)                            \
    {                                                                                              \
        float *restrict s1 = state + dim;                                                          \
        for (uint32_t c = 0; c < dim; c++)                                                         \
            optimizer_column(EMBD_OPTIMIZER_##kind, p, w + c, state + c, s1 + c, 0.0f);            \
    }                                                                                              \
    static void sweep_##kind(const struct store *store, const struct optimizer_step *p)            \
    {                                                                                              \
        rest_rows(store, p, rest_##kind);                                                          \
    }
SWEEP(MOMENTUM)
SWEEP(NESTEROV)
SWEEP(ADAM)
SWEEP(RMSPROP)

static void (*const sweep[])(const struct store *, const struct optimizer_step *) = {
    [EMBD_OPTIMIZER_MOMENTUM] = sweep_MOMENTUM,
    [EMBD_OPTIMIZER_NESTEROV] = sweep_NESTEROV,
    [EMBD_OPTIMIZER_ADAM] = sweep_ADAM,
    [EMBD_OPTIMIZER_RMSPROP] = sweep_RMSPROP,
};

void sweep_others(struct store *store, const struct optimizer_step *step)
{
    const struct merge *merge = &store->merge;
    if (store->frozen.is_on)
        frozen_keep_all(store);
    if (store->changes.n > 0)
        changes_note_all(store);
    marks_clear(&store->marks, store->rows.n);
    for (uint32_t i = 0; i < merge->n; i++)
        if (merge->distinct[i].ref != 0)
            marks_set(&store->marks, merge->distinct[i].ref - 1);
    uint32_t row = store->rows.first_free;
    for (uint64_t i = 0; i < store->rows.n_free; i++, row = rows_next_free(&store->rows, row))
        marks_set(&store->marks, row);
    sweep[store->schema->s.optimizer.kind](store, step);
}
