#include "server/store/host/host.h"

/* The slot of key k, in tables where slots tell keys apart; k rises. */
static uint32_t next_slot(struct walk *walk, uint32_t k)
{
    const struct store_keys *in = walk->in;
    if (in->offsets == NULL)
        return in->slots[k];
    while (in->offsets[walk->row + 1] <= k)
        walk->row++;
    return in->slots[walk->row];
}

/* What the stages read, copied where the compiler can see that nothing they write changes it. */
struct tables {
    struct index index;
    struct rows rows;
    const struct doomed *doomed;
    uint32_t value_bytes;
    const uint64_t *keys; /* of the block being hashed */
};

/* The three stages of key i of a block. */
static inline void hash_key(const struct tables *tables, struct walk_block *block, uint32_t i,
                            uint32_t slot)
{
    block->slot[i] = slot;
    block->hash[i] = index_hash(tables->keys[i], slot);
    index_prefetch(&tables->index, block->hash[i]);
}

static inline void find_home(const struct tables *tables, struct walk_block *block, uint32_t i,
                             bool has_slots)
{
    block->ref[i] = index_find_home(&tables->index, block->hash[i], block->slot[i], has_slots);
}

static inline void find_record(const struct tables *tables, struct walk_block *block, uint32_t i,
                               bool has_doomed)
{
    uint32_t ref = index_find_rest(&tables->index, block->hash[i], block->slot[i], block->ref[i]);
    const uint8_t *record = NULL;
    if (index_has_row(ref) && !(has_doomed && doomed_has(tables->doomed, ref - 1))) {
        record = rows_at(&tables->rows, ref - 1);
        rows_prefetch(record, tables->value_bytes);
    }
    block->record[i] = record;
}

/* Blocks that are all full, of a table where slots do not tell keys apart and no rows are doomed:
 * nearly all blocks are. */
static void advance_full(const struct tables *tables, struct walk_block *fresh,
                         struct walk_block *hashed, struct walk_block *looked)
{
    struct tables t = *tables;
    for (uint32_t i = 0; i < WALK_BLOCK; i++) {
        hash_key(&t, fresh, i, 0);
        find_home(&t, hashed, i, false);
        find_record(&t, looked, i, false);
    }
}

static void advance_any(struct walk *walk, const struct tables *tables, struct walk_block *fresh,
                        struct walk_block *hashed, struct walk_block *looked)
{
    for (uint32_t i = 0; i < WALK_BLOCK; i++) {
        if (i < fresh->n)
            hash_key(tables, fresh, i, walk->in->slots ? next_slot(walk, walk->hashed + i) : 0);
        if (i < hashed->n)
            find_home(tables, hashed, i, true);
        if (i < looked->n)
            find_record(tables, looked, i, true);
    }
}

/* Moves each block but the next to be used a stage on; the one used before is filled anew. */
static void advance(struct walk *walk)
{
    const struct store *store = walk->store;
    struct walk_block *fresh = &walk->blocks[(walk->block + 3) % WALK_BLOCKS];
    struct walk_block *hashed = &walk->blocks[(walk->block + 2) % WALK_BLOCKS];
    struct walk_block *looked = &walk->blocks[(walk->block + 1) % WALK_BLOCKS];
    struct tables tables = {store->index, store->rows, &store->doomed, store->value_bytes,
                            walk->in->keys + walk->hashed};
    uint32_t left = walk->end - walk->hashed;
    fresh->n = left < WALK_BLOCK ? left : WALK_BLOCK;
    if (fresh->n == WALK_BLOCK && hashed->n == WALK_BLOCK && looked->n == WALK_BLOCK &&
        !walk->in->slots && store->doomed.n_left == 0)
        advance_full(&tables, fresh, hashed, looked);
    else
        advance_any(walk, &tables, fresh, hashed, looked);
    walk->hashed += fresh->n;
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

void walk_begin(struct walk *walk, const struct store *store, const struct store_keys *in,
                uint32_t begin, uint32_t end)
{
    walk->store = store;
    walk->in = in;
    walk->hashed = begin;
    walk->end = end;
    walk->row = in->slots && in->offsets ? row_of(in, begin) : 0;
    for (uint32_t i = 0; i < WALK_BLOCKS; i++)
        walk->blocks[i].n = 0;
    for (walk->block = 0; walk->block < WALK_BLOCKS - 1; walk->block++)
        advance(walk);
}

const struct walk_block *walk_next(struct walk *walk)
{
    struct walk_block *block = &walk->blocks[walk->block];
    if (block->n == 0)
        return NULL;
    advance(walk);
    walk->block = (walk->block + 1) % WALK_BLOCKS;
    return block;
}
