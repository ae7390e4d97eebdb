/* planted.h - the truth behind a made-up click log: samples, and how likely each is clicked.
 *
 * Everything is a function of the sample's number, or of its values: whoever holds a sample can
 * ask what the best possible model would say about it. */
#ifndef DLRM_PLANTED_H
#define DLRM_PLANTED_H

#include <stdint.h>

#define DENSE 13 /* as many as the Criteo click logs have */
#define SLOTS 26

/* Keys of slot s are 0 to planted_slot_sizes[s] - 1. */
extern const uint64_t planted_slot_sizes[SLOTS];

/* Sample i: its values and whether it was clicked (1 or 0). */
void planted_sample(uint64_t i, float *label_out, float dense_out[DENSE], uint64_t keys_out[SLOTS]);

/* The logarithm of the odds of a click. */
float planted_logit(const float dense[DENSE], const uint64_t keys[SLOTS]);

#endif
