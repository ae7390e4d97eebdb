/* lent.h - memory of a GPU that another process or this one lends: store_ops.device_open and what
 * belongs to it. Owner: the shard's thread. */
#ifndef EMBD_CUDA_LENT_H
#define EMBD_CUDA_LENT_H

#include "server/store/store.h"

int cuda_device_open(const struct store_device_lent *lent, struct store_device_memory *out,
                     struct embd__error *e);
void cuda_device_close(struct store_device_memory *memory);
int cuda_device_read(void *to, const void *from, uint64_t bytes, struct embd__error *e);

#endif
