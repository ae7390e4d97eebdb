/* pull.c - where rows come to lie, and how they become the caller's values.
 *
 * Every occurrence (pooled plan): with one shard and f32 on the wire the answer is received
 * straight into the caller's values, divided by the server. Rows of another dtype, and single rows
 * of several shards, are put in their places in f32 as they come, out of a buffer that stays in the
 * cache (receive.h). Otherwise the answer comes into the arena; partial sums are
 * added in the order of the shards, the first taken as it is, then divided here. Distinct keys
 * (rows plan): rows come into the arena and are combined here in the batch's order, which is the
 * order the server would have used: the same bits. */
#include <string.h>

#include "client/call/call.h"
#include "proto/combine.h"

#define PREFETCH_FLOATS 256u
#define PREFETCH_ROWS   8u /* rows ahead, when rows of the arena are read in the batch's order */

/* ---- before ---- */

/* Rows of a share that are in memory before they are in their places. */
static uint64_t rows_kept(const struct work *work, const struct share *share)
{
    return work->is_placed && share->n_rows > 0 ? 1 : share->n_rows;
}

/* The answer of one shard comes into the caller's values: by a block of shared memory, if they are
 * few and do not lie there themselves. */
static int place_direct(struct embd_call *call, struct work *work)
{
    struct share *share = &work->shares[0];
    uint64_t bytes = share->n_rows * work->row_bytes;
    work->rows = share->values = (uint8_t *)work->part->values;
    if (embd__lent_into(call, 0, share->values, bytes) > 0)
        share->into = share->values;
    else if (bytes <= SHARED_MOST_BYTES_OF_SHARD)
        share->into = embd__lent_take(call, bytes);
    return EMBD_OK;
}

/* Where servers put the rows, one share behind the other; `block` NULL: into their answers. */
static void place_into(struct embd_call *call, struct work *work, const uint8_t *block)
{
    for (uint32_t s = 0; s < call->n_shards; s++) {
        work->shares[s].into = block;
        if (block != NULL)
            block += work->shares[s].n_rows * work->row_bytes;
    }
}

static int place_values(struct embd_call *call, struct work *work)
{
    uint32_t n_shards = call->n_shards;
    uint64_t n = 0, n_rows = 0;
    bool is_direct = !work->by_rows && n_shards == 1 && call->wire == EMBD_DTYPE_F32;
    work->is_placed = !work->by_rows && !is_direct && (n_shards == 1 || !work->is_pooled);
    if (is_direct)
        return place_direct(call, work);
    for (uint32_t s = 0; s < n_shards; s++) {
        n += rows_kept(work, &work->shares[s]);
        n_rows += work->shares[s].n_rows;
    }
    uint8_t *block = embd__lent_take(call, n_rows * work->row_bytes);
    place_into(call, work, block);
    work->rows = block != NULL && !work->is_placed
                     ? block
                     : embd__arena_array(&call->arena, n, work->row_bytes);
    if (work->rows == NULL && n > 0)
        return embd__call_no_memory(call);
    uint8_t *to = work->rows;
    for (uint32_t s = 0; s < n_shards; s++) {
        work->shares[s].values = to;
        to += rows_kept(work, &work->shares[s]) * work->row_bytes;
    }
    return EMBD_OK;
}

int embd__pull_prepare(struct embd_call *call, struct work *work)
{
    int status = work->by_rows ? embd__split_distinct(call, work) : embd__split(call, work);
    return status == EMBD_OK ? place_values(call, work) : status;
}

/* ---- while they come ---- */

/* The row will be written. */
static void prefetch_row(float *row, uint32_t dim)
{
    for (uint32_t at = 0; at < dim && at < PREFETCH_FLOATS; at += 16)
        __builtin_prefetch(row + at, 1);
}

void embd__pull_place(const struct embd_call *call, const struct work *work,
                      const struct share *share, const uint8_t *rows, uint32_t first, uint32_t n)
{
    float *values = work->part->values;
    if (share->from == NULL) { /* one shard */
        embd__rows_to_f32(values + (size_t)first * work->dim, rows, call->wire, work->dim, n);
        return;
    }
    const uint32_t *from = share->from + first;
    for (uint32_t i = 0; i < n; i++, rows += work->row_bytes) {
        float *to = values + (size_t)from[i] * work->dim;
        if (i + PREFETCH_ROWS < n)
            prefetch_row(values + (size_t)from[i + PREFETCH_ROWS] * work->dim, work->dim);
        if (call->wire == EMBD_DTYPE_F32)
            memcpy(to, rows, work->row_bytes);
        else
            embd__rows_to_f32(to, rows, call->wire, work->dim, 1);
    }
}

/* ---- after ---- */

static void divide_row(const struct work *work, uint32_t r)
{
    uint64_t begin = work->offsets[r], n = work->offsets[r + 1] - begin;
    const float *weights = work->weights == NULL ? NULL : work->weights + begin;
    float divisor = embd__divisor(work->schema->combiner, n, weights);
    embd__combine_divide(work->part->values + (size_t)r * work->dim, divisor, work->dim);
}

/* Adds the partial sums of one shard; rows seen for the first time are taken over. */
static void add_partials(const struct work *work, const struct share *share, embd_dtype wire,
                         float *row, uint8_t *is_seen)
{
    for (uint32_t i = 0; i < share->n_rows; i++) {
        const uint8_t *from = share->values + i * work->row_bytes;
        uint32_t r = share->rows[i];
        float *to = work->part->values + (size_t)r * work->dim;
        if (!is_seen[r]) {
            embd__rows_to_f32(to, from, wire, work->dim, 1);
            is_seen[r] = 1;
        } else {
            embd__rows_to_f32(row, from, wire, work->dim, 1);
            embd__combine_add(to, row, work->dim);
        }
    }
}

static int finish_pooled(struct embd_call *call, const struct work *work)
{
    uint8_t *is_seen = embd__arena_take(&call->arena, work->n_rows);
    float *row = embd__arena_array(&call->arena, work->dim, sizeof *row);
    if (is_seen == NULL || row == NULL)
        return embd__call_no_memory(call);
    memset(is_seen, 0, work->n_rows);
    for (uint32_t s = 0; s < call->n_shards; s++)
        add_partials(work, &work->shares[s], call->wire, row, is_seen);
    for (uint32_t r = 0; r < work->n_rows; r++)
        if (is_seen[r])
            divide_row(work, r);
        else
            memset(work->part->values + (size_t)r * work->dim, 0, work->dim * sizeof(float));
    return EMBD_OK;
}

/* All distinct rows in f32. */
static const float *widen_rows(struct embd_call *call, const struct work *work)
{
    if (call->wire == EMBD_DTYPE_F32)
        return (const float *)(const void *)work->rows;
    float *wide = embd__arena_array(&call->arena, work->n_distinct, work->dim * sizeof *wide);
    if (wide != NULL)
        embd__rows_to_f32(wide, work->rows, call->wire, work->dim, work->n_distinct);
    return wide;
}

static void combine_row(const struct work *work, const float *rows, uint64_t begin, uint64_t end,
                        float *to)
{
    size_t dim = work->dim;
    if (begin == end)
        memset(to, 0, dim * sizeof *to);
    for (uint64_t i = begin; i < end; i++) {
        const float *row = rows + work->numbers[i] * dim;
        if (i + PREFETCH_ROWS < work->n_keys)
            __builtin_prefetch(rows + work->numbers[i + PREFETCH_ROWS] * dim);
        if (work->weights == NULL)
            (i == begin ? embd__combine_first : embd__combine_add)(to, row, dim);
        else
            (i == begin ? embd__combine_first_weighted
                        : embd__combine_add_weighted)(to, row, work->weights[i], dim);
    }
}

static int finish_pooled_rows(struct embd_call *call, const struct work *work)
{
    const float *rows = widen_rows(call, work);
    float *to = work->part->values;
    if (rows == NULL)
        return embd__call_no_memory(call);
    for (uint32_t r = 0; r < work->n_rows; r++, to += work->dim) {
        combine_row(work, rows, work->offsets[r], work->offsets[r + 1], to);
        divide_row(work, r);
    }
    return EMBD_OK;
}

/* Widening a row costs what copying it does: each occurrence is widened where it goes. */
static void finish_single_rows(const struct embd_call *call, const struct work *work)
{
    const uint8_t *rows = work->rows;
    float *to = work->part->values;
    for (uint32_t i = 0; i < work->n_keys; i++, to += work->dim) {
        if (i + PREFETCH_ROWS < work->n_keys)
            __builtin_prefetch(rows + work->numbers[i + PREFETCH_ROWS] * work->row_bytes);
        embd__rows_to_f32(to, rows + work->numbers[i] * work->row_bytes, call->wire, work->dim, 1);
    }
}

int embd__pull_finish(struct embd_call *call, struct work *work)
{
    if (work->n_rows == 0)
        return EMBD_OK;
    if (work->n_keys == 0)
        memset(work->part->values, 0, (size_t)work->n_rows * work->dim * sizeof(float));
    else if (work->by_rows && work->is_pooled)
        return finish_pooled_rows(call, work);
    else if (work->by_rows)
        finish_single_rows(call, work);
    else if (call->n_shards > 1 && work->is_pooled)
        return finish_pooled(call, work);
    return EMBD_OK;
}
