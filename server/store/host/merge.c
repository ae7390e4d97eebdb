#include "merge.h"

#include <string.h>

#include "index.h"
#include "memory.h"

/* A cell: 0 is empty; else the number of the distinct key + 1 in the low bits, high bits of its hash above. */
#define CELL_NUMBER 0x7fffffu /* LIMIT_KEYS + 1 fits */
#define CELL_TAG (~CELL_NUMBER)
#define FIRST_CAPACITY 256u

static size_t cells_of(uint32_t capacity)
{
    return (size_t)capacity * 2;
}

void merge_fini(struct merge *merge)
{
    memory_free(merge->distinct, merge->capacity * sizeof *merge->distinct);
    memory_free(merge->next, merge->capacity * sizeof *merge->next);
    memory_free(merge->row_of, merge->capacity * sizeof *merge->row_of);
    memory_free(merge->cells, cells_of(merge->capacity) * sizeof *merge->cells);
    *merge = (struct merge){0};
}

void merge_end(struct merge *merge)
{
    if (merge->capacity > MERGE_KEEP_KEYS)
        merge_fini(merge);
}

uint64_t merge_bytes(const struct merge *merge)
{
    return merge->capacity * (sizeof *merge->distinct + sizeof *merge->next + sizeof *merge->row_of) +
           cells_of(merge->capacity) * sizeof *merge->cells;
}

static bool reserve(struct merge *merge, uint32_t n_keys)
{
    if (n_keys <= merge->capacity)
        return true;
    merge_fini(merge);
    uint32_t capacity = FIRST_CAPACITY;
    while (capacity < n_keys)
        capacity *= 2;
    merge->capacity = capacity;
    merge->distinct = memory_new(capacity * sizeof *merge->distinct);
    merge->next = memory_new(capacity * sizeof *merge->next);
    merge->row_of = memory_new(capacity * sizeof *merge->row_of);
    merge->cells = memory_new(cells_of(capacity) * sizeof *merge->cells);
    if (merge->distinct && merge->next && merge->row_of && merge->cells)
        return true;
    merge_fini(merge);
    return false;
}

/* Adds occurrence k of a key. */
static inline void add(struct merge *merge, uint32_t cell_mask, uint64_t hash, uint32_t slot, uint32_t k)
{
    uint32_t tag = (uint32_t)(hash >> 32) & CELL_TAG;
    for (uint32_t at = (uint32_t)hash & cell_mask;; at = (at + 1) & cell_mask) {
        uint32_t cell = merge->cells[at];
        if (cell == 0) {
            merge->distinct[merge->n++] =
                (struct distinct){.hash = hash, .first = k, .last = k, .slot = slot & 0x3ff};
            merge->cells[at] = tag | merge->n;
            return;
        }
        if ((cell & CELL_TAG) != tag)
            continue;
        struct distinct *d = &merge->distinct[(cell & CELL_NUMBER) - 1];
        if (d->hash == hash && d->slot == slot) {
            merge->next[d->last] = k;
            d->last = k;
            d->repeats++;
            return;
        }
    }
}

bool merge_keys(struct merge *merge, const struct store_keys *in)
{
    merge->n = 0;
    if (in->n_keys == 0)
        return true;
    if (!reserve(merge, in->n_keys))
        return false;
    uint32_t n_cells = 2 * FIRST_CAPACITY;
    while (n_cells / 2 < in->n_keys)
        n_cells *= 2;
    memset(merge->cells, 0, n_cells * sizeof *merge->cells);
    for (uint32_t row = 0; row < in->n_rows; row++) {
        uint32_t begin = in->offsets ? in->offsets[row] : row;
        uint32_t end = in->offsets ? in->offsets[row + 1] : row + 1;
        uint32_t slot = in->slots ? in->slots[row] : 0;
        for (uint32_t k = begin; k < end; k++) {
            merge->row_of[k] = row;
            add(merge, n_cells - 1, index_hash(in->keys[k], slot), slot, k);
        }
    }
    return true;
}
