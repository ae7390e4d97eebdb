/* optimizer.c - one step of one row, by the formulas of embd.h, in f32 without fused multiply-add.
 */
#include <math.h>
#include <string.h>

#include "tests/model/inside.h"

double model_power(double base, uint64_t n)
{
    double result = 1;
    for (; n; n /= 2, base *= base)
        if (n % 2)
            result *= base;
    return result;
}

/* In 32 lanes, halved again and again: see server/store/optimizer.h. */
float model_squares(const float *g, uint32_t dim)
{
    float lane[32] = {0};
    for (uint32_t c = 0; c < dim; c++)
        lane[c % 32] += g[c] * g[c];
    for (uint32_t n = 16; n; n /= 2)
        for (uint32_t l = 0; l < n; l++)
            lane[l] += lane[l + n];
    return lane[0];
}

static void step_ftrl(const embd_optimizer *o, float *w, float *n, float *z, float g)
{
    float root_before = sqrtf(*n + o->eps);
    *n += g * g;
    float root = sqrtf(*n + o->eps);
    *z += g - (root - root_before) / o->lr * *w;
    *w = 0;
    if (fabsf(*z) > o->l1)
        *w = ((*z < 0 ? -o->l1 : o->l1) - *z) / (root / o->lr + o->l2 + o->beta / o->lr);
}

/* One column. s and s2 are its state, where the optimizer has as much. */
static void step_column(const embd_optimizer *o, uint64_t t, float *w, float *s, float *s2, float g)
{
    float before = s ? *s : 0;
    double alpha;
    switch (o->kind) {
    case EMBD_OPTIMIZER_SGD:
        *w -= o->lr * g;
        break;
    case EMBD_OPTIMIZER_MOMENTUM:
        *s = o->momentum * *s - o->lr * g;
        *w += *s;
        break;
    case EMBD_OPTIMIZER_NESTEROV:
        *s = o->momentum * before - o->lr * g;
        *w += -o->momentum * before + (1 + o->momentum) * *s;
        break;
    case EMBD_OPTIMIZER_ADAGRAD:
        *s += g * g;
        *w -= o->lr * g / (sqrtf(*s) + o->eps);
        break;
    case EMBD_OPTIMIZER_ROWWISE_ADAGRAD: /* the row's one number has grown already */
        *w -= o->lr * g / (sqrtf(*s) + o->eps);
        break;
    case EMBD_OPTIMIZER_ADAM:
        alpha = o->lr * sqrt(1 - model_power(o->beta2, t)) / (1 - model_power(o->beta1, t));
        *s = o->beta1 * *s + (1 - o->beta1) * g;
        *s2 = o->beta2 * *s2 + (1 - o->beta2) * g * g;
        *w -= (float)alpha * *s / (sqrtf(*s2) + o->eps);
        break;
    case EMBD_OPTIMIZER_RMSPROP:
        *s = o->beta2 * *s + (1 - o->beta2) * g * g;
        *w -= o->lr * g / (sqrtf(*s) + o->eps);
        break;
    case EMBD_OPTIMIZER_FTRL:
        step_ftrl(o, w, s, s2, g);
        break;
    default: /* wholerow.c has the others */
        break;
    }
}

/* adam with lazy_global: what the steps since the row's last one owe, then m and v of now. */
static void step_lazily(const struct model *model, const embd_optimizer *o, struct model_key *k,
                        const float *g)
{
    uint32_t dim = model->schema.dim;
    float *m = k->state, *v = m + dim, *stamp = v + dim, pay = 0, decay1 = 1, decay2 = 1;
    uint64_t prev = model_read_step(stamp), t = model->step;
    if (prev != 0 && prev < t) {
        double beta1 = o->beta1, beta2 = o->beta2, decay = model_power(beta1, t - prev);
        pay = (float)(o->lr / (1 - beta1) * sqrt(1 - model_power(beta2, prev)) /
                      (1 - model_power(beta1, prev)) * (1 - decay));
        decay1 = (float)decay;
        decay2 = (float)model_power(beta2, t - prev);
    }
    for (uint32_t c = 0; c < dim; c++) {
        if (pay != 0)
            k->w[c] -= pay * m[c] / (sqrtf(v[c]) + o->eps);
        m[c] = decay1 * m[c] + (1 - o->beta1) * g[c];
        v[c] = decay2 * v[c] + (1 - o->beta2) * g[c] * g[c];
    }
    model_write_step(stamp, t);
}

void model_step_columns(const struct model *model, const embd_optimizer *o, struct model_key *k,
                        const float *g)
{
    uint32_t dim = model->schema.dim, n = model->optimizer_floats;
    if (o->kind == EMBD_OPTIMIZER_ROWWISE_ADAGRAD)
        k->state[0] += model_squares(g, dim) / (float)dim;
    for (uint32_t c = 0; c < dim; c++) {
        float *s = n == 0 ? NULL : n == 1 ? k->state : k->state + c;
        float *s2 = n == 2 * dim ? k->state + dim + c : NULL;
        step_column(o, model->step, &k->w[c], s, s2, g[c]);
    }
}

/* The chance of a column: the seed, the key, the slot, the table's pushes and the column decide.
 * Eight columns take a draw of four words, a half each. */
static uint32_t chance_of(const struct model *model, const struct model_key *k, uint32_t c)
{
    const embd_schema *s = &model->schema;
    uint32_t words[4], counter[4] = {(uint32_t)k->key, (uint32_t)(k->key >> 32),
                                     c / 8 + 65536 * k->slot, (uint32_t)model->step};
    uint32_t key[2] = {(uint32_t)s->seed ^ 0x524e4453u,
                       (uint32_t)(s->seed >> 32) ^ (uint32_t)(model->step >> 32)};
    model_philox(counter, key, words);
    uint32_t word = words[c % 8 / 2];
    return c % 2 ? word >> 16 : word & 0xffff;
}

/* To the table's dtype: to nearest, or by chance. */
static void round_row(const struct model *model, struct model_key *k)
{
    const embd_schema *s = &model->schema;
    uint32_t chances[EMBD_DIM_MAX];
    bool by_chance = s->rounding == EMBD_ROUNDING_STOCHASTIC;
    for (uint32_t c = 0; c < s->dim && by_chance; c++)
        chances[c] = chance_of(model, k, c);
    if (model_has_codes(s->dtype)) {
        k->scale = model_round_codes(k->w, s->dim, s->dtype, by_chance ? chances : NULL);
        return;
    }
    for (uint32_t c = 0; c < s->dim; c++)
        k->w[c] = by_chance ? model_round_by(k->w[c], s->dtype, chances[c])
                            : model_round(k->w[c], s->dtype);
}

void model_step_row(const struct model *model, struct model_key *k, const float *g)
{
    embd_optimizer o = model->schema.optimizer;
    size_t bytes = model->schema.dim * sizeof *k->w;
    if (model->has_master)
        memcpy(k->w, k->state + model->master_at, bytes);
    if (model->lr > 0)
        o.lr = model->lr;
    if (o.kind == EMBD_OPTIMIZER_ADAGRAD || o.kind == EMBD_OPTIMIZER_ROWWISE_ADAGRAD)
        o.lr =
            (float)(o.lr / (1 + (double)(model->step - 1) * model->schema.regularization.lr_decay));
    if (model_is_wholerow(&model->schema))
        model_step_wholerow(model, &o, k, g);
    else if (o.update == EMBD_UPDATE_LAZY_GLOBAL)
        step_lazily(model, &o, k, g);
    else
        model_step_columns(model, &o, k, g);
    if (model->has_master)
        memcpy(k->state + model->master_at, k->w, bytes);
    round_row(model, k);
}
