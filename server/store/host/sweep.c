/* sweep.c - see sweep.h.
 *
 * Each push passes over the whole table; rows lie in a row, so that the pass runs at the speed of
 * memory for wide rows and of the optimizer's root and division for adam. The rows a push names,
 * and those no key has, are noted first; memory for that is reserved before the push changes
 * anything. Rows that step before their turn are noted there too. */
#include "server/store/host/sweep.h"

#include "proto/convert.h"
#include "server/store/host/table.h"
#include "server/store/slice.h"

#define COLUMNS_OF_FREE 64u /* what a miss of the cache costs */
#define LEAST_COLUMNS   8u  /* what finding a row costs */

bool sweep_reserve(struct store *store)
{
    return row_set_reserve(&store->named, store->rows.n + store->merge.n);
}

/* ---- steps ---- */

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
    if (store->has_master) {
        float *master = state + store->master_at;
        rest(p, master, state, store->dim);
        embd__from_f32(record, store->dtype, master, store->dim);
        return;
    }
    float w[EMBD_DIM_MAX];
    embd__to_f32(w, record, store->dtype, store->dim);
    rest(p, w, state, store->dim);
    embd__from_f32(record, store->dtype, w, store->dim);
}

static inline void rest_rows(const struct store *store, uint64_t row, uint64_t end, row_rest *rest)
{
    for (; row < end; row++)
        if (!row_set_has(&store->named, row))
            rest_record(store, &store->sweep.step, rest, rows_at(&store->rows, (uint32_t)row));
}

#define SWEEP(kind)                                                                                \
    static inline void rest_##kind(const struct optimizer_step *p, float *restrict w,              \
                                   float *restrict state, uint32_t dim)                            \
    {                                                                                              \
        float *restrict s1 = state + dim;                                                          \
        for (uint32_t c = 0; c < dim; c++)                                                         \
            optimizer_column(EMBD_OPTIMIZER_##kind, p, w + c, state + c, s1 + c, 0.0f);            \
    }                                                                                              \
    static void sweep_##kind(const struct store *store, uint64_t row, uint64_t end)                \
    {                                                                                              \
        rest_rows(store, row, end, rest_##kind);                                                   \
    }
SWEEP(MOMENTUM)
SWEEP(NESTEROV)
SWEEP(ADAM)
SWEEP(RMSPROP)

/* Those of rows row .. end that are not named. */
static void (*const step_rows[])(const struct store *, uint64_t row, uint64_t end) = {
    [EMBD_OPTIMIZER_MOMENTUM] = sweep_MOMENTUM,
    [EMBD_OPTIMIZER_NESTEROV] = sweep_NESTEROV,
    [EMBD_OPTIMIZER_ADAM] = sweep_ADAM,
    [EMBD_OPTIMIZER_RMSPROP] = sweep_RMSPROP,
};

/* ---- phases: each takes as much of what is left of a slice as it can use ---- */

static uint64_t columns_of_row(const struct store *store)
{
    return store->dim > LEAST_COLUMNS ? store->dim : LEAST_COLUMNS;
}

/* How many of `most` that cost so many columns each, at least one; *left less what they cost. */
static uint64_t spend(uint64_t *left, uint64_t columns, uint64_t most)
{
    uint64_t n = *left / columns;
    n = n == 0 ? 1 : n;
    n = n < most ? n : most;
    *left -= n * columns < *left ? n * columns : *left;
    return n;
}

static void copy_some(struct store *store, uint64_t *left)
{
    struct sweep *sweep = &store->sweep;
    uint64_t n = spend(left, columns_of_row(store), UINT64_MAX);
    if (!store->cow.is_on || !cow_keep_some(store, &sweep->copied, n))
        sweep->phase = SWEEP_FREE;
}

static void name_free(struct store *store, uint64_t *left)
{
    struct sweep *sweep = &store->sweep;
    uint64_t n = spend(left, COLUMNS_OF_FREE, sweep->n_free);
    sweep->n_free -= n;
    for (; n > 0; n--) {
        row_set_add(&store->named, sweep->free);
        sweep->free = rows_next_free(&store->rows, sweep->free);
    }
    if (sweep->n_free == 0)
        sweep->phase = SWEEP_ROWS;
}

static void step_some(struct store *store, uint64_t *left)
{
    struct sweep *sweep = &store->sweep;
    uint64_t end = sweep->row + spend(left, columns_of_row(store), sweep->n_rows - sweep->row);
    step_rows[store->schema->s.optimizer.kind](store, sweep->row, end);
    sweep->row = end;
    if (end == sweep->n_rows)
        sweep->phase = SWEEP_NONE;
}

bool sweep_go_on(struct store *store)
{
    struct sweep *sweep = &store->sweep;
    uint64_t left = store_slice;
    if (sweep->phase == SWEEP_COPIES)
        copy_some(store, &left);
    if (sweep->phase == SWEEP_FREE && left > 0)
        name_free(store, &left);
    if (sweep->phase == SWEEP_ROWS && left > 0)
        step_some(store, &left);
    return sweep->phase != SWEEP_NONE;
}

void sweep_begin(struct store *store, const struct optimizer_step *step)
{
    const struct merge *merge = &store->merge;
    if (store->changes.n > 0)
        cow_note_all(store);
    row_set_clear(&store->named, store->rows.n);
    for (uint32_t i = 0; i < merge->n; i++)
        if (merge->distinct[i].ref != 0)
            row_set_add(&store->named, merge->distinct[i].ref - 1);
    store->sweep = (struct sweep){
        .phase = store->cow.is_on ? SWEEP_COPIES : SWEEP_FREE,
        .keeps = store->cow.is_on,
        .step = *step,
        .free = store->rows.first_free,
        .n_free = store->rows.n_free,
        .n_rows = store->rows.n,
    };
    sweep_go_on(store);
}

uint64_t sweep_slices(const struct store *store)
{
    const struct sweep *sweep = &store->sweep;
    uint64_t rows = sweep->n_rows - sweep->row;
    if (sweep->phase == SWEEP_COPIES)
        rows += rows_used(&store->rows);
    return (rows * columns_of_row(store) + sweep->n_free * COLUMNS_OF_FREE) / store_slice + 1;
}

/* ---- rows before their turn ---- */

void sweep_reach(struct store *store, uint64_t hash, uint32_t slot, uint32_t ref)
{
    const struct sweep *sweep = &store->sweep;
    uint32_t row = ref - 1;
    if (row < sweep->row || row >= sweep->n_rows || row_set_has(&store->named, row))
        return;
    if (sweep->keeps && store->cow.is_on)
        cow_keep(store, hash, slot, ref);
    step_rows[store->schema->s.optimizer.kind](store, row, (uint64_t)row + 1);
    row_set_add(&store->named, row);
}

static void reach_key(struct store *store, uint64_t key, uint32_t slot)
{
    uint64_t hash = index_hash(key, slot);
    uint32_t ref = index_find(&store->index, hash, slot);
    if (index_has_row(ref))
        sweep_reach(store, hash, slot, ref);
}

void sweep_reach_keys(struct store *store, const struct store_keys *in, uint32_t first,
                      uint32_t end)
{
    for (uint32_t row = first; row < end; row++) {
        uint32_t k = in->offsets != NULL ? in->offsets[row] : row;
        uint32_t last = in->offsets != NULL ? in->offsets[row + 1] : row + 1;
        for (; k < last; k++)
            reach_key(store, in->keys[k], in->slots != NULL ? in->slots[row] : 0);
    }
}
