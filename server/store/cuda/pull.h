/* pull.h - pulls. Functions return 0 or a device's status. */
#ifndef EMBD_CUDA_PULL_H
#define EMBD_CUDA_PULL_H

#include "server/store/cuda/call.h"

/* Takes pinned memory and sets `batching`; enqueues nothing, so it may run at any time. */
int pull_prepare(struct call *call);
int pull_start(struct call *call);
/* Pulls that CALL_CAN_BATCH, GATHER_MOST at most, in one launch. */
int pull_start_together(struct call *const *calls, uint32_t n);

#endif
