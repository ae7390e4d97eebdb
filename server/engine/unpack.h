/* unpack.h - rows of i8 and i4 as the stores, rounds and journals see them: f32. */
#ifndef EMBD_ENGINE_UNPACK_H
#define EMBD_ENGINE_UNPACK_H

#include "proto/packed.h"
#include "server/engine/op.h"

static inline uint64_t unpack_part_bytes(const struct op_part *part)
{
    if (!embd__is_packed(part->in.dtype))
        return 0;
    return sizeof(float) * part->in.n_rows * (uint64_t)part->table->schema.s.dim;
}

/* Bytes of f32 that the i8 and i4 gradients of a push become; 0: it has none. */
static inline uint64_t unpack_bytes(const struct op *op)
{
    uint64_t bytes = 0; /* at most 2^12 * 2^22 * 2^14 */
    for (uint32_t i = 0; i < op->n_parts && op->kind == OP_PUSH; i++)
        bytes += unpack_part_bytes(&op->parts[i]);
    return bytes;
}

/* A push's gradients of i8 and i4, which have been checked, become f32 in memory of the operation.
 * EMBD_TOO_LARGE: they would have more than `limit` bytes, at most LIMIT_PUSH_BYTES;
 * EMBD_NO_MEMORY. */
int unpack_push(struct op *op, uint64_t limit, struct embd__error *e);

#endif
