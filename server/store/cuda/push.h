/* push.h - pushes and inserts, one at a time. */
#ifndef EMBD_CUDA_PUSH_H
#define EMBD_CUDA_PUSH_H

#include "server/store/cuda/call.h"

/* Enqueues everything up to the report. 0 or a device's status. */
int push_start(struct call *call);
/* After push_start: sorts while the report is on its way, if the call is light. */
void push_presort(struct call *call);
/* With the report of a light call: whether it has to be planned after all. push_plan_again enqueues
 * that, up to another report. */
static inline bool push_needs_plan(const struct call *call)
{
    return (call->is_light && call->report->misses) ||
           (call->is_expected && call->report->is_wrong);
}
int push_plan_again(struct call *call);
/* Takes device memory for the step. 0 or a device's status. */
int push_take_memory(struct call *call);
/* With the report: takes all memory and room that push_commit needs. Then push_commit fails only
 * if the device does. EMBD_FULL, EMBD_NO_MEMORY: nothing changed. */
int push_reserve(struct call *call, struct embd__error *e);
int push_commit(struct call *call, struct embd__error *e);
/* With the report, before anything changes: EMBD_NOT_FINITE of gradients that the device looked at.
 */
int push_check(struct call *call, struct embd__error *e);

#endif
