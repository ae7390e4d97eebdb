/* wholerow.h - one step of a row that needs more than its columns one by one: clipping, weight
 * decay, limits of the row, and optimizers with sums over it. Written once for host and device, in
 * pieces between which the caller makes sums of squares over the row, in the order of
 * optimizer_squares. Tables without any of it never come here.
 *
 *   1. clip_value         g = min(max(g, -clip_value), clip_value)
 *   2. clip_norm          g = g * (clip_norm / |g|) where |g| = sqrt(squares of g) is larger
 *   3. decay l2           g = g + weight_decay*w          (counter_adagrad: in its squares alone)
 *   4. decay decoupled    w = w * keep, keep = max(1 - lr*weight_decay, 0); with decoupled_global
 *                         keep^k, k = t - prev, 1 for a row without a push; made in double
 *   5. the optimizer's step
 *   6. max_norm           w = w * (max_norm / |w|) where |w| is larger
 *   7. limits             w = min(max(w, weight_min), weight_max)
 *
 * The steps of optimizer.h, and with root = sqrt(1-beta2^t), eps_t = eps*root, made in double:
 *
 *   amsgrad               m, v as adam; u = max(u, v); w = w - (alpha*m) / (sqrt(u)+eps_t)
 *   partial_rowwise_adam  m as adam; v = beta2*v + (1-beta2)*(S/dim)
 *                         w = w - (alpha*m) / (sqrt(v)+eps_t)
 *   lamb                  m, v as adam; d = (unit*m) / (sqrt(v)+eps_t), unit = root/(1-beta1^t);
 *                         4. is here d = d + weight_decay*w; w = w - (lr*ratio)*d, ratio = |w|/|d|,
 *                         1 where one is 0
 *   counter_adagrad       c = 1 + fade*c, fade = rho^k in double, rho = 2^(-1/counter_halflife);
 *                         v = v + S/dim; mult = lr / (sqrt(v)+eps); w = keep*w - mult*g
 *                         keep = 1 - (freq*weight_decay)*mult, or *lr where decay is decoupled;
 *                         freq = counter_halflife/c; without a halflife fade and freq are 1
 *
 * S is the sum of squares of g as 3. left it. State: schema.h. */
#ifndef EMBD_STORE_WHOLEROW_H
#define EMBD_STORE_WHOLEROW_H

#include "server/store/optimizer.h"

/* The same for all rows of a push. */
struct wholerow_step {
    struct optimizer_step column;
    embd_optimizer_kind kind;
    uint32_t dim, stamp_at; /* floats before the stamp in a row's state */
    bool has_stamp, decays_others;
    float clip_value, clip_norm, l2, decoupled, max_norm, weight_min, weight_max;
    double keep; /* of one push */
    float unit, eps_t;
    double rho;
    float halflife;
};

/* 2^(-1/halflife) by the series of exp. */
EMBD_INLINE double wholerow_rho(float halflife)
{
    double x = -0.69314718055994530942 / (double)halflife, sum = 1.0;
    if (!(halflife > 0.0f))
        return 1.0;
    for (int i = 24; i > 0; i--)
        sum = 1.0 + x * sum / (double)i;
    return sum;
}

/* `stamp_at`: embd__schema_optimizer_floats, `has_stamp`: embd__schema_has_stamp. */
EMBD_INLINE struct wholerow_step wholerow_begin(const embd_schema *s, uint32_t stamp_at,
                                                bool has_stamp, float lr, uint64_t t)
{
    const embd_regularization *r = &s->regularization;
    struct wholerow_step p;
    p.column = optimizer_begin(s, lr, t);
    p.kind = s->optimizer.kind;
    p.dim = s->dim;
    p.stamp_at = stamp_at;
    p.has_stamp = has_stamp;
    p.decays_others = r->decay == EMBD_DECAY_DECOUPLED_GLOBAL;
    p.clip_value = r->clip_value;
    p.clip_norm = r->clip_norm;
    p.l2 = r->decay == EMBD_DECAY_L2 ? r->weight_decay : 0.0f;
    p.decoupled = r->decay == EMBD_DECAY_L2 ? 0.0f : r->weight_decay;
    p.max_norm = r->max_norm;
    p.weight_min = r->weight_min;
    p.weight_max = r->weight_max;
    p.keep = 1.0 - (double)p.column.lr * (double)p.decoupled;
    p.keep = p.keep > 0.0 ? p.keep : 0.0;
    double root = sqrt(1.0 - optimizer_power((double)s->optimizer.beta2, t));
    p.unit = (float)(root / (1.0 - optimizer_power((double)s->optimizer.beta1, t)));
    p.eps_t = (float)((double)s->optimizer.eps * root);
    p.rho = wholerow_rho(r->counter_halflife);
    p.halflife = r->counter_halflife;
    return p;
}

/* Whether the optimizer needs the squares of the gradient that wholerow_gradient made. */
EMBD_INLINE bool wholerow_has_squares(embd_optimizer_kind kind)
{
    return kind == EMBD_OPTIMIZER_ROWWISE_ADAGRAD || kind == EMBD_OPTIMIZER_PARTIAL_ROWWISE_ADAM ||
           kind == EMBD_OPTIMIZER_COUNTER_ADAGRAD;
}

/* ---- 1 to 3: the gradient ---- */

EMBD_INLINE float wholerow_clip(const struct wholerow_step *p, float g)
{
    if (p->clip_value > 0.0f)
        g = g > p->clip_value ? p->clip_value : g < -p->clip_value ? -p->clip_value : g;
    return g;
}

/* The factor that brings a norm down to its limit; 1 where it is not above it, or there is none. */
EMBD_INLINE float wholerow_factor(float limit, float squares)
{
    float norm = sqrtf(squares);
    return limit > 0.0f && norm > limit ? limit / norm : 1.0f;
}

EMBD_INLINE float wholerow_scale(float x, float factor)
{
    return factor != 1.0f ? x * factor : x;
}

EMBD_INLINE float wholerow_gradient(const struct wholerow_step *p, float w, float g)
{
    return p->l2 != 0.0f ? g + p->l2 * w : g;
}

/* Whether wholerow_gradient makes the gradient of the step; else, with counter_adagrad, only that
 * of its squares. */
EMBD_INLINE bool wholerow_adds_decay(const struct wholerow_step *p)
{
    return p->l2 != 0.0f && p->kind != EMBD_OPTIMIZER_COUNTER_ADAGRAD;
}

/* ---- 4: what all columns of a row share ---- */

struct wholerow_row {
    float keep; /* of 4. */
    float v, count, mult;
};

/* counter_adagrad: prev as for optimizer_lazy_begin. */
EMBD_INLINE void wholerow_count(const struct wholerow_step *p, uint64_t k, float squares,
                                const float *state, struct wholerow_row *row)
{
    float fade = (float)optimizer_power(p->rho, k);
    row->count = 1.0f + fade * state[1];
    float freq = p->halflife > 0.0f ? p->halflife / row->count : 1.0f;
    row->v = optimizer_rowwise(state[0], squares, p->dim);
    row->mult = p->column.lr / (sqrtf(row->v) + p->column.eps);
    row->keep = 1.0f;
    if (p->l2 != 0.0f)
        row->keep = 1.0f - freq * p->l2 * row->mult;
    else if (p->decoupled != 0.0f)
        row->keep = 1.0f - freq * p->decoupled * p->column.lr;
}

/* `squares`: where wholerow_has_squares. Reads the row's state and changes nothing. */
EMBD_INLINE struct wholerow_row wholerow_enter(embd_optimizer_kind kind,
                                               const struct wholerow_step *p, const float *state,
                                               float squares)
{
    struct wholerow_row row = {1.0f, 0.0f, 0.0f, 0.0f};
    uint64_t prev = p->has_stamp ? embd__stamp_get(state + p->stamp_at) : 0, t = p->column.t;
    uint64_t k = prev > 0 && prev < t ? t - prev : 1;
    if (kind == EMBD_OPTIMIZER_COUNTER_ADAGRAD)
        wholerow_count(p, k, squares, state, &row);
    else if (kind != EMBD_OPTIMIZER_LAMB && p->decoupled != 0.0f)
        row.keep = (float)(p->decays_others ? optimizer_power(p->keep, k) : p->keep);
    if (kind == EMBD_OPTIMIZER_ROWWISE_ADAGRAD)
        row.v = optimizer_rowwise(state[0], squares, p->dim);
    if (kind == EMBD_OPTIMIZER_PARTIAL_ROWWISE_ADAM)
        row.v =
            p->column.beta2 * state[p->dim] + p->column.one_minus_beta2 * (squares / (float)p->dim);
    return row;
}

/* Stores what the row's columns share, after all of them have been stepped. */
EMBD_INLINE void wholerow_leave(embd_optimizer_kind kind, const struct wholerow_step *p,
                                const struct wholerow_row *row, float *state)
{
    if (kind == EMBD_OPTIMIZER_ROWWISE_ADAGRAD || kind == EMBD_OPTIMIZER_COUNTER_ADAGRAD)
        state[0] = row->v;
    if (kind == EMBD_OPTIMIZER_COUNTER_ADAGRAD)
        state[1] = row->count;
    if (kind == EMBD_OPTIMIZER_PARTIAL_ROWWISE_ADAM)
        state[p->dim] = row->v;
    if (p->has_stamp)
        embd__stamp_put(state + p->stamp_at, p->column.t);
}

/* ---- 5: the step ---- */

/* m and v of column c as adam has them. */
EMBD_INLINE void wholerow_moments(const struct wholerow_step *p, float *m, float *v, float g)
{
    const struct optimizer_step *o = &p->column;
    *m = o->beta1 * *m + o->one_minus_beta1 * g;
    *v = o->beta2 * *v + o->one_minus_beta2 * g * g;
}

/* Column c of a row: brings its state forward and returns its new w; of lamb d. `kind` is p->kind,
 * a constant of the caller's. */
EMBD_INLINE float wholerow_column(embd_optimizer_kind kind, const struct wholerow_step *p,
                                  const struct wholerow_row *row, float w, float *state, size_t c,
                                  float g)
{
    float *m = state + c, *v = m + p->dim, *u = v + p->dim, shared = row->v;
    if (kind == EMBD_OPTIMIZER_LAMB) {
        wholerow_moments(p, m, v, g);
        float d = p->unit * *m / (sqrtf(*v) + p->eps_t);
        return p->decoupled != 0.0f ? d + p->decoupled * w : d;
    }
    if (kind == EMBD_OPTIMIZER_COUNTER_ADAGRAD)
        return row->keep * w - row->mult * g;
    w = wholerow_scale(w, row->keep);
    if (kind == EMBD_OPTIMIZER_AMSGRAD) {
        wholerow_moments(p, m, v, g);
        *u = *v > *u ? *v : *u;
        return w - p->column.alpha * *m / (sqrtf(*u) + p->eps_t);
    }
    if (kind == EMBD_OPTIMIZER_PARTIAL_ROWWISE_ADAM) {
        *m = p->column.beta1 * *m + p->column.one_minus_beta1 * g;
        return w - p->column.alpha * *m / (sqrtf(shared) + p->eps_t);
    }
    optimizer_column(kind, &p->column, &w, kind == EMBD_OPTIMIZER_ROWWISE_ADAGRAD ? &shared : m, v,
                     g);
    return w;
}

/* lamb: what d is multiplied by. The squares of w and of d. */
EMBD_INLINE float wholerow_rate(const struct wholerow_step *p, float of_w, float of_d)
{
    float ratio = of_w > 0.0f && of_d > 0.0f ? sqrtf(of_w) / sqrtf(of_d) : 1.0f;
    return p->column.lr * ratio;
}

/* ---- 6 and 7: the row ---- */

/* `factor`: wholerow_factor of max_norm. */
EMBD_INLINE float wholerow_limit(const struct wholerow_step *p, float w, float factor)
{
    w = wholerow_scale(w, factor);
    return w < p->weight_min ? p->weight_min : w > p->weight_max ? p->weight_max : w;
}

#endif
