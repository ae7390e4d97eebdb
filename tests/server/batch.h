/* batch.h - random CSR batches, and what the model says of them, in the shape of a request's part.
 */
#ifndef EMBD_TESTS_SERVER_BATCH_H
#define EMBD_TESTS_SERVER_BATCH_H

#include "proto/message.h"
#include "tests/model/model.h"

#define BATCH_ROWS 200u
#define BATCH_KEYS 800u

struct batch {
    uint64_t random; /* state of the generator */
    uint32_t n_keys, n_rows;
    uint64_t keys[BATCH_KEYS];
    uint32_t offsets[BATCH_ROWS + 1];
    uint16_t slots[BATCH_KEYS];
    float weights[BATCH_KEYS];
    float grads[BATCH_KEYS * 64];      /* f32, values a half can hold */
    uint8_t wire[BATCH_KEYS * 64 * 4]; /* grads in the wire dtype */
};

uint64_t batch_random(struct batch *batch);
/* A new batch for the schema: keys below 1000, some rows empty. */
void batch_fill(struct batch *batch, const embd_schema *schema);

struct part batch_part(struct batch *batch, const embd_schema *schema, embd_dtype dtype,
                       bool weighted);
struct model_batch batch_model(const struct batch *batch, const embd_schema *schema, bool weighted);

#endif
