/* batch.h - rows on their way to one shard, gathered until a block is full. */
#ifndef EMBD_FORMATS_BATCH_H
#define EMBD_FORMATS_BATCH_H

#include "proto/message.h"

/* The arrays are one allocation, made with the first row. */
struct batch {
    uint32_t capacity; /* of rows, and of candidates */
    uint32_t n_rows, n_candidates;
    uint64_t *keys;
    uint16_t *slots; /* slot tables only */
    uint8_t *rows;
    float *states; /* NULL without state */
    uint64_t *candidate_keys;
    uint16_t *candidate_slots;
    uint32_t *candidate_counts;
    void *memory;
};

/* Room for as many rows, and as many candidates, as fit in `bytes`; at least one. EMBD_NO_MEMORY.
 */
int embd__batch_open(struct batch *batch, const embd_schema *schema, uint64_t bytes,
                     struct embd__error *e);
void embd__batch_close(struct batch *batch);

/* Copies row or candidate `i` of a block; there must be room. */
void embd__batch_add_row(struct batch *batch, const embd_schema *schema,
                         const struct row_block *block, uint32_t i);
void embd__batch_add_candidate(struct batch *batch, const struct row_block *block, uint32_t i);

/* The batch as a block, valid until it changes. */
struct row_block embd__batch_block(const struct batch *batch);

#endif
