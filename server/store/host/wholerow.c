/* wholerow.c - one step of a row that needs more than its columns one by one: the loops around the
 * formulas of server/store/wholerow.h. Nothing of it can fail. */
#include "server/store/wholerow.h"

#include "server/store/host/table.h"

/* Steps 1 to 3 into `to`. */
static void make_gradient(const struct wholerow_step *p, const float *restrict w,
                          const float *restrict g, float *restrict to)
{
    for (uint32_t c = 0; c < p->dim; c++)
        to[c] = wholerow_clip(p, g[c]);
    float factor =
        p->clip_norm > 0.0f ? wholerow_factor(p->clip_norm, optimizer_squares(to, p->dim)) : 1.0f;
    for (uint32_t c = 0; c < p->dim; c++)
        to[c] = wholerow_scale(to[c], factor);
    if (wholerow_adds_decay(p))
        for (uint32_t c = 0; c < p->dim; c++)
            to[c] = wholerow_gradient(p, w[c], to[c]);
}

/* Steps 6 and 7. */
static void limit_row(const struct wholerow_step *p, float *w)
{
    float factor =
        p->max_norm > 0.0f ? wholerow_factor(p->max_norm, optimizer_squares(w, p->dim)) : 1.0f;
    for (uint32_t c = 0; c < p->dim; c++)
        w[c] = wholerow_limit(p, w[c], factor);
}

/* counter_adagrad adds no decay to the gradient itself, but its squares have it. */
static float squares_of(const struct wholerow_step *p, const float *w, const float *g)
{
    float decayed[EMBD_DIM_MAX];
    if (p->kind != EMBD_OPTIMIZER_COUNTER_ADAGRAD || p->l2 == 0.0f)
        return optimizer_squares(g, p->dim);
    for (uint32_t c = 0; c < p->dim; c++)
        decayed[c] = wholerow_gradient(p, w[c], g[c]);
    return optimizer_squares(decayed, p->dim);
}

static inline void step_kind(embd_optimizer_kind kind, const struct wholerow_step *p,
                             float *restrict w, float *restrict state, const float *restrict g)
{
    float squares = wholerow_has_squares(kind) ? squares_of(p, w, g) : 0.0f;
    struct wholerow_row row = wholerow_enter(kind, p, state, squares);
    for (uint32_t c = 0; c < p->dim; c++)
        w[c] = wholerow_column(kind, p, &row, w[c], state, c, g[c]);
    wholerow_leave(kind, p, &row, state);
}

static void step_lamb(const struct wholerow_step *p, float *restrict w, float *restrict state,
                      const float *restrict g)
{
    float d[EMBD_DIM_MAX];
    struct wholerow_row row = wholerow_enter(EMBD_OPTIMIZER_LAMB, p, state, 0.0f);
    for (uint32_t c = 0; c < p->dim; c++)
        d[c] = wholerow_column(EMBD_OPTIMIZER_LAMB, p, &row, w[c], state, c, g[c]);
    float rate = wholerow_rate(p, optimizer_squares(w, p->dim), optimizer_squares(d, p->dim));
    for (uint32_t c = 0; c < p->dim; c++)
        w[c] = w[c] - rate * d[c];
    wholerow_leave(EMBD_OPTIMIZER_LAMB, p, &row, state);
}

/* A loop for each kind, so that the choice falls out of it. */
#define CASE(kind)                                                                                 \
    case EMBD_OPTIMIZER_##kind:                                                                    \
        step_kind(EMBD_OPTIMIZER_##kind, p, w, state, g);                                          \
        break

static void step(const struct wholerow_step *p, float *w, float *state, const float *g)
{
    switch (p->kind) {
        CASE(SGD);
        CASE(MOMENTUM);
        CASE(NESTEROV);
        CASE(ADAGRAD);
        CASE(ROWWISE_ADAGRAD);
        CASE(ADAM);
        CASE(RMSPROP);
        CASE(FTRL);
        CASE(AMSGRAD);
        CASE(PARTIAL_ROWWISE_ADAM);
        CASE(COUNTER_ADAGRAD);
    case EMBD_OPTIMIZER_LAMB:
        step_lamb(p, w, state, g);
        break;
    }
}

void wholerow_apply(const struct wholerow_step *p, float *w, float *state, const float *g)
{
    float gradient[EMBD_DIM_MAX];
    make_gradient(p, w, g, gradient);
    step(p, w, state, gradient);
    limit_row(p, w);
}
