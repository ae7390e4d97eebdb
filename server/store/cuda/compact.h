/* compact.h - removes rows that no entry names any more. */
#ifndef EMBD_CUDA_COMPACT_H
#define EMBD_CUDA_COMPACT_H

#include "server/store/cuda/cuda_store.h"
#include "server/store/cuda/memory.h"

/* Device memory of a removal. */
struct removal {
    uint32_t *rows; /* the caller's list of rows to remove, in any order */
    uint32_t *sorted, *order, *numbers, *movers, *n_movers;
    uint8_t *is_mover;
    void *temp;
    size_t sort_bytes, select_bytes;
};
/* Memory for n rows at most. */
void compact_lay_out(struct removal *removal, uint32_t n, struct arena *arena);
/* Removes the first n_gone of `rows`: rows from the end take their places. 0 or a device's status.
 */
int compact_rows(struct store *store, const struct removal *removal, uint32_t n_gone);

#endif
