/* scale.h - the gradients of pooled rows, divided as their rows were. */
#ifndef EMBD_ENGINE_SCALE_H
#define EMBD_ENGINE_SCALE_H

#include "server/engine/op.h"

/* A push's parts with `scale` become parts without: their weights are weight / divisor of the row,
 * in memory of the operation. Stores, rounds and journals see weights alone. EMBD_INVALID: such a
 * weight is not finite; EMBD_NO_MEMORY. */
int scale_push(struct op *op, struct embd__error *e);

#endif
