/* answer_bins.c - see answer_bins.h. */
#include "client/io/answer_bins.h"

#include <stdlib.h>

void *embd__answer_bins_add(struct answer_bins *bins, struct exchange *x, uint32_t index,
                            uint32_t bytes)
{
    if (index == LIMIT_BINS) {
        embd__error_set(&x->error, EMBD_PROTOCOL, "the answer has more than %u bins", LIMIT_BINS);
        return NULL;
    }
    void *data = aligned_alloc(64, ((size_t)bytes + 64) / 64 * 64);
    if (data == NULL)
        embd__error_set(&x->error, EMBD_NO_MEMORY, "no memory for %u bytes of an answer", bytes);
    bins->list[index] = data;
    bins->n = index + 1;
    return data;
}

void embd__answer_bins_fini(struct answer_bins *bins)
{
    for (uint32_t i = 0; i < bins->n; i++)
        free(bins->list[i]);
    bins->n = 0;
}
