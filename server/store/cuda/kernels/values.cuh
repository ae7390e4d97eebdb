/* values.cuh - rows in units of four columns: what a lane works on, what one Philox call draws,
 * what one 16-byte access moves. Columns beyond `dim` read as 0, and are written only inside a
 * row's padding. */
#ifndef EMBD_CUDA_VALUES_CUH
#define EMBD_CUDA_VALUES_CUH

#include "proto/combine.h"
#include "server/store/cuda/kernels/launch.cuh"
#include "server/store/rounding.h"

struct four {
    float c[4];
};

__device__ static inline uint32_t fours_of(uint32_t dim)
{
    return (dim + 3) / 4;
}

/* Lanes of one row, a power of two: each has four columns, or every 32nd group of four in wider
 * rows. */
static inline __host__ __device__ uint32_t lanes_for(uint32_t dim)
{
    uint32_t lanes = 1;
    while (lanes < 32 && lanes * 4 < dim)
        lanes *= 2;
    return lanes;
}

__device__ static inline float one_load(const void *row, embd_dtype dtype, uint64_t at)
{
    if (dtype == EMBD_DTYPE_F32)
        return ((const float *)row)[at];
    return embd__f32_from_half(((const uint16_t *)row)[at], dtype);
}

__device__ static inline void one_store(void *row, embd_dtype dtype, uint64_t at, float value)
{
    if (dtype == EMBD_DTYPE_F32)
        ((float *)row)[at] = value;
    else
        ((uint16_t *)row)[at] = embd__half_from_f32(value, dtype);
}

__device__ static inline float half_load(uint32_t half, embd_dtype dtype)
{
    return embd__f32_from_half((uint16_t)half, dtype);
}

__device__ static inline uint32_t half_store(float value, embd_dtype dtype)
{
    return embd__half_from_f32(value, dtype);
}

/* Four values at `at`, a multiple of four. */
__device__ static inline four four_load(const void *row, embd_dtype dtype, uint64_t at)
{
    four v;
    if (dtype == EMBD_DTYPE_F32) {
        float4 x = *(const float4 *)((const float *)row + at);
        v.c[0] = x.x, v.c[1] = x.y, v.c[2] = x.z, v.c[3] = x.w;
    } else {
        uint2 x = *(const uint2 *)((const uint16_t *)row + at);
        v.c[0] = half_load(x.x & 0xffff, dtype), v.c[1] = half_load(x.x >> 16, dtype);
        v.c[2] = half_load(x.y & 0xffff, dtype), v.c[3] = half_load(x.y >> 16, dtype);
    }
    return v;
}

__device__ static inline void four_store(void *row, embd_dtype dtype, uint64_t at, four v)
{
    if (dtype == EMBD_DTYPE_F32)
        *(float4 *)((float *)row + at) = make_float4(v.c[0], v.c[1], v.c[2], v.c[3]);
    else
        *(uint2 *)((uint16_t *)row + at) =
            make_uint2(half_store(v.c[0], dtype) | half_store(v.c[1], dtype) << 16,
                       half_store(v.c[2], dtype) | half_store(v.c[3], dtype) << 16);
}

/* Columns column .. column + 3 of a row of `dim` columns without padding, which begins at value
 * `at`. */
__device__ static inline four packed_load(const void *rows, embd_dtype dtype, uint64_t at,
                                          uint32_t column, uint32_t dim, bool is_aligned)
{
    if (is_aligned)
        return four_load(rows, dtype, at + column);
    four v;
    for (uint32_t i = 0; i < 4; i++)
        v.c[i] = column + i < dim ? one_load(rows, dtype, at + column + i) : 0.0f;
    return v;
}

__device__ static inline void packed_store(void *rows, embd_dtype dtype, uint64_t at,
                                           uint32_t column, uint32_t dim, bool is_aligned, four v)
{
    if (is_aligned) {
        four_store(rows, dtype, at + column, v);
        return;
    }
    for (uint32_t i = 0; i < 4; i++)
        if (column + i < dim)
            one_store(rows, dtype, at + column + i, v.c[i]);
}

__device__ static inline uint8_t *row_of_ref(const table_view &t, uint32_t ref)
{
    return t.values + (uint64_t)(ref - 1) * t.stride;
}

/* Rounds four columns of a step's result to the table's dtype by chance. */
__device__ static inline void round_by_chance(const table_view &t, uint64_t key, uint32_t slot,
                                              uint64_t step, uint32_t column, four *w)
{
    struct rounding r = {t.initializer.seed, key, step, slot};
    uint32_t word[4];
    rounding_draw(&r, column / ROUNDING_COLUMNS, word);
    for (uint32_t i = 0; i < 4; i++)
        w->c[i] =
            half_load(rounding_half(w->c[i], t.dtype, rounding_random(word, column + i)), t.dtype);
}

/* ---- master values: table_view.master_at ---- */

__device__ static inline float *master_of_ref(const table_view &t, uint32_t ref)
{
    return t.states + (uint64_t)(ref - 1) * t.state_stride + t.master_at;
}

/* Whether float `at` of a row's state is one. */
__device__ static inline bool is_master(const table_view &t, uint32_t at)
{
    return t.has_master && at - t.master_at < t.dim;
}

__device__ static inline bool master_is_aligned(const table_view &t)
{
    return ((t.dim | t.master_at | t.state_stride) & 3) == 0;
}

__device__ static inline four master_load(const table_view &t, uint32_t ref, uint32_t column)
{
    return packed_load(master_of_ref(t, ref), EMBD_DTYPE_F32, 0, column, t.dim,
                       master_is_aligned(t));
}

__device__ static inline void master_store(const table_view &t, uint32_t ref, uint32_t column,
                                           four v)
{
    packed_store(master_of_ref(t, ref), EMBD_DTYPE_F32, 0, column, t.dim, master_is_aligned(t), v);
}

/* The slot whose bound a key takes (initializer.h): its own in slot tables, else the slot that its
 * value lies in. */
__device__ static inline uint32_t bound_slot(const table_view &t, uint64_t key, uint32_t slot)
{
    if (t.row_slots != nullptr || t.slot_starts == nullptr)
        return slot < t.n_slots ? slot : t.n_slots - 1;
    uint32_t low = 0, high = t.n_slots;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (t.slot_starts[middle] <= key)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Columns of a key's first value, before it is rounded to the table's dtype. Kernels that exclude
 * the normal distribution at compile time use fewer registers. */
template <bool MAY_BE_NORMAL = true>
__device__ static inline four first_exact(const table_view &t, uint64_t key, uint32_t slot,
                                          uint32_t column)
{
    struct initializer init = t.initializer;
    if (init.kind == EMBD_INITIALIZER_UNIFORM_SLOT) {
        init.b = t.slot_bounds[bound_slot(t, key, slot)];
        init.a = -init.b;
    }
    if (!MAY_BE_NORMAL && init.kind == EMBD_INITIALIZER_NORMAL)
        __builtin_unreachable();
    four v;
    embd__initializer_four(&init, key, slot, column / 4, v.c);
    return v;
}

/* Rounded to the table's dtype, where rows are not coded. */
template <bool MAY_BE_NORMAL = true>
__device__ static inline four first_value(const table_view &t, uint64_t key, uint32_t slot,
                                          uint32_t column)
{
    four v = first_exact<MAY_BE_NORMAL>(t, key, slot, column);
    if (t.dtype != EMBD_DTYPE_F32)
        for (uint32_t i = 0; i < 4; i++)
            v.c[i] = half_load(half_store(v.c[i], t.dtype), t.dtype);
    return v;
}

/* ---- coded rows: rowcode.h ---- */

__device__ static inline float code_load(const void *row, embd_dtype dtype, uint32_t column)
{
    return embd__f32_from_code(((const uint8_t *)row)[ROWCODE_AT + column], dtype,
                               *(const float *)row);
}

__device__ static inline four coded_load(const void *row, embd_dtype dtype, uint32_t column)
{
    uint32_t codes = *(const uint32_t *)((const uint8_t *)row + ROWCODE_AT + column);
    four v;
    for (uint32_t i = 0; i < 4; i++)
        v.c[i] = embd__f32_from_code((uint8_t)(codes >> 8 * i), dtype, *(const float *)row);
    return v;
}

__device__ static inline uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* The largest of each `lanes` lanes, a power of two, in each of them. */
__device__ static inline uint32_t largest_lane(uint32_t largest, uint32_t lanes = 32)
{
    for (uint32_t distance = 1; distance < lanes; distance *= 2)
        largest = larger(largest, __shfl_xor_sync(ALL_LANES, largest, (int)distance));
    return largest;
}

/* Of columns column .. column + 3, as far as there are so many. */
__device__ static inline uint32_t largest_of(four v, uint32_t column, uint32_t dim)
{
    uint32_t largest = 0;
    for (uint32_t i = 0; i < 4 && column + i < dim; i++)
        largest = larger(largest, embd__magnitude_bits(v.c[i]));
    return largest;
}

__device__ static inline uint32_t code_of(float w, embd_dtype dtype, float scale)
{
    return embd__code_scales(scale) ? embd__code_from_f32(w, dtype, scale) : 0u;
}

/* Codes of columns column .. column + 3; 0 beyond the row. */
__device__ static inline void coded_store(void *row, embd_dtype dtype, uint32_t column,
                                          uint32_t dim, float scale, four v)
{
    uint32_t codes = 0;
    for (uint32_t i = 0; i < 4 && column + i < dim; i++)
        codes |= code_of(v.c[i], dtype, scale) << 8 * i;
    *(uint32_t *)((uint8_t *)row + ROWCODE_AT + column) = codes;
}

/* A row of first values, by `lanes` lanes, of which this one begins with column `first`; dim 0: by
 * none, but they take part. */
__device__ static inline void coded_begin(const table_view &t, uint64_t key, uint32_t slot,
                                          void *row, uint32_t first, uint32_t lanes, uint32_t dim)
{
    uint32_t largest = 0;
    for (uint32_t column = first; column < dim; column += lanes * 4)
        largest = larger(largest, largest_of(first_exact(t, key, slot, column), column, dim));
    float scale = embd__code_scale(t.dtype, largest_lane(largest, lanes));
    for (uint32_t column = first; column < dim; column += lanes * 4)
        coded_store(row, t.dtype, column, dim, scale, first_exact(t, key, slot, column));
    if (first == 0 && dim > 0)
        *(float *)row = scale;
}

/* As first_value. A lane makes all of a row's first values for its scale: keys without a row are
 * rare in pulls. */
__device__ static inline four first_coded(const table_view &t, uint64_t key, uint32_t slot,
                                          uint32_t column)
{
    uint32_t largest = 0;
    for (uint32_t c = 0; c < t.dim; c += 4)
        largest = larger(largest, largest_of(first_exact(t, key, slot, c), c, t.dim));
    float scale = embd__code_scale(t.dtype, largest);
    four v = first_exact(t, key, slot, column);
    for (uint32_t i = 0; i < 4; i++)
        v.c[i] = embd__f32_from_code((uint8_t)code_of(v.c[i], t.dtype, scale), t.dtype, scale);
    return v;
}

#endif
