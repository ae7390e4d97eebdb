/* optimizer.h - one optimizer step of one row, each rule written once for host and device.
 *
 * All arithmetic is f32, one IEEE operation after the other in the order written here, without
 * contraction (-ffp-contract=off, -fmad=false), so that every store gives the same bits.
 * Parentheses below are binding; without them operators of one rank go from left to right. g is
 * (the row's summed gradient) / scaler; the division is left out where scaler is 1.
 *
 *   sgd               w = w - lr*g
 *   momentum          m = momentum*m - lr*g
 *                     w = w + m
 *   nesterov          a' = momentum*a - lr*g
 *                     w = w + ((-momentum)*a + (1+momentum)*a')
 *   adagrad           v = v + g*g
 *                     w = w - (lr*g) / (sqrt(v)+eps)
 *   rowwise_adagrad   v = v + S/dim, S: optimizer_squares
 *                     w = w - (lr*g) / (sqrt(v)+eps)
 *   adam              m = beta1*m + (1-beta1)*g
 *                     v = beta2*v + ((1-beta2)*g)*g
 *                     w = w - (alpha*m) / (sqrt(v)+eps)
 *                     alpha = lr*sqrt(1-beta2^t)/(1-beta1^t), made in double
 *   rmsprop           v = beta2*v + ((1-beta2)*g)*g
 *                     w = w - (lr*g) / (sqrt(v)+eps)
 *   ftrl              r' = sqrt((n+g*g)+eps), r = sqrt(n+eps), n = n+g*g
 *                     z = z + (g - ((r'-r)/lr)*w)
 *                     w = |z| > l1 ? ((z < 0 ? -l1 : l1) - z) / ((r'/lr + l2) + beta/lr) : 0
 *
 * lr of the adagrads is divided by 1 + (t-1)*lr_decay, in double. wholerow.h has what other
 * regularization adds, and the optimizers after ftrl.
 *
 * With update = global, rows that a push does not name step too, with g = 0; that changes nothing
 * of a row with sgd, the adagrads and ftrl. With lazy_global, which adam has, a row's step waits
 * for its next push, at t, and is then made for the k = t - prev steps since its last at once, from
 * m and v as that left them (optimizer_lazy; new rows owe nothing):
 *
 *   adam              w = w - (pay*m) / (sqrt(v)+eps)
 *                     m = decay1*m + (1-beta1)*g
 *                     v = decay2*v + ((1-beta2)*g)*g
 *                     decay = beta^k, pay = lr/(1-beta1) * sqrt(1-beta2^prev)/(1-beta1^prev)
 *                     * (1-beta1^k), made in double
 *
 * State beside a row, f32: m | a | v of momentum, nesterov, adagrad, rmsprop [dim]; v of
 * rowwise_adagrad [1]; adam m [dim] then v [dim]; ftrl n [dim] then z [dim]. It starts at 0, v of
 * (rowwise_)adagrad at initial_accumulator. With lazy_global prev follows (stamp.h),
 * 0 in a new row. Also compiled as CUDA C++. */
#ifndef EMBD_STORE_OPTIMIZER_H
#define EMBD_STORE_OPTIMIZER_H

#include <math.h>

#include "proto/dtype.h"
#include "proto/stamp.h"

/* The inputs of a step besides the row and its gradient: the same for all rows of a push. */
struct optimizer_step {
    float lr, scaler, momentum, beta1, beta2, eps, l1, l2;
    float one_plus_momentum, one_minus_beta1, one_minus_beta2;
    float alpha;        /* adam */
    float beta_over_lr; /* ftrl */
    uint64_t t;
    bool is_lazy; /* lazy_global: optimizer_lazy_column */
};

/* base^n in double by repeated squaring: n's bits from the lowest, the same everywhere. */
EMBD_INLINE double optimizer_power(double base, uint64_t n)
{
    double power = 1.0;
    for (; n; n >>= 1) {
        if (n & 1)
            power = power * base;
        base = base * base;
    }
    return power;
}

/* lr: the push's own, or 0: the table's. */
EMBD_INLINE float optimizer_lr(const embd_schema *s, float lr, uint64_t t)
{
    float decay = s->regularization.lr_decay, base = lr > 0.0f ? lr : s->optimizer.lr;
    bool decays = decay > 0.0f && (s->optimizer.kind == EMBD_OPTIMIZER_ADAGRAD ||
                                   s->optimizer.kind == EMBD_OPTIMIZER_ROWWISE_ADAGRAD);
    return decays ? (float)((double)base / (1.0 + (double)(t - 1) * (double)decay)) : base;
}

/* t: the table's pushes with this one, from 1. */
EMBD_INLINE struct optimizer_step optimizer_begin(const embd_schema *s, float lr, uint64_t t)
{
    const embd_optimizer *o = &s->optimizer;
    struct optimizer_step p;
    p.lr = optimizer_lr(s, lr, t);
    p.scaler = o->scaler;
    p.momentum = o->momentum;
    p.beta1 = o->beta1;
    p.beta2 = o->beta2;
    p.eps = o->eps;
    p.l1 = o->l1;
    p.l2 = o->l2;
    p.one_plus_momentum = 1.0f + o->momentum;
    p.one_minus_beta1 = 1.0f - o->beta1;
    p.one_minus_beta2 = 1.0f - o->beta2;
    double correction1 = 1.0 - optimizer_power((double)o->beta1, t);
    double correction2 = 1.0 - optimizer_power((double)o->beta2, t);
    p.alpha = (float)((double)p.lr * sqrt(correction2) / correction1);
    p.beta_over_lr = o->beta / p.lr;
    p.t = t;
    p.is_lazy = o->update == EMBD_UPDATE_LAZY_GLOBAL;
    return p;
}

/* Whether a push changes rows that it does not name. */
EMBD_INLINE bool optimizer_is_global(const embd_optimizer *o)
{
    return o->update == EMBD_UPDATE_GLOBAL &&
           (o->kind == EMBD_OPTIMIZER_MOMENTUM || o->kind == EMBD_OPTIMIZER_NESTEROV ||
            o->kind == EMBD_OPTIMIZER_ADAM || o->kind == EMBD_OPTIMIZER_RMSPROP);
}

/* The value that every float of a new row's state starts at. */
EMBD_INLINE float optimizer_first_state(const embd_optimizer *o)
{
    bool accumulates =
        o->kind == EMBD_OPTIMIZER_ADAGRAD || o->kind == EMBD_OPTIMIZER_ROWWISE_ADAGRAD;
    return accumulates ? o->initial_accumulator : 0.0f;
}

#define OPTIMIZER_LANES 32u

/* S of rowwise_adagrad, in a shape that a warp can keep: column c goes to lane c % 32, each lane
 * adds its columns in rising order from +0; then lane l takes lane l + 16 to itself (l < 16), then
 * l + 8 (l < 8), l + 4, l + 2, l + 1. */
EMBD_INLINE float optimizer_squares(const float *g, size_t dim)
{
    float lane[OPTIMIZER_LANES];
    for (size_t l = 0; l < OPTIMIZER_LANES; l++)
        lane[l] = 0.0f;
    size_t c = 0;
    for (; c + OPTIMIZER_LANES <= dim; c += OPTIMIZER_LANES)
        for (size_t l = 0; l < OPTIMIZER_LANES; l++)
            lane[l] += g[c + l] * g[c + l];
    for (size_t l = 0; c + l < dim; l++)
        lane[l] += g[c + l] * g[c + l];
    for (size_t half = OPTIMIZER_LANES / 2; half; half /= 2)
        for (size_t l = 0; l < half; l++)
            lane[l] += lane[l + half];
    return lane[0];
}

/* The row's v of rowwise_adagrad; afterwards the columns step with optimizer_column and s0 = this
 * v. */
EMBD_INLINE float optimizer_rowwise(float v, float squares, size_t dim)
{
    return v + squares / (float)dim;
}

/* One column: *w with its state *s0 and *s1 (unused ones may be NULL). `kind` should be a constant
 * of the caller's, so that the switch falls away. For rowwise_adagrad *s0 is the row's v, already
 * brought forward. */
EMBD_INLINE void optimizer_column(embd_optimizer_kind kind, const struct optimizer_step *p,
                                  float *w, float *s0, float *s1, float g)
{
    switch (kind) {
    case EMBD_OPTIMIZER_SGD:
        *w = *w - p->lr * g;
        break;
    case EMBD_OPTIMIZER_MOMENTUM:
        *s0 = p->momentum * *s0 - p->lr * g;
        *w = *w + *s0;
        break;
    case EMBD_OPTIMIZER_NESTEROV: {
        float before = *s0;
        *s0 = p->momentum * before - p->lr * g;
        *w = *w + (-p->momentum * before + p->one_plus_momentum * *s0);
        break;
    }
    case EMBD_OPTIMIZER_ADAGRAD:
        *s0 = *s0 + g * g;
        *w = *w - p->lr * g / (sqrtf(*s0) + p->eps);
        break;
    case EMBD_OPTIMIZER_ROWWISE_ADAGRAD:
        *w = *w - p->lr * g / (sqrtf(*s0) + p->eps);
        break;
    case EMBD_OPTIMIZER_ADAM:
        *s0 = p->beta1 * *s0 + p->one_minus_beta1 * g;
        *s1 = p->beta2 * *s1 + p->one_minus_beta2 * g * g;
        *w = *w - p->alpha * *s0 / (sqrtf(*s1) + p->eps);
        break;
    case EMBD_OPTIMIZER_RMSPROP:
        *s0 = p->beta2 * *s0 + p->one_minus_beta2 * g * g;
        *w = *w - p->lr * g / (sqrtf(*s0) + p->eps);
        break;
    case EMBD_OPTIMIZER_FTRL: {
        float n = *s0 + g * g;
        float root = sqrtf(n + p->eps), before = sqrtf(*s0 + p->eps);
        float z = *s1 + (g - (root - before) / p->lr * *w);
        float step = ((z < 0.0f ? -p->l1 : p->l1) - z) / (root / p->lr + p->l2 + p->beta_over_lr);
        *w = fabsf(z) > p->l1 ? step : 0.0f;
        *s0 = n;
        *s1 = z;
        break;
    }
    case EMBD_OPTIMIZER_AMSGRAD: /* wholerow.h has these */
    case EMBD_OPTIMIZER_PARTIAL_ROWWISE_ADAM:
    case EMBD_OPTIMIZER_LAMB:
    case EMBD_OPTIMIZER_COUNTER_ADAGRAD:
        break;
    }
}

/* The other inputs of one row's lazy step: the same for all its columns. */
struct optimizer_lazy {
    float pay, decay1, decay2;
};

/* prev: the step the row was brought forward to, 0: none. */
EMBD_INLINE struct optimizer_lazy optimizer_lazy_begin(const struct optimizer_step *p,
                                                       uint64_t prev)
{
    struct optimizer_lazy lazy = {0.0f, 1.0f, 1.0f};
    if (prev == 0 || prev >= p->t)
        return lazy;
    double beta1 = (double)p->beta1, beta2 = (double)p->beta2;
    double decay1 = optimizer_power(beta1, p->t - prev);
    double root = sqrt(1.0 - optimizer_power(beta2, prev));
    double correction1 = 1.0 - optimizer_power(beta1, prev);
    lazy.pay = (float)((double)p->lr / (1.0 - beta1) * root / correction1 * (1.0 - decay1));
    lazy.decay1 = (float)decay1;
    lazy.decay2 = (float)optimizer_power(beta2, p->t - prev);
    return lazy;
}

/* As optimizer_column, of adam with lazy_global. */
EMBD_INLINE void optimizer_lazy_column(const struct optimizer_step *p,
                                       const struct optimizer_lazy *lazy, float *w, float *m,
                                       float *v, float g)
{
    if (lazy->pay != 0.0f)
        *w = *w - lazy->pay * *m / (sqrtf(*v) + p->eps);
    *m = lazy->decay1 * *m + p->one_minus_beta1 * g;
    *v = lazy->decay2 * *v + p->one_minus_beta2 * g * g;
}

#endif
