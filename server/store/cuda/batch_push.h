/* batch_push.h - small pushes that wait together go together: two launches, and no report in
 * between. batch_push.c says when. */
#ifndef EMBD_CUDA_BATCH_PUSH_H
#define EMBD_CUDA_BATCH_PUSH_H

#include "server/store/cuda/call.h"
#include "server/store/cuda/kernels/batch_push.h"

/* Sets `batching` of a push; enqueues nothing, so it may run at any time. */
void batch_push_prepare(struct call *call);
/* Fills in this push and those right behind it that can go together; returns how many, at most
 * BATCH_PUSHES_MAX. 0: the first is better alone. */
uint32_t batch_push_choose(struct call *first, struct call **calls);
/* Enqueues all of them, but not the flag. 0 or a device's status; DEVICE_NO_MEMORY: the table has
 * not changed and will not. */
int batch_push_start(struct call *const *calls, uint32_t n);
/* With the report: sets the results of each push. False: the batch changed nothing, and its pushes
 * must go one by one. */
bool batch_push_end(struct call *first);

#endif
