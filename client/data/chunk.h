/* chunk.h - samples that were read, and the one fault after them.
 *
 * A chunk holds samples of one piece, at most a batch of them, in the form of a batch. A fault ends
 * the chunk, so that a caller who takes chunks in order meets samples and faults in order too. */
#ifndef EMBD_DATA_CHUNK_H
#define EMBD_DATA_CHUNK_H

#include "client/data/csr.h"
#include "client/data/data_plan.h"
#include "client/data/inputs.h"
#include "embd/data.h"

enum chunk_fault {
    FAULT_NONE,
    FAULT_SAMPLE, /* one sample was dropped */
    FAULT_FILE,   /* the rest of the piece was left */
    FAULT_FATAL,  /* reading cannot go on: why.status */
};

struct chunk {
    embd_batch batch; /* first: what a user holds is a chunk. Set by embd__chunk_show */
    struct embd_csr csr;
    struct inputs inputs; /* of batches that are handed out */
    float *labels, *dense;
    uint32_t n_samples;
    bool ends_piece;
    enum chunk_fault fault; /* after the last sample */
    struct embd__error why;
    struct chunk *next, *next_made; /* the reader's lists */
};

/* EMBD_NO_MEMORY. To be closed after a failure too. */
int embd__chunk_open(struct chunk *chunk, const struct data_plan *plan, struct embd__error *e);
void embd__chunk_close(struct chunk *chunk);
void embd__chunk_reset(struct chunk *chunk);

/* Copies samples first .. first + n - 1; there must be room for as many samples. EMBD_NO_MEMORY,
 * EMBD_TOO_LARGE. */
int embd__chunk_append(struct chunk *to, const struct chunk *from, uint32_t first, uint32_t n,
                       const embd_data_shape *shape, struct embd__error *e);

/* Exchanges the samples of two chunks, and nothing else. */
void embd__chunk_swap(struct chunk *a, struct chunk *b);

/* Lets chunk->batch show the samples. */
void embd__chunk_show(struct chunk *chunk);

#endif
