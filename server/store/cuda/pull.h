/* pull.h - pulls. Functions return 0 or a device's status. */
#ifndef EMBD_CUDA_PULL_H
#define EMBD_CUDA_PULL_H

#include "server/store/cuda/call.h"

/* Takes pinned memory and sets `batching`; enqueues nothing, so it may run at any time. */
int pull_prepare(struct call *call);
int pull_start(struct call *call);
/* Pulls that CALL_CAN_BATCH, GATHER_MOST at most, in one launch. */
int pull_start_together(struct call *const *calls, uint32_t n);

/* Of a pull under way that has several pieces: tells of those that are made. */
void pull_tell(struct call *call);
/* The first `bytes` of the values are made, and come to the caller. */
void pull_hand_over(struct call *call, uint64_t bytes);

#endif
