/* convert.h - arrays of f32 to and from the dtypes of wire and rows, as fast as the machine can.
 * Every path gives the bits of the functions of dtype.h, one value at a time. */
#ifndef EMBD_PROTO_CONVERT_H
#define EMBD_PROTO_CONVERT_H

#include "proto/dtype.h"

/* n values of f16 or bf16. */
void embd__widen(float *to, const uint16_t *from, embd_dtype dtype, size_t n);
void embd__narrow(uint16_t *to, embd_dtype dtype, const float *from, size_t n);

/* n values from memory of `dtype` to f32, and back. Elementwise; buffers do not overlap. */
static inline void embd__to_f32(float *to, const void *from, embd_dtype dtype, size_t n)
{
    if (dtype == EMBD_DTYPE_F32)
        memcpy(to, from, n * sizeof *to);
    else
        embd__widen(to, (const uint16_t *)from, dtype, n);
}

static inline void embd__from_f32(void *to, embd_dtype dtype, const float *from, size_t n)
{
    if (dtype == EMBD_DTYPE_F32)
        memcpy(to, from, n * sizeof *from);
    else
        embd__narrow((uint16_t *)to, dtype, from, n);
}

#endif
