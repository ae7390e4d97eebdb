/* queue.h - the calls of a store, in the order made: from submission to done. Owner: the shard's
 * thread. */
#ifndef EMBD_CUDA_QUEUE_H
#define EMBD_CUDA_QUEUE_H

#include "server/store/cuda/call.h"

/* `request` is a store_pull or store_change. An error is reported by done, also from
 * inside. */
void cuda_submit(struct store *store, enum call_kind kind, void *request, struct store_done *done);
bool cuda_collect(struct store *store);
int cuda_cancel(struct store *store, struct store_ticket *ticket);
/* Waits until all calls have ended. cuda_collect calls their dones later. */
void cuda_wait_all(struct store *store);

#endif
