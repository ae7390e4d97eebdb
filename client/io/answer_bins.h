/* answer_bins.h - memory for the bins of an answer that is kept as a whole: allocated as they are
 * announced, within the frame limit. */
#ifndef EMBD_IO_ANSWER_BINS_H
#define EMBD_IO_ANSWER_BINS_H

#include "client/io/exchange.h"

/* Zeroed: none. Owner: that of the exchange. */
struct answer_bins {
    void *list[LIMIT_BINS]; /* [n] */
    uint32_t n;
};

/* For on_bin: the memory of bin `index`, aligned to 64. NULL: x->error says why. */
void *embd__answer_bins_add(struct answer_bins *bins, struct exchange *x, uint32_t index,
                            uint32_t bytes);
void embd__answer_bins_fini(struct answer_bins *bins);

#endif
