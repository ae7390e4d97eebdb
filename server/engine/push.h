/* push.h - one optimizer step: the gradients of one to several tables, all or none. */
#ifndef EMBD_ENGINE_PUSH_H
#define EMBD_ENGINE_PUSH_H

#include "server/engine/op.h"

/* As engine_admit and engine_apply. */
int push_admit(struct op *op);
void push_apply(struct op *op);

#endif
