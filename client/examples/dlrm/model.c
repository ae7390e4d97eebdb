/* model.c - the dense part of the model, one sample at a time. */
#include "client/examples/dlrm/model.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

bool model_init(model *m)
{
    *m = (model){0};
    return layer_init(&m->bottom[0], DENSE, BOTTOM_HIDDEN, true, 1) &&
           layer_init(&m->bottom[1], BOTTOM_HIDDEN, DIM, false, 2) &&
           layer_init(&m->top[0], TOP_IN, TOP_HIDDEN, true, 3) &&
           layer_init(&m->top[1], TOP_HIDDEN, 1, false, 4);
}

void model_free(model *m)
{
    for (int i = 0; i < 2; i++) {
        layer_free(&m->bottom[i]);
        layer_free(&m->top[i]);
    }
}

/* ---- forward --------------------------------------------------------------------------------- */

static void multiply_pairs(model *m)
{
    float *to = m->top_in + DIM;
    memcpy(m->top_in, m->vectors[0], sizeof m->vectors[0]);
    for (uint32_t a = 1; a < VECTORS; a++)
        for (uint32_t b = 0; b < a; b++)
            *to++ = dot(m->vectors[a], m->vectors[b], DIM);
}

float model_logit(model *m, const float dense[DENSE], const float *rows)
{
    float logit;
    layer_forward(&m->bottom[0], dense, m->bottom_hidden);
    layer_forward(&m->bottom[1], m->bottom_hidden, m->vectors[0]);
    memcpy(m->vectors[1], rows, SLOTS * sizeof m->vectors[1]);
    multiply_pairs(m);
    layer_forward(&m->top[0], m->top_in, m->top_hidden);
    layer_forward(&m->top[1], m->top_hidden, &logit);
    return logit;
}

/* ---- backward -------------------------------------------------------------------------------- */

/* d (u . v) / d u = v, for each pair and both of it. */
static void spread_pairs(const model *m, const float *gradient, float to[VECTORS][DIM])
{
    const float *g = gradient + DIM;
    memset(to, 0, VECTORS * sizeof to[0]);
    memcpy(to[0], gradient, sizeof to[0]);
    for (uint32_t a = 1; a < VECTORS; a++)
        for (uint32_t b = 0; b < a; b++, g++)
            for (uint32_t c = 0; c < DIM; c++) {
                to[a][c] += *g * m->vectors[b][c];
                to[b][c] += *g * m->vectors[a][c];
            }
}

static double loss_of(float logit, float label)
{
    double margin = label > 0.5f ? logit : -(double)logit;
    return margin > 0 ? log1p(exp(-margin)) : log1p(exp(margin)) - margin;
}

double model_learn(model *m, const float dense[DENSE], float logit, float label, float scale,
                   float *rows_gradient_out)
{
    float of_logit = 1 / (1 + expf(-logit)) - label;
    float of_top[TOP_HIDDEN], of_top_in[TOP_IN], of_bottom[BOTTOM_HIDDEN];
    float of_vectors[VECTORS][DIM];
    layer_backward(&m->top[1], m->top_hidden, &logit, &of_logit, of_top);
    layer_backward(&m->top[0], m->top_in, m->top_hidden, of_top, of_top_in);
    spread_pairs(m, of_top_in, of_vectors);
    layer_backward(&m->bottom[1], m->bottom_hidden, m->vectors[0], of_vectors[0], of_bottom);
    layer_backward(&m->bottom[0], dense, m->bottom_hidden, of_bottom, NULL);
    for (uint32_t s = 0; s < SLOTS; s++)
        for (uint32_t c = 0; c < DIM; c++)
            rows_gradient_out[s * DIM + c] = scale * of_vectors[s + 1][c];
    return loss_of(logit, label);
}

void model_step(model *m, float learning_rate, uint32_t n)
{
    for (int i = 0; i < 2; i++) {
        layer_step(&m->bottom[i], learning_rate, (float)n);
        layer_step(&m->top[i], learning_rate, (float)n);
    }
}
