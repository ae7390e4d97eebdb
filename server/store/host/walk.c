#include "host.h"

/* The slot of the next key, in tables where slots tell keys apart. */
static uint32_t next_slot(struct walk *walk)
{
    const struct store_keys *in = walk->in;
    if (in->offsets == NULL)
        return in->slots[walk->hashed];
    while (in->offsets[walk->row + 1] <= walk->hashed)
        walk->row++;
    return in->slots[walk->row];
}

static inline void hash_key(struct walk *walk, struct walk_block *block, uint32_t i)
{
    uint32_t slot = walk->in->slots ? next_slot(walk) : 0;
    block->slot[i] = slot;
    block->hash[i] = index_hash(walk->in->keys[walk->hashed++], slot);
    index_prefetch(&walk->store->index, block->hash[i]);
}

static inline void find_home(const struct walk *walk, struct walk_block *block, uint32_t i)
{
    block->ref[i] = index_find_home(&walk->store->index, block->hash[i], block->slot[i]);
}

static inline void find_record(const struct walk *walk, struct walk_block *block, uint32_t i)
{
    const struct store *store = walk->store;
    uint32_t ref = index_find_rest(&store->index, block->hash[i], block->slot[i], block->ref[i]);
    block->record[i] = NULL;
    if (ref != 0 && !(ref & INDEX_CANDIDATE)) {
        block->record[i] = rows_at(&store->rows, ref - 1);
        rows_prefetch(block->record[i], store->value_bytes);
    }
}

/* Moves each block but the next to be used a stage on; the one used before is filled anew. */
static void advance(struct walk *walk)
{
    struct walk_block *fresh = &walk->blocks[(walk->block + 3) % WALK_BLOCKS];
    struct walk_block *hashed = &walk->blocks[(walk->block + 2) % WALK_BLOCKS];
    struct walk_block *looked = &walk->blocks[(walk->block + 1) % WALK_BLOCKS];
    uint32_t left = walk->end - walk->hashed;
    fresh->n = left < WALK_BLOCK ? left : WALK_BLOCK;
    for (uint32_t i = 0; i < WALK_BLOCK; i++) {
        if (i < fresh->n)
            hash_key(walk, fresh, i);
        if (i < hashed->n)
            find_home(walk, hashed, i);
        if (i < looked->n)
            find_record(walk, looked, i);
    }
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

void walk_begin(struct walk *walk, const struct store *store, const struct store_keys *in, uint32_t begin,
                uint32_t end)
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

const struct walk_block *walk_next(struct walk *walk, uint32_t *n_out)
{
    struct walk_block *block = &walk->blocks[walk->block];
    *n_out = block->n;
    if (block->n == 0)
        return NULL;
    advance(walk);
    walk->block = (walk->block + 1) % WALK_BLOCKS;
    return block;
}
