/* push.h - one optimizer step: the gradients of one to several tables, all or none. */
#ifndef EMBD_ENGINE_PUSH_H
#define EMBD_ENGINE_PUSH_H

#include "server/engine/op.h"

/* Of an operation with a number. The first: whether it is to be applied, as far as is known now:
 * EMBD_GAP, EMBD_FORGOTTEN, or op->is_again. The second, when it is applied: notes the number, or
 * as above. The third: it was refused after all, and changed nothing. */
int push_look(struct op *op);
int push_take_turn(struct op *op);
void push_give_turn_back(struct op *op);

/* As engine_admit and engine_apply. */
int push_admit(struct op *op);
void push_apply(struct op *op);

#endif
