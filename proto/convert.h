/* convert.h - arrays of f32 to and from the dtypes of wire and rows, as fast as the machine can.
 * Every path gives the bits of the functions of dtype.h, one value at a time. */
#ifndef EMBD_PROTO_CONVERT_H
#define EMBD_PROTO_CONVERT_H

#include "proto/rowcode.h"

/* n values of f16 or bf16. */
void embd__widen(float *to, const uint16_t *from, embd_dtype dtype, size_t n);
void embd__narrow(uint16_t *to, embd_dtype dtype, const float *from, size_t n);

/* A coded row (rowcode.h): stored to f32 [dim], and back to nearest. */
void embd__codes_widen(float *to, const void *row, embd_dtype dtype, uint32_t dim);
void embd__codes_narrow(void *row, embd_dtype dtype, const float *from, uint32_t dim);
/* The beginning of narrowing: writes and returns the scale; all codes are 0. */
float embd__codes_begin(void *row, embd_dtype dtype, const float *from, uint32_t dim);

/* n values from memory of `dtype` to f32, and back. Elementwise; buffers do not overlap. Without
 * values there may be no buffers. */
static inline void embd__to_f32(float *to, const void *from, embd_dtype dtype, size_t n)
{
    if (n == 0)
        return;
    if (dtype == EMBD_DTYPE_F32)
        memcpy(to, from, n * sizeof *to);
    else
        embd__widen(to, (const uint16_t *)from, dtype, n);
}

static inline void embd__from_f32(void *to, embd_dtype dtype, const float *from, size_t n)
{
    if (n == 0)
        return;
    if (dtype == EMBD_DTYPE_F32)
        memcpy(to, from, n * sizeof *from);
    else
        embd__narrow((uint16_t *)to, dtype, from, n);
}

/* A stored row's values to f32 [dim], and back to nearest. */
static inline void embd__row_to_f32(float *to, const void *row, embd_dtype dtype, uint32_t dim)
{
    if (embd__dtype_is_coded(dtype))
        embd__codes_widen(to, row, dtype, dim);
    else
        embd__to_f32(to, row, dtype, dim);
}

static inline void embd__row_from_f32(void *row, embd_dtype dtype, const float *from, uint32_t dim)
{
    if (embd__dtype_is_coded(dtype))
        embd__codes_narrow(row, dtype, from, dim);
    else
        embd__from_f32(row, dtype, from, dim);
}

#endif
