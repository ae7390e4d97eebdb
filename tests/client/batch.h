/* batch.h - random CSR batches, and what a pull of them must answer by the model: the plain
 * computation of both plans, for any number of shards. */
#ifndef EMBD_TESTS_BATCH_H
#define EMBD_TESTS_BATCH_H

#include <stdbool.h>

#include "tests/model/model.h"

#define BATCH_KEYS_MAX 4096u

/* Also the arrays of an embd_part. */
struct batch {
    uint64_t n_rows, n_keys;
    uint64_t offsets[BATCH_KEYS_MAX + 1];
    uint64_t keys[BATCH_KEYS_MAX];
    float weights[BATCH_KEYS_MAX];
    bool has_weights;
    /* The same for the model: stored keys, the row's slot, offsets in 32 bits, each key's slot. */
    uint64_t stored[BATCH_KEYS_MAX];
    uint32_t offsets32[BATCH_KEYS_MAX + 1];
    uint16_t row_slots[BATCH_KEYS_MAX], key_slots[BATCH_KEYS_MAX];
    uint32_t key_rows[BATCH_KEYS_MAX];
};

uint64_t batch_random(uint64_t *state);
float batch_random_float(uint64_t *state); /* [-1, 1) */

/* Up to 5 keys a row of `n_distinct` different ones; a multiple of the schema's slots. Every few
 * rows none. */
void batch_make(struct batch *batch, const embd_schema *schema, uint64_t n_samples,
                uint64_t n_distinct, bool has_weights, uint64_t *state);

/* What pulling the batch answers, and what it leaves in the model (create_on = pull). `pooled`:
 * rows of the combiner, else of single keys. Row statuses too. */
void batch_expect(struct model *model, const struct batch *batch, bool pooled, bool by_rows,
                  uint32_t n_shards, embd_dtype wire, bool zero_missing, float *values,
                  uint8_t *statuses);

/* Pushes to the model what embd_push of these values does, f32 wire. */
int batch_push(struct model *model, const struct batch *batch, bool pooled, const float *values,
               uint8_t *statuses);

#endif
