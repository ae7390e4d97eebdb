/* packed.h - rows on the wire as small integers with one scale a row: i8 and i4.
 *
 * A row of i8 is int8 codes [dim], then an f32 scale; of i4 two codes a byte, column 2i in the low
 * half, then the scale. With an odd dim the last half is zero. A value is code * scale, one product
 * in f32. A scale is at most EMBD__I8_SCALE_MAX or EMBD__I4_SCALE_MAX, so that every code of
 * a row gives a finite value. Rows follow each other without padding: a scale may lie at any
 * address.
 *
 * Writing: the scale is the greatest magnitude / 127 (i4: / 7), but not beyond its limit. A code is
 * value / scale, to nearest even or by chance, within -127..127 (-7..7). A row of zeros has the
 * scale 0 and codes 0; one with a NaN or infinity has the scale NaN and codes 0. */
#ifndef EMBD_PROTO_PACKED_H
#define EMBD_PROTO_PACKED_H

#include <stdbool.h>

#include "proto/convert.h"

#define EMBD__I8_SCALE_MAX 0x1.fffffep+120f /* FLT_MAX / 128 */
#define EMBD__I4_SCALE_MAX 0x1.fffffep+124f /* FLT_MAX / 8 */

static inline bool embd__is_packed(embd_dtype dtype)
{
    return dtype == EMBD_DTYPE_I8 || dtype == EMBD_DTYPE_I4;
}

/* Of a row on the wire, whatever its dtype. */
static inline size_t embd__wire_row_bytes(embd_dtype dtype, uint32_t dim)
{
    if (embd__is_packed(dtype))
        return (dtype == EMBD_DTYPE_I8 ? dim : (dim + 1) / 2) + sizeof(float);
    return dim * embd__dtype_bytes(dtype);
}

/* The chances by which a push's gradients are rounded, besides row and column. */
struct chance {
    uint64_t id, number; /* of who pushes, and of the push */
    uint32_t table;
};

/* `n` rows. Buffers do not overlap. Any dtype. */
void embd__rows_to_f32(float *to, const void *from, embd_dtype dtype, uint32_t dim, size_t n);
/* To nearest even. */
void embd__rows_from_f32(void *to, embd_dtype dtype, const float *from, uint32_t dim, size_t n);
/* Gradients: rows `row`, `row` + 1, ... of a push; i8 and i4 by chance, others to nearest even. */
void embd__grads_from_f32(void *to, embd_dtype dtype, const float *from, uint32_t dim, size_t n,
                          const struct chance *chance, uint32_t row);

float embd__packed_scale(const void *row, embd_dtype dtype, uint32_t dim);
/* Whether the scale is a number from 0 to its limit, without a sign. */
bool embd__packed_scale_is_valid(float scale, embd_dtype dtype);
/* Whether the half byte that no column has is zero. */
bool embd__packed_pad_is_zero(const void *row, embd_dtype dtype, uint32_t dim);

#endif
