#include "server/store/host/merge.h"

#include <string.h>

#include "server/store/host/index.h"
#include "server/store/host/memory.h"

/* A cell: 0 is empty; else the number of the distinct key + 1 in the low bits, high bits of its
 * hash above. */
#define CELL_NUMBER    0x7fffffu /* LIMIT_KEYS + 1 fits */
#define CELL_TAG       (~CELL_NUMBER)
#define FIRST_CAPACITY 256u
#define BLOCK          MERGE_BLOCK

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
    return merge->capacity *
               (sizeof *merge->distinct + sizeof *merge->next + sizeof *merge->row_of) +
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

HOST_INLINE uint32_t slot_of(const struct merging *work, uint32_t k)
{
    const struct store_keys *in = work->in;
    if (in->slots == NULL)
        return 0;
    return in->slots[in->offsets ? work->merge->row_of[k] : k];
}

HOST_INLINE void hash_block(struct merging *work, uint32_t begin)
{
    for (uint32_t k = begin; k < begin + BLOCK && k < work->in->n_keys; k++) {
        uint64_t hash = index_hash(work->in->keys[k], slot_of(work, k));
        work->hash[k % (2 * BLOCK)] = hash;
        __builtin_prefetch(&work->merge->cells[(uint32_t)hash & work->cell_mask]);
    }
}

/* Adds occurrence k of a key. */
HOST_INLINE void add(struct merging *work, const struct index *index, uint64_t hash, uint32_t slot,
                     uint32_t k)
{
    struct merge *merge = work->merge;
    uint32_t tag = (uint32_t)(hash >> 32) & CELL_TAG;
    for (uint32_t at = (uint32_t)hash & work->cell_mask;; at = (at + 1) & work->cell_mask) {
        uint32_t cell = merge->cells[at];
        if (cell == 0) {
            work->home[merge->n % (2 * BLOCK)] = index_prefetch(index, hash);
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

/* Looks up distinct keys whose prefetch began `apart` keys ago. */
HOST_INLINE void look_up(struct merging *work, uint32_t apart)
{
    struct distinct *d = work->merge->distinct;
    for (; work->looked + apart < work->merge->n; work->looked++) {
        struct distinct *next = &d[work->looked];
        const struct index_bucket *home = work->home[work->looked % (2 * BLOCK)];
        next->ref = work->index->has_slots ? index_find_home(home, next->hash, next->slot, true)
                                           : index_find_home(home, next->hash, 0, false);
    }
    for (; work->found + apart < work->looked; work->found++) {
        struct distinct *next = &d[work->found];
        next->ref = index_find_rest(work->index, next->hash, next->slot, next->ref);
    }
}

static void note_rows(struct merge *merge, const struct store_keys *in)
{
    for (uint32_t row = 0; row < in->n_rows; row++)
        for (uint32_t k = in->offsets[row]; k < in->offsets[row + 1]; k++)
            merge->row_of[k] = row;
}

bool merge_begin(struct merging *work, struct merge *merge, const struct store_keys *in,
                 const struct index *index)
{
    merge->n = 0;
    merge_forget(merge);
    *work = (struct merging){.merge = merge, .in = in, .index = index};
    if (in->n_keys == 0)
        return true;
    bool is_new = in->n_keys > merge->capacity;
    if (!reserve(merge, in->n_keys))
        return false;
    uint32_t n_cells = 2 * FIRST_CAPACITY;
    while (n_cells / 2 < in->n_keys)
        n_cells *= 2;
    if (!is_new)
        memset(merge->cells, 0, n_cells * sizeof *merge->cells);
    if (in->offsets)
        note_rows(merge, in);
    work->cell_mask = n_cells - 1;
    hash_block(work, 0);
    return true;
}

/* `work` and what it names are copies of the caller's: the compiler sees that no key that is added
 * changes them. */
HOST_INLINE void merge_blocks(struct merging *work, const struct index *index, uint32_t end)
{
    for (; work->at < end; work->at += BLOCK) {
        uint32_t begin = work->at;
        hash_block(work, begin + BLOCK);
        for (uint32_t k = begin; k < begin + BLOCK && k < work->in->n_keys; k++)
            add(work, index, work->hash[k % (2 * BLOCK)], slot_of(work, k), k);
        look_up(work, BLOCK);
    }
}

void merge_some(struct merging *work, uint32_t end)
{
    const struct store_keys in = *work->in;
    const struct index index = *work->index;
    struct merge merge = *work->merge;
    struct merging own = *work;
    own.in = &in;
    own.merge = &merge;
    merge_blocks(&own, &index, end);
    if (end == in.n_keys)
        look_up(&own, 0);
    *work->merge = merge;
    own.in = work->in;
    own.merge = work->merge;
    *work = own;
}

bool merge_keys(struct merge *merge, const struct store_keys *in, const struct index *index)
{
    struct merging work;
    if (!merge_begin(&work, merge, in, index))
        return false;
    merge_some(&work, in->n_keys);
    return true;
}

/* The cells, which are of no use any more. */
