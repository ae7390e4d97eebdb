#include "host.h"

/* Hashes up to a block of keys and asks for their buckets. */
static void hash_block(struct walk *walk, struct walk_block *block)
{
    const struct store_keys *in = walk->in;
    uint32_t n = walk->end - walk->hashed < WALK_BLOCK ? walk->end - walk->hashed : WALK_BLOCK;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t slot = 0;
        if (in->slots) {
            while (in->offsets && in->offsets[walk->row + 1] <= walk->hashed + i)
                walk->row++;
            slot = in->slots[in->offsets ? walk->row : walk->hashed + i];
        }
        block->slot[i] = (uint16_t)slot;
        block->hash[i] = index_hash(in->keys[walk->hashed + i], slot);
        index_prefetch(&walk->store->index, block->hash[i]);
    }
    walk->hashed += n;
}

/* Finds a block of keys and asks for their records. */
static void find_block(struct walk *walk, struct walk_block *block)
{
    const struct store *store = walk->store;
    uint32_t n = walk->hashed - walk->found < WALK_BLOCK ? walk->hashed - walk->found : WALK_BLOCK;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t ref = index_find(&store->index, block->hash[i], block->slot[i]);
        block->record[i] = NULL;
        if (ref != 0 && !(ref & INDEX_CANDIDATE)) {
            block->record[i] = rows_at(&store->rows, ref - 1);
            rows_prefetch(block->record[i], store->value_bytes);
        }
    }
    walk->found += n;
}

void walk_begin(struct walk *walk, const struct store *store, const struct store_keys *in, uint32_t begin,
                uint32_t end)
{
    walk->store = store;
    walk->in = in;
    walk->hashed = walk->found = walk->used = begin;
    walk->end = end;
    walk->row = 0;
    walk->block = 0;
    if (in->slots && in->offsets) { /* the row that key `begin` belongs to */
        uint32_t low = 0, high = in->n_rows;
        while (low < high) {
            uint32_t middle = low + (high - low) / 2;
            if (in->offsets[middle + 1] <= begin)
                low = middle + 1;
            else
                high = middle;
        }
        walk->row = low;
    }
    hash_block(walk, &walk->blocks[0]);
    hash_block(walk, &walk->blocks[1]);
    find_block(walk, &walk->blocks[0]);
}

const struct walk_block *walk_next(struct walk *walk, uint32_t *n_out)
{
    if (walk->used == walk->end)
        return NULL;
    struct walk_block *block = &walk->blocks[walk->block];
    hash_block(walk, &walk->blocks[(walk->block + 2) % 3]);
    walk->block = (walk->block + 1) % 3;
    *n_out = walk->found - walk->used;
    find_block(walk, &walk->blocks[walk->block]);
    walk->used += *n_out;
    return block;
}
