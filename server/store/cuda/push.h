/* push.h - pushes and inserts, one at a time. */
#ifndef EMBD_CUDA_PUSH_H
#define EMBD_CUDA_PUSH_H

#include "server/store/cuda/call.h"

/* Enqueues everything up to the report. 0 or a device's status. */
int push_start(struct call *call);
/* After push_start: sorts while the report is on its way. Optional; may do nothing. */
void push_presort(struct call *call);
/* Takes device memory for the step. 0 or a device's status. */
int push_take_memory(struct call *call);
/* With the report: takes all memory and room that push_commit needs. Then push_commit fails only
 * if the device does. EMBD_FULL, EMBD_NO_MEMORY: nothing changed. */
int push_reserve(struct call *call, struct embd__error *e);
int push_commit(struct call *call, struct embd__error *e);

#endif
