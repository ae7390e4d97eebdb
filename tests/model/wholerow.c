/* wholerow.c - steps that look at a whole row: clipping, weight decay, limits, and the optimizers
 * after ftrl, by the formulas of schema.h and SEMANTICS.md. */
#include <float.h>
#include <math.h>

#include "tests/model/inside.h"

/* A row on its way through a step. */
struct work {
    const struct model *model;
    const embd_regularization *r;
    embd_optimizer o; /* with this push's lr */
    struct model_key *k;
    uint64_t since; /* pushes since the row's last one */
    float g[EMBD_DIM_MAX];
};

bool model_is_wholerow(const embd_schema *s)
{
    const embd_regularization *r = &s->regularization;
    return model_has_codes(s->dtype) || s->optimizer.kind > EMBD_OPTIMIZER_FTRL ||
           r->clip_value != 0 || r->clip_norm != 0 || r->weight_decay != 0 ||
           r->decay == EMBD_DECAY_DECOUPLED_GLOBAL || r->max_norm != 0 ||
           r->weight_min != -FLT_MAX || r->weight_max != FLT_MAX;
}

static void bring_norm_to(float limit, float *x, uint32_t dim)
{
    float norm = sqrtf(model_squares(x, dim));
    if (limit == 0 || !(norm > limit))
        return;
    float factor = limit / norm;
    for (uint32_t c = 0; c < dim; c++)
        x[c] *= factor;
}

static void clip_to(float low, float high, float *x, uint32_t dim)
{
    for (uint32_t c = 0; c < dim; c++) {
        if (x[c] < low)
            x[c] = low;
        else if (x[c] > high)
            x[c] = high;
    }
}

/* g += weight_decay * w, where that is how it decays. */
static void add_decay(const struct work *x, float *g)
{
    if (x->r->decay == EMBD_DECAY_L2 && x->r->weight_decay != 0)
        for (uint32_t c = 0; c < x->model->schema.dim; c++)
            g[c] += x->r->weight_decay * x->k->w[c];
}

static void decay_apart(const struct work *x)
{
    if (x->r->decay == EMBD_DECAY_L2 || x->r->weight_decay == 0)
        return;
    double keep = 1 - (double)x->o.lr * x->r->weight_decay;
    if (keep < 0)
        keep = 0;
    if (x->r->decay == EMBD_DECAY_DECOUPLED_GLOBAL)
        keep = model_power(keep, x->since);
    if ((float)keep != 1)
        for (uint32_t c = 0; c < x->model->schema.dim; c++)
            x->k->w[c] *= (float)keep;
}

/* ---- optimizers ---- */

static void amsgrad(const struct work *x)
{
    uint32_t dim = x->model->schema.dim;
    float *m = x->k->state, *v = m + dim, *most = v + dim, *w = x->k->w;
    uint64_t t = x->model->step;
    double root = sqrt(1 - model_power(x->o.beta2, t));
    float rate = (float)(x->o.lr * root / (1 - model_power(x->o.beta1, t))),
          eps = (float)(x->o.eps * root);
    for (uint32_t c = 0; c < dim; c++) {
        m[c] = x->o.beta1 * m[c] + (1 - x->o.beta1) * x->g[c];
        v[c] = x->o.beta2 * v[c] + (1 - x->o.beta2) * x->g[c] * x->g[c];
        if (v[c] > most[c])
            most[c] = v[c];
        w[c] -= rate * m[c] / (sqrtf(most[c]) + eps);
    }
}

static void partial_rowwise_adam(const struct work *x)
{
    uint32_t dim = x->model->schema.dim;
    float *m = x->k->state, *v = m + dim, *w = x->k->w;
    uint64_t t = x->model->step;
    double root = sqrt(1 - model_power(x->o.beta2, t));
    float rate = (float)(x->o.lr * root / (1 - model_power(x->o.beta1, t))),
          eps = (float)(x->o.eps * root);
    *v = x->o.beta2 * *v + (1 - x->o.beta2) * (model_squares(x->g, dim) / (float)dim);
    for (uint32_t c = 0; c < dim; c++) {
        m[c] = x->o.beta1 * m[c] + (1 - x->o.beta1) * x->g[c];
        w[c] -= rate * m[c] / (sqrtf(*v) + eps);
    }
}

static void lamb(const struct work *x)
{
    uint32_t dim = x->model->schema.dim;
    float *m = x->k->state, *v = m + dim, *w = x->k->w, d[EMBD_DIM_MAX], rate = x->o.lr;
    uint64_t t = x->model->step;
    double root = sqrt(1 - model_power(x->o.beta2, t));
    float unit = (float)(root / (1 - model_power(x->o.beta1, t))), eps = (float)(x->o.eps * root);
    for (uint32_t c = 0; c < dim; c++) {
        m[c] = x->o.beta1 * m[c] + (1 - x->o.beta1) * x->g[c];
        v[c] = x->o.beta2 * v[c] + (1 - x->o.beta2) * x->g[c] * x->g[c];
        d[c] = unit * m[c] / (sqrtf(v[c]) + eps);
        if (x->r->decay == EMBD_DECAY_DECOUPLED && x->r->weight_decay != 0)
            d[c] += x->r->weight_decay * w[c];
    }
    float of_w = model_squares(w, dim), of_d = model_squares(d, dim);
    if (of_w > 0 && of_d > 0)
        rate *= sqrtf(of_w) / sqrtf(of_d);
    for (uint32_t c = 0; c < dim; c++)
        w[c] -= rate * d[c];
}

/* 2^(-1/halflife): exp's series, from its smallest term. */
static double fading(float halflife)
{
    double x = -0.69314718055994530942 / halflife, sum = 1;
    for (int i = 24; i > 0; i--)
        sum = 1 + x * sum / i;
    return sum;
}

static void counter_adagrad(const struct work *x)
{
    uint32_t dim = x->model->schema.dim;
    float *v = x->k->state, *count = v + 1, *w = x->k->w, decayed[EMBD_DIM_MAX];
    float halflife = x->r->counter_halflife, fade = 1, freq = 1, keep = 1;
    for (uint32_t c = 0; c < dim; c++)
        decayed[c] = x->g[c];
    add_decay(x, decayed);
    if (halflife != 0)
        fade = (float)model_power(fading(halflife), x->since);
    *count = 1 + fade * *count;
    if (halflife != 0)
        freq = halflife / *count;
    *v += model_squares(decayed, dim) / (float)dim;
    float rate = x->o.lr / (sqrtf(*v) + x->o.eps);
    if (x->r->weight_decay != 0)
        keep = 1 - freq * x->r->weight_decay * (x->r->decay == EMBD_DECAY_L2 ? rate : x->o.lr);
    for (uint32_t c = 0; c < dim; c++)
        w[c] = keep * w[c] - rate * x->g[c];
}

static void step_kind(struct work *x)
{
    switch (x->o.kind) {
    case EMBD_OPTIMIZER_LAMB:
        add_decay(x, x->g);
        lamb(x);
        return;
    case EMBD_OPTIMIZER_COUNTER_ADAGRAD:
        counter_adagrad(x);
        return;
    default:
        break;
    }
    add_decay(x, x->g);
    decay_apart(x);
    if (x->o.kind == EMBD_OPTIMIZER_AMSGRAD)
        amsgrad(x);
    else if (x->o.kind == EMBD_OPTIMIZER_PARTIAL_ROWWISE_ADAM)
        partial_rowwise_adam(x);
    else
        model_step_columns(x->model, &x->o, x->k, x->g);
}

void model_step_wholerow(const struct model *model, const embd_optimizer *o, struct model_key *k,
                         const float *g)
{
    uint32_t dim = model->schema.dim;
    const embd_regularization *r = &model->schema.regularization;
    struct work x = {model, r, *o, k, 1, {0}};
    uint64_t prev = model->has_stamp ? model_read_step(k->state + model->optimizer_floats) : 0;
    if (prev != 0 && prev < model->step)
        x.since = model->step - prev;
    for (uint32_t c = 0; c < dim; c++)
        x.g[c] = g[c];
    if (r->clip_value != 0)
        clip_to(-r->clip_value, r->clip_value, x.g, dim);
    bring_norm_to(r->clip_norm, x.g, dim);
    step_kind(&x);
    bring_norm_to(r->max_norm, k->w, dim);
    clip_to(r->weight_min, r->weight_max, k->w, dim);
    if (model->has_stamp)
        model_write_step(k->state + model->optimizer_floats, model->step);
}
