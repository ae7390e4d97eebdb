/* unpack.h - rows of i8 and i4 as the stores, rounds and journals see them: f32. */
#ifndef EMBD_ENGINE_UNPACK_H
#define EMBD_ENGINE_UNPACK_H

#include "server/engine/op.h"

/* Bytes of f32 that the i8 and i4 gradients of a push become; 0: it has none. */
uint64_t unpack_bytes(const struct op *op);
/* A push's gradients of i8 and i4, which have been checked, become f32 in memory of the operation.
 * EMBD_TOO_LARGE: they would have more than `limit` bytes, at most LIMIT_PUSH_BYTES;
 * EMBD_NO_MEMORY. */
int unpack_push(struct op *op, uint64_t limit, struct embd__error *e);

#endif
