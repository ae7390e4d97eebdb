/* push.c - gradients become one optimizer step of each distinct key.
 *
 * Keys are merged, rows made for those that have none (what can fail is over then), and each
 * distinct key takes its step: the gradients of its occurrences summed in the shape of combine.h,
 * divided by the scaler, and handed to optimizer.h. While one row steps, the lines of rows further
 * on are on their way to the cache. */
#include "server/store/host/table.h"

#include <string.h>

#include "proto/combine.h"
#include "proto/convert.h"
#include "server/store/rounding.h"
#include "server/store/wholerow.h"

#define PREFETCH 16u

/* Steps one row in place, for tables of f32. */
typedef void row_step(const struct optimizer_step *p, float *restrict w, float *restrict state,
                      const float *restrict g, uint32_t dim);

/* The next memory to prefetch: the occurrences of one key after the other. */
struct prefetch {
    uint32_t key;              /* the next distinct one */
    uint32_t occurrence, left; /* of the one before it: the last asked for, and those behind that */
};

/* The inputs of applying a push, besides the store. */
struct application {
    const struct store *store;
    const struct store_change *push;
    union {
        struct optimizer_step step;
        struct wholerow_step whole; /* is_wholerow; begins with a step too */
    };
    uint32_t grad_bytes; /* of a row of gradients */
    uint32_t begin, end; /* the distinct keys that step */
    bool is_simple;      /* gradients are f32 and have no weights */
    struct prefetch prefetch;
    float sum[EMBD_DIM_MAX], run[EMBD_DIM_MAX], space[EMBD_DIM_MAX];
};

/* The gradients that occurrence k brings, before its weight, of the wire's dtype. */
static inline const uint8_t *grads_of(const struct application *a, uint32_t k)
{
    uint32_t row = a->push->in.offsets ? a->store->merge.row_of[k] : k;
    return (const uint8_t *)a->push->grads + (size_t)row * a->grad_bytes;
}

static inline const float *gradient_of(struct application *a, uint32_t k)
{
    const uint8_t *grads = grads_of(a, k);
    if (a->push->dtype == EMBD_DTYPE_F32)
        return (const float *)(const void *)grads;
    embd__to_f32(a->space, grads, a->push->dtype, a->store->dim);
    return a->space;
}

static void add_occurrence(struct application *a, float *sum, uint32_t k, bool is_first)
{
    const float *weights = a->push->in.weights, *g = gradient_of(a, k);
    uint32_t dim = a->store->dim;
    if (weights && is_first)
        embd__combine_first_weighted(sum, g, weights[k], dim);
    else if (weights)
        embd__combine_add_weighted(sum, g, weights[k], dim);
    else if (is_first)
        embd__combine_first(sum, g, dim);
    else
        embd__combine_add(sum, g, dim);
}

/* Asks for what is used PREFETCH occurrences later: rows, and gradients of keys that occur several
 * times. Single gradients follow one another in memory, which the processor sees by itself (asking
 * for them too cost 8 % of a push). */
MEMORY_PREFETCH void prefetch_next(struct application *a)
{
    const struct store *store = a->store;
    const struct merge *merge = &store->merge;
    struct prefetch *p = &a->prefetch;
    if (p->left > 0) {
        p->left--;
        p->occurrence = merge->next[p->occurrence];
        rows_prefetch(grads_of(a, p->occurrence), a->grad_bytes);
        return;
    }
    if (p->key == a->end)
        return;
    const struct distinct *d = &merge->distinct[p->key++];
    if (d->ref == 0)
        return;
    rows_prefetch(rows_at(&store->rows, d->ref - 1), store->rows.stride);
    if (d->repeats == 0)
        return;
    p->left = d->repeats;
    p->occurrence = d->first;
    rows_prefetch(grads_of(a, d->first), a->grad_bytes);
}

/* a->sum = the gradients of all occurrences of d: runs of EMBD_SUM_RUN, then the runs. Prefetches
 * once for each but the first. */
static void sum_runs(struct application *a, const struct distinct *d)
{
    uint32_t k = d->first, n = d->repeats + 1u;
    for (uint32_t at = 0; at < n; at++) {
        float *to = at < EMBD_SUM_RUN ? a->sum : a->run;
        if (at > 0) {
            k = a->store->merge.next[k];
            prefetch_next(a);
        }
        add_occurrence(a, to, k, at % EMBD_SUM_RUN == 0);
        bool run_ends = at + 1 == n || (at + 1) % EMBD_SUM_RUN == 0;
        if (to == a->run && run_ends)
            embd__combine_add(a->sum, a->run, a->store->dim);
    }
}

/* The same of one run of f32 without weights. */
HOST_INLINE void sum_columns(struct application *a, const struct distinct *d, float *restrict sum,
                             uint32_t dim)
{
    const uint32_t *next = a->store->merge.next;
    uint32_t k = d->first;
    embd__combine_first(sum, (const float *)(const void *)grads_of(a, k), dim);
    for (uint32_t i = 0; i < d->repeats; i++) {
        k = next[k];
        prefetch_next(a);
        embd__combine_add(sum, (const float *)(const void *)grads_of(a, k), dim);
    }
}

/* In the usual widths: a sum is a few additions instead of a loop, and stands in registers. */
#define SUM_OF(dim)                                                                                \
    static void sum_of_##dim(struct application *a, const struct distinct *d)                      \
    {                                                                                              \
        float sum[dim];                                                                            \
        sum_columns(a, d, sum, dim);                                                               \
        memcpy(a->sum, sum, sizeof sum);                                                           \
    }
SUM_OF(16)
SUM_OF(32)
SUM_OF(64)

static void sum_gradients(struct application *a, const struct distinct *d)
{
    uint32_t dim = a->store->dim;
    if (!a->is_simple || d->repeats >= EMBD_SUM_RUN)
        sum_runs(a, d);
    else if (dim == 16)
        sum_of_16(a, d);
    else if (dim == 32)
        sum_of_32(a, d);
    else if (dim == 64)
        sum_of_64(a, d);
    else
        sum_columns(a, d, a->sum, dim);
}

/* rowcode.h, by chance. */
static void store_codes(const struct rounding *r, uint8_t *record, const float *w,
                        const struct store *store)
{
    float scale = embd__codes_begin(record, store->dtype, w, store->dim);
    if (!embd__code_scales(scale))
        return;
    for (uint32_t at = 0; at < store->dim; at += ROUNDING_COLUMNS) {
        uint32_t word[4];
        rounding_draw(r, at / ROUNDING_COLUMNS, word);
        for (uint32_t c = at; c < store->dim && c < at + ROUNDING_COLUMNS; c++)
            record[ROWCODE_AT + c] =
                rounding_code(w[c], store->dtype, scale, rounding_random(word, c));
    }
}

/* The values of d's row after a step, in the table's dtype. */
static void store_values(const struct application *a, const struct distinct *d, uint8_t *record,
                         const float *w)
{
    const struct store *store = a->store;
    struct rounding r = {.seed = store->schema->s.seed,
                         .key = a->push->in.keys[d->first],
                         .step = a->step.t,
                         .slot = d->slot};
    if (store->schema->s.rounding == EMBD_ROUNDING_NEAREST)
        embd__row_from_f32(record, store->dtype, w, store->dim);
    else if (embd__dtype_is_coded(store->dtype))
        store_codes(&r, record, w, store);
    else
        rounding_row(&r, (uint16_t *)(void *)record, store->dtype, w, store->dim);
}

HOST_INLINE void step_record(struct application *a, row_step *step, const struct distinct *d,
                             const float *g)
{
    const struct store *store = a->store;
    uint8_t *record = rows_at(&store->rows, d->ref - 1);
    float *state = host_state(store, record);
    if (store->dtype == EMBD_DTYPE_F32) {
        step(&a->step, (float *)(void *)record, state, g, store->dim);
        return;
    }
    if (store->has_master) {
        float *master = state + store->master_at;
        step(&a->step, master, state, g, store->dim);
        embd__row_from_f32(record, store->dtype, master, store->dim);
        return;
    }
    float w[EMBD_DIM_MAX];
    embd__row_to_f32(w, record, store->dtype, store->dim);
    step(&a->step, w, state, g, store->dim);
    store_values(a, d, record, w);
}

HOST_INLINE void apply_key(struct application *a, row_step *step, const struct distinct *d)
{
    bool is_plain = d->repeats == 0 && a->push->in.weights == NULL && a->step.scaler == 1.0f;
    if (is_plain) {
        step_record(a, step, d, gradient_of(a, d->first));
        return;
    }
    sum_gradients(a, d);
    embd__combine_divide(a->sum, a->step.scaler, a->store->dim);
    step_record(a, step, d, a->sum);
}

HOST_INLINE void apply_keys(struct application *a, row_step *step)
{
    const struct merge *merge = &a->store->merge;
    for (uint32_t i = 0; i < PREFETCH; i++)
        prefetch_next(a);
    for (uint32_t i = a->begin; i < a->end; i++) {
        prefetch_next(a);
        if (merge->distinct[i].ref)
            apply_key(a, step, &merge->distinct[i]);
    }
}

/* For each optimizer its step and, around it, the loop over the keys. */
#define APPLY(kind)                                                                                \
    static inline void step_##kind(const struct optimizer_step *p, float *restrict w,              \
                                   float *restrict state, const float *restrict g, uint32_t dim)   \
    {                                                                                              \
        float *restrict s1 = state + dim;                                                          \
        for (uint32_t c = 0; c < dim; c++)                                                         \
            optimizer_column(EMBD_OPTIMIZER_##kind, p, w + c, state + c, s1 + c, g[c]);            \
    }                                                                                              \
    static void apply_##kind(struct application *a)                                                \
    {                                                                                              \
        apply_keys(a, step_##kind);                                                                \
    }
APPLY(SGD)
APPLY(MOMENTUM)
APPLY(NESTEROV)
APPLY(ADAGRAD)
APPLY(ADAM)
APPLY(RMSPROP)
APPLY(FTRL)

static inline void step_rowwise_adagrad(const struct optimizer_step *p, float *restrict w,
                                        float *restrict state, const float *restrict g,
                                        uint32_t dim)
{
    float v = optimizer_rowwise(*state, optimizer_squares(g, dim), dim);
    *state = v;
    for (uint32_t c = 0; c < dim; c++)
        optimizer_column(EMBD_OPTIMIZER_ROWWISE_ADAGRAD, p, w + c, &v, NULL, g[c]);
}

static void apply_rowwise_adagrad(struct application *a)
{
    apply_keys(a, step_rowwise_adagrad);
}

/* Behind m and v stands the step that the row was brought forward to. */
static inline void step_lazy_adam(const struct optimizer_step *p, float *restrict w,
                                  float *restrict state, const float *restrict g, uint32_t dim)
{
    float *restrict v = state + dim, *stamp = v + dim;
    struct optimizer_lazy lazy = optimizer_lazy_begin(p, embd__stamp_get(stamp));
    for (uint32_t c = 0; c < dim; c++)
        optimizer_lazy_column(p, &lazy, w + c, state + c, v + c, g[c]);
    embd__stamp_put(stamp, p->t);
}

static void apply_lazy_adam(struct application *a)
{
    apply_keys(a, step_lazy_adam);
}

/* `p` is the beginning of a wholerow_step. */
static inline void step_wholerow(const struct optimizer_step *p, float *restrict w,
                                 float *restrict state, const float *restrict g, uint32_t dim)
{
    (void)dim;
    wholerow_apply((const struct wholerow_step *)(const void *)p, w, state, g);
}

static void apply_wholerow(struct application *a)
{
    apply_keys(a, step_wholerow);
}

static void (*const apply[])(struct application *) = {
    [EMBD_OPTIMIZER_SGD] = apply_SGD,
    [EMBD_OPTIMIZER_MOMENTUM] = apply_MOMENTUM,
    [EMBD_OPTIMIZER_NESTEROV] = apply_NESTEROV,
    [EMBD_OPTIMIZER_ADAGRAD] = apply_ADAGRAD,
    [EMBD_OPTIMIZER_ROWWISE_ADAGRAD] = apply_rowwise_adagrad,
    [EMBD_OPTIMIZER_ADAM] = apply_ADAM,
    [EMBD_OPTIMIZER_RMSPROP] = apply_RMSPROP,
    [EMBD_OPTIMIZER_FTRL] = apply_FTRL,
};

static void begin_step(struct application *a, float lr, uint64_t t)
{
    const embd_schema *s = &a->store->schema->s;
    if (a->store->is_wholerow)
        a->whole = wholerow_begin(s, a->store->optimizer_floats, embd__schema_has_stamp(s), lr, t);
    else
        a->step = optimizer_begin(s, lr, t);
}

static void step_keys(struct application *a, const struct store *store,
                      const struct store_change *push, uint32_t begin, uint32_t end)
{
    a->store = store;
    a->push = push;
    a->grad_bytes = store->dim * (uint32_t)embd__dtype_bytes(push->dtype);
    a->is_simple = push->dtype == EMBD_DTYPE_F32 && push->in.weights == NULL;
    a->prefetch = (struct prefetch){.key = begin};
    a->begin = begin;
    a->end = end;
    begin_step(a, push->lr, store->step);
    if (store->is_wholerow)
        apply_wholerow(a);
    else if (a->step.is_lazy)
        apply_lazy_adam(a);
    else
        apply[store->schema->s.optimizer.kind](a);
}

void steps_begin(struct store *store)
{
    if (store->changes.n > 0)
        cow_note_merged(store);
    ++store->step;
}

void steps_some(struct store *store, const struct store_change *push, uint32_t begin, uint32_t end)
{
    struct application a;
    step_keys(&a, store, push, begin, end);
}

void steps_apply(struct store *store, const struct store_change *push)
{
    struct application a;
    steps_begin(store);
    step_keys(&a, store, push, 0, store->merge.n);
    if (store->is_global)
        sweep_begin(store, &a.step);
    if (store->evicts)
        evict_note_use(store, push->in.scores);
}
