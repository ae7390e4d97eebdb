/* pull.c - records become the answer: single rows copied, or the rows of one output row added up in
 * CSR order (combine.h). Keys without a row give their first value, made on the fly, or zeros. */
#include "server/store/host/table.h"

#include <string.h>

#include "proto/combine.h"
#include "proto/convert.h"
#include "server/store/contract.h"

/* ---- walk: keys -> records, with many cache misses at a time ---- */

#define WALK_BLOCK  16u
#define WALK_BLOCKS 4u

struct walk_block {
    uint32_t n; /* keys; less than WALK_BLOCK in the last block, then 0 */
    uint64_t hash[WALK_BLOCK];
    const struct index_bucket *home[WALK_BLOCK];
    uint32_t slot[WALK_BLOCK];
    uint32_t ref[WALK_BLOCK];
    const uint8_t *record[WALK_BLOCK]; /* NULL: the key has no row */
};

/* How keys are looked up. */
enum walk_kind {
    WALK_PLAIN,      /* by their hash alone; every index entry is a row */
    WALK_CANDIDATES, /* an entry may be a candidate */
    WALK_ANY,        /* slots distinguish keys, or the removal of rows is pending */
};

/* Goes through keys begin .. end of a request in blocks. While the caller uses one block, the
 * records of the next are on their way to the cache, of the one after the second buckets, and of
 * the one after that the first. The stages take turns key by key: a core keeps few misses in
 * flight, and asking for a block at once would stall. */
struct walk {
    const struct store *store;
    const struct store_keys *in;
    enum walk_kind kind;
    uint32_t hashed, end; /* next key to hash, and the end */
    uint32_t row;         /* of key `hashed`; slot tables with offsets only */
    uint32_t block;       /* used next */
    struct walk_block blocks[WALK_BLOCKS];
};

/* The slot of key k, in tables where slots distinguish keys; k rises. */
static uint32_t next_slot(struct walk *walk, uint32_t k)
{
    const struct store_keys *in = walk->in;
    if (in->offsets == NULL)
        return in->slots[k];
    while (in->offsets[walk->row + 1] <= k)
        walk->row++;
    return in->slots[walk->row];
}

/* The inputs of the stages, copied so that the compiler sees that no stage changes them. */
struct tables {
    struct index index;
    struct rows rows;
    const struct pending_removal *pending;
    uint32_t value_bytes;
    const uint64_t *keys; /* of the block being hashed */
};

/* The three stages of key i of a block. */
HOST_INLINE void hash_key(const struct tables *tables, struct walk_block *block, uint32_t i,
                          uint32_t slot)
{
    block->slot[i] = slot;
    block->hash[i] = index_hash(tables->keys[i], slot);
    block->home[i] = index_prefetch(&tables->index, block->hash[i]);
}

HOST_INLINE void find_home(const struct tables *tables, struct walk_block *block, uint32_t i,
                           enum walk_kind kind)
{
    bool has_slots = kind == WALK_ANY && tables->index.has_slots;
    block->ref[i] = index_find_home(block->home[i], block->hash[i], block->slot[i], has_slots);
}

HOST_INLINE bool is_row(const struct tables *tables, uint32_t ref, enum walk_kind kind)
{
    if (kind == WALK_PLAIN)
        return ref != 0;
    return index_has_row(ref) && !(kind == WALK_ANY && pending_has(tables->pending, ref - 1));
}

HOST_INLINE void find_record(const struct tables *tables, struct walk_block *block, uint32_t i,
                             enum walk_kind kind)
{
    uint32_t ref = index_find_rest(&tables->index, block->hash[i], block->slot[i], block->ref[i]);
    const uint8_t *record = NULL;
    if (is_row(tables, ref, kind)) {
        record = rows_at(&tables->rows, ref - 1);
        rows_prefetch(record, tables->value_bytes);
    }
    block->record[i] = record;
}

/* Full blocks, in tables where slots do not distinguish keys: nearly all blocks are like that. */
HOST_INLINE void advance_full(const struct tables *tables, struct walk_block *fresh,
                              struct walk_block *hashed, struct walk_block *looked,
                              enum walk_kind kind)
{
    struct tables t = *tables;
    for (uint32_t i = 0; i < WALK_BLOCK; i++) {
        hash_key(&t, fresh, i, 0);
        find_home(&t, hashed, i, kind);
        find_record(&t, looked, i, kind);
    }
}

HOST_INLINE void advance_part(struct walk *walk, const struct tables *tables,
                              struct walk_block *fresh, struct walk_block *hashed,
                              struct walk_block *looked, enum walk_kind kind)
{
    bool has_slots = kind == WALK_ANY && walk->in->slots != NULL;
    for (uint32_t i = 0; i < WALK_BLOCK; i++) {
        if (i < fresh->n)
            hash_key(tables, fresh, i, has_slots ? next_slot(walk, walk->hashed + i) : 0);
        if (i < hashed->n)
            find_home(tables, hashed, i, kind);
        if (i < looked->n)
            find_record(tables, looked, i, kind);
    }
}

/* Moves each block but the next one a stage on; the one used before is filled again. */
HOST_INLINE void advance_as(struct walk *walk, enum walk_kind kind)
{
    const struct store *store = walk->store;
    struct walk_block *fresh = &walk->blocks[(walk->block + 3) % WALK_BLOCKS];
    struct walk_block *hashed = &walk->blocks[(walk->block + 2) % WALK_BLOCKS];
    struct walk_block *looked = &walk->blocks[(walk->block + 1) % WALK_BLOCKS];
    struct tables tables = {store->index, store->rows, &store->pending, store->value_bytes,
                            walk->in->keys + walk->hashed};
    uint32_t left = walk->end - walk->hashed;
    fresh->n = left < WALK_BLOCK ? left : WALK_BLOCK;
    if (kind != WALK_ANY && fresh->n == WALK_BLOCK && hashed->n == WALK_BLOCK &&
        looked->n == WALK_BLOCK)
        advance_full(&tables, fresh, hashed, looked, kind);
    else
        advance_part(walk, &tables, fresh, hashed, looked, kind);
    walk->hashed += fresh->n;
}

static void advance(struct walk *walk)
{
    if (walk->kind == WALK_PLAIN)
        advance_as(walk, WALK_PLAIN);
    else if (walk->kind == WALK_CANDIDATES)
        advance_as(walk, WALK_CANDIDATES);
    else
        advance_as(walk, WALK_ANY);
}

static enum walk_kind kind_of(const struct store *store, const struct store_keys *in)
{
    if (in->slots != NULL || (store->evicts && store->pending.n_left > 0))
        return WALK_ANY;
    return store->has_candidates ? WALK_CANDIDATES : WALK_PLAIN;
}

/* The request's row that key k belongs to. */
static uint32_t row_of(const struct store_keys *in, uint32_t k)
{
    uint32_t low = 0, high = in->n_rows;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (in->offsets[middle + 1] <= k)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void walk_begin(struct walk *walk, const struct store *store, const struct store_keys *in,
                       uint32_t begin, uint32_t end)
{
    walk->store = store;
    walk->in = in;
    walk->kind = kind_of(store, in);
    walk->hashed = begin;
    walk->end = end;
    walk->row = in->slots && in->offsets ? row_of(in, begin) : 0;
    for (uint32_t i = 0; i < WALK_BLOCKS; i++)
        walk->blocks[i].n = 0;
    for (walk->block = 0; walk->block < WALK_BLOCKS - 1; walk->block++)
        advance(walk);
}

/* The next block of keys, or NULL after the last. Valid until the next call. */
static const struct walk_block *walk_next(struct walk *walk)
{
    struct walk_block *block = &walk->blocks[walk->block];
    if (block->n == 0)
        return NULL;
    advance(walk);
    walk->block = (walk->block + 1) % WALK_BLOCKS;
    return block;
}

/* ---- the answer ---- */

/* The f32 values of a key: those of its record, where they are f32, or in `space`. */
static inline const float *values_of(const struct store *store, const uint8_t *record, float *space)
{
    if (store->dtype == EMBD_DTYPE_F32)
        return (const float *)(const void *)record;
    embd__row_to_f32(space, record, store->dtype, store->dim);
    return space;
}

static void missing_value(const struct store_pull *pull, const struct store *store, uint32_t k,
                          uint32_t slot, float *value)
{
    if (pull->zero_missing)
        memset(value, 0, store->dim * sizeof *value);
    else
        values_first(store, pull->in.keys[k], slot, value);
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

HOST_INLINE void add_key(struct pool *pool, uint32_t k, const float *restrict value, uint32_t dim)
{
    const struct store_keys *in = &pool->pull->in;
    float *restrict sum = pool->sum;
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

/* `dim`: the table's. */
HOST_INLINE void pool_rows(const struct store *store, const struct store_pull *pull, uint32_t dim)
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
                add_key(&pool, k + i, value, dim);
            } else {
                add_key(&pool, k + i, values_of(store, block->record[i], value), dim);
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

/* Of 64 columns a row is a few additions instead of a loop; rows of 16 gain nothing from that. */
static void pull_pooled(const struct store *store, const struct store_pull *pull)
{
    if (store->dim == 64)
        pool_rows(store, pull, 64);
    else
        pool_rows(store, pull, store->dim);
}

void host_pull(struct store *store, struct store_pull *pull, struct store_done *done)
{
    contract_pull(pull);
    host_end_late(store);
    if (store->sweep.phase != SWEEP_NONE)
        sweep_reach_keys(store, &pull->in, pull->first, pull->first + pull->count);
    if (pull->count && pull->in.offsets)
        pull_pooled(store, pull);
    else if (pull->count)
        pull_rows(store, pull);
    done->fn(done, EMBD_OK);
}
