/* unpack.c - gradients of i8 and i4, as f32. What they become is counted as if it had come: a push
 * has one limit, however it travels, and its record fits a journal. */
#include "server/engine/unpack.h"

#include <stdlib.h>

#include "proto/limit.h"

static float *unpack_part(struct op_part *part, float *to)
{
    uint64_t bytes = unpack_part_bytes(part);
    if (!embd__is_packed(part->in.dtype))
        return to;
    embd__rows_to_f32(to, part->in.grads, part->in.dtype, part->table->schema.s.dim,
                      part->in.n_rows);
    part->in.dtype = EMBD_DTYPE_F32;
    part->in.grads = to;
    part->in.grads_bytes = bytes;
    return to + bytes / sizeof *to;
}

int unpack_push(struct op *op, uint64_t limit, struct embd__error *e)
{
    uint64_t bytes = unpack_bytes(op);
    if (bytes > limit)
        return embd__error_set(e, EMBD_TOO_LARGE,
                               "the gradients would have %llu bytes as f32, the limit of a push "
                               "is %llu (push_limit)",
                               (unsigned long long)bytes, (unsigned long long)limit);
    op->unpacked = bytes > 0 ? malloc(bytes) : NULL;
    if (bytes > 0 && op->unpacked == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for %llu bytes of gradients as f32",
                               (unsigned long long)bytes);
    float *to = op->unpacked;
    for (uint32_t i = 0; i < op->n_parts; i++)
        to = unpack_part(&op->parts[i], to);
    return EMBD_OK;
}
