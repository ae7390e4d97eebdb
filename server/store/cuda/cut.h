/* cut.h - cuts: freezes a table, and reads it while calls change it. */
#ifndef EMBD_CUDA_CUT_H
#define EMBD_CUDA_CUT_H

#include "server/store/cuda/cuda_store.h"

/* Functions of store_ops. */
int cuda_freeze(struct store *store, struct store_cut *cut, struct embd__error *e);
int cuda_scan_frozen(struct store *store, uint32_t max_rows, struct store_scan *out, bool *done_out,
                     struct embd__error *e);
void cuda_thaw(struct store *store);
void cuda_forget(struct store *store, uint64_t cut);

/* The steps of cuda_freeze. A group takes each on all of its devices. cuda_cut_freeze sets has_all
 * and may run out of memory; changes are recorded from cuda_cut_note on. */
int cuda_cut_prepare(struct store *store, const struct store_cut *cut, struct embd__error *e);
int cuda_cut_freeze(struct store *store, struct store_cut *cut, struct embd__error *e);
int cuda_cut_note(struct store *store, const struct store_cut *cut, struct embd__error *e);
/* Reads the next removed keys; false: no more. */
bool cuda_read_gone(struct store *store, uint32_t max_rows, struct store_scan *out);

#endif
