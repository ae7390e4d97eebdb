/* overlap.h - finds keys that more than one slot uses. */
#ifndef EMBD_DATA_OVERLAP_H
#define EMBD_DATA_OVERLAP_H

#include "proto/errors.h"
#include "embd/data.h"

/* Every key met so far with its slot: an open-addressing table. Zero is an empty one. */
struct overlap {
    uint64_t *keys;  /* [n_cells] */
    uint16_t *slots; /* [n_cells] slot + 1; 0: the cell is free */
    uint64_t n_cells, n_used;
};

/* Adds the keys of a batch. EMBD_CORRUPT names the first key that has two slots, and both;
 * EMBD_NO_MEMORY. */
int embd__overlap_check(struct overlap *overlap, const embd_batch *batch, uint32_t n_slots,
                        struct embd__error *e);

void embd__overlap_free(struct overlap *overlap);

#endif
