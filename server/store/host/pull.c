/* pull.c - records become the answer: single rows copied, or the rows of one output row added up in
 * CSR order (combine.h). Keys without a row give their first value, made on the fly, or zeros. */
#include "server/store/host/host.h"

#include <string.h>

#include "proto/combine.h"

/* The f32 values of a key: those of its record, where they are f32, or in `space`. */
static inline const float *values_of(const struct store *store, const uint8_t *record, float *space)
{
    if (store->dtype == EMBD_DTYPE_F32)
        return (const float *)(const void *)record;
    embd__to_f32(space, record, store->dtype, store->dim);
    return space;
}

static void missing_value(const struct store_pull *pull, const struct store *store, uint32_t k,
                          uint32_t slot, float *value)
{
    if (pull->zero_missing)
        memset(value, 0, store->dim * sizeof *value);
    else
        host_first_value(store, pull->in.keys[k], slot, value);
}

static void set_statuses(const struct store_pull *pull, const struct walk_block *block, uint32_t k)
{
    for (uint32_t i = 0; i < block->n; i++)
        pull->statuses[k + i] = (uint8_t)(block->record[i] ? EMBD_KEY_HIT : EMBD_KEY_MISSING);
}

static void pull_row(const struct store *store, const struct store_pull *pull, uint32_t k,
                     const struct walk_block *block, uint32_t i, uint8_t *to)
{
    float value[EMBD_DIM_MAX];
    if (block->record[i] == NULL) {
        missing_value(pull, store, k, block->slot[i], value);
        embd__from_f32(to, pull->dtype, value, store->dim);
    } else {
        embd__from_f32(to, pull->dtype, values_of(store, block->record[i], value), store->dim);
    }
}

/* A block of rows of `bytes` bytes, a constant in the usual widths: then a row is a few moves
 * instead of a call. */
static inline void copy_rows(const struct store *store, const struct store_pull *pull, uint32_t k,
                             const struct walk_block *block, uint8_t *restrict to, size_t bytes)
{
    for (uint32_t i = 0; i < block->n; i++, to += bytes)
        if (block->record[i])
            memcpy(to, block->record[i], bytes);
        else
            pull_row(store, pull, k + i, block, i, to);
}

static void copy_block(const struct store *store, const struct store_pull *pull, uint32_t k,
                       const struct walk_block *block, uint8_t *to)
{
    switch (store->value_bytes) {
    case 32:
        copy_rows(store, pull, k, block, to, 32);
        break;
    case 64:
        copy_rows(store, pull, k, block, to, 64);
        break;
    case 128:
        copy_rows(store, pull, k, block, to, 128);
        break;
    case 256:
        copy_rows(store, pull, k, block, to, 256);
        break;
    default:
        copy_rows(store, pull, k, block, to, store->value_bytes);
    }
}

/* One output row for each key. */
static void pull_rows(const struct store *store, const struct store_pull *pull)
{
    struct walk walk;
    const struct walk_block *block;
    uint8_t *to = pull->values;
    size_t bytes = store->dim * embd__dtype_bytes(pull->dtype);
    uint32_t k = pull->first;
    walk_begin(&walk, store, &pull->in, pull->first, pull->first + pull->count);
    for (; (block = walk_next(&walk)) != NULL; k += block->n, to += block->n * bytes) {
        if (pull->dtype == store->dtype)
            copy_block(store, pull, k, block, to);
        else
            for (uint32_t i = 0; i < block->n; i++)
                pull_row(store, pull, k + i, block, i, to + i * bytes);
        if (pull->statuses)
            set_statuses(pull, block, k);
    }
}

/* The output row being added up. */
struct pool {
    const struct store *store;
    const struct store_pull *pull;
    uint32_t row;
    float *sum; /* the output itself when it is f32, else space */
    float space[EMBD_DIM_MAX];
};

static uint8_t *output_row(const struct pool *pool)
{
    size_t bytes = pool->store->dim * embd__dtype_bytes(pool->pull->dtype);
    return (uint8_t *)pool->pull->values + (pool->row - pool->pull->first) * bytes;
}

static void begin_row(struct pool *pool)
{
    pool->sum =
        pool->pull->dtype == EMBD_DTYPE_F32 ? (float *)(void *)output_row(pool) : pool->space;
}

static void end_row(struct pool *pool)
{
    const struct store_pull *pull = pool->pull;
    uint32_t begin = pull->in.offsets[pool->row], n = pull->in.offsets[pool->row + 1] - begin;
    if (n == 0)
        memset(pool->sum, 0, pool->store->dim * sizeof *pool->sum);
    if (pull->scale)
        embd__combine_divide(pool->sum,
                             embd__divisor(pool->store->schema->s.combiner, n,
                                           pull->in.weights ? pull->in.weights + begin : NULL),
                             pool->store->dim);
    if (pull->dtype != EMBD_DTYPE_F32)
        embd__from_f32(output_row(pool), pull->dtype, pool->sum, pool->store->dim);
    pool->row++;
}

static inline void add_key(struct pool *pool, uint32_t k, const float *restrict value)
{
    const struct store_keys *in = &pool->pull->in;
    float *restrict sum = pool->sum;
    uint32_t dim = pool->store->dim;
    bool is_first = k == in->offsets[pool->row];
    if (in->weights && is_first)
        embd__combine_first_weighted(sum, value, in->weights[k], dim);
    else if (in->weights)
        embd__combine_add_weighted(sum, value, in->weights[k], dim);
    else if (is_first)
        embd__combine_first(sum, value, dim);
    else
        embd__combine_add(sum, value, dim);
}

static void pull_pooled(const struct store *store, const struct store_pull *pull)
{
    struct pool pool = {.store = store, .pull = pull, .row = pull->first};
    struct walk walk;
    const struct walk_block *block;
    float value[EMBD_DIM_MAX];
    const uint32_t *offsets = pull->in.offsets;
    uint32_t end = pull->first + pull->count, k = offsets[pull->first];
    walk_begin(&walk, store, &pull->in, k, offsets[end]);
    for (begin_row(&pool); (block = walk_next(&walk)) != NULL; k += block->n) {
        for (uint32_t i = 0; i < block->n; i++) {
            while (offsets[pool.row + 1] == k + i) {
                end_row(&pool);
                begin_row(&pool);
            }
            if (block->record[i] == NULL) {
                missing_value(pull, store, k + i, block->slot[i], value);
                add_key(&pool, k + i, value);
            } else {
                add_key(&pool, k + i, values_of(store, block->record[i], value));
            }
        }
        if (pull->statuses)
            set_statuses(pull, block, k);
    }
    while (pool.row < end) {
        begin_row(&pool);
        end_row(&pool);
    }
}

void host_pull(struct store *store, struct store_pull *pull, struct store_done *done)
{
    if (pull->count && pull->in.offsets)
        pull_pooled(store, pull);
    else if (pull->count)
        pull_rows(store, pull);
    done->fn(done, EMBD_OK);
}
