/* model.h - the dense part of the model: two perceptrons and the products between them.
 *
 * The bottom one turns the dense values into a vector like an embedding. The top one sees that
 * vector and the dot products of all pairs among it and the SLOTS embeddings, and gives a logit. */
#ifndef DLRM_MODEL_H
#define DLRM_MODEL_H

#include "client/examples/dlrm/mlp.h"
#include "client/examples/dlrm/planted.h"

#define DIM     8 /* of an embedding */
#define VECTORS (SLOTS + 1)
#define TOP_IN  (DIM + VECTORS * (VECTORS - 1) / 2)

#define BOTTOM_HIDDEN 16
#define TOP_HIDDEN    32

typedef struct model {
    layer bottom[2], top[2];
    float bottom_hidden[BOTTOM_HIDDEN]; /* of the sample that was scored last, as are the others */
    float vectors[VECTORS][DIM];
    float top_in[TOP_IN];
    float top_hidden[TOP_HIDDEN];
} model;

/* False: no memory. To be freed after a failure too. */
bool model_init(model *m);
void model_free(model *m);

float model_logit(model *m, const float dense[DENSE], const float *rows);

/* For the sample that was scored last: adds the gradients of the layers and sets that of its rows
 * [SLOTS][DIM], times `scale`. Returns the loss. */
double model_learn(model *m, const float dense[DENSE], float logit, float label, float scale,
                   float *rows_gradient_out);

/* One step of all layers after n samples. */
void model_step(model *m, float learning_rate, uint32_t n);

#endif
