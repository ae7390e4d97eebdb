/* machine.h - a factorization machine over pooled slots.
 *
 * With l_s the pooled linear weight and v_s [dim] the pooled factors of slot s,
 *
 *     logit = sum over s of l_s + sum over pairs s < t of <v_s, v_t>
 *           = sum l_s + (|sum v_s|^2 - sum |v_s|^2) / 2   (Rendle 2010)
 *
 * There is no constant term: A's section is in every sample and plays its part. The loss is the
 * logistic one. */
#ifndef FM_MACHINE_H
#define FM_MACHINE_H

#include <stdint.h>

/* The logit of one sample. linear [slots], factors [slots][dim]. */
float machine_logit(const float *linear, const float *factors, uint32_t slots, uint32_t dim);

/* The loss of one sample, -log of the probability the model gave to the label. */
double machine_loss(float logit, float label);

/* Turns the pulled values into the gradient of the loss, in place. linear [slots], factors
 * [slots][dim]. */
void machine_gradient(float *linear, float *factors, uint32_t slots, uint32_t dim, float logit,
                      float label);

#endif
