/* doomed.c - see doomed.h. */
#include "server/store/host/host.h"

#include "server/store/host/memory.h"

/* Entries and rows their memory is asked for ahead. */
#define AHEAD 24u

bool doomed_reserve(struct doomed *doomed, uint64_t n, uint64_t n_rows)
{
    if (!marks_reserve(&doomed->marks, n_rows))
        return false;
    if (n <= doomed->capacity)
        return true;
    memory_free(doomed->rows, doomed->capacity * sizeof *doomed->rows);
    doomed->rows = memory_new(n * sizeof *doomed->rows);
    doomed->capacity = doomed->rows != NULL ? n : 0;
    return doomed->rows != NULL;
}

void doomed_begin(struct store *store, uint64_t n)
{
    struct doomed *doomed = &store->doomed;
    for (uint64_t i = 0; i < n; i++) {
        const struct index_entry *entry = &doomed->rows[i];
        marks_set(&doomed->marks, entry->ref - 1);
        if (store->changes.n > 0)
            changes_note_gone(store, entry->hash, entry->slot);
    }
    doomed->n = doomed->n_left = n;
    store->n_evicted += n;
}

static void take_out(struct store *store, uint64_t hash, uint32_t slot, uint32_t row)
{
    if (store->frozen.is_on)
        frozen_keep(store, hash, slot, row + 1);
    index_remove(&store->index, hash, slot);
    rows_give_back(&store->rows, row);
    marks_drop(&store->doomed.marks, row);
    store->doomed.n_left--;
}

void doomed_remove_merged(struct store *store)
{
    const struct merge *merge = &store->merge;
    for (uint32_t i = 0; i < merge->n && store->doomed.n_left > 0; i++) {
        struct distinct *d = &merge->distinct[i];
        if (!index_has_row(d->ref) || !doomed_has(&store->doomed, d->ref - 1))
            continue;
        take_out(store, d->hash, d->slot, d->ref - 1);
        d->ref = 0;
    }
}

static void prefetch(const struct store *store, const struct index_entry *entry)
{
    index_prefetch(&store->index, entry->hash);
    rows_prefetch(rows_at(&store->rows, entry->ref - 1), 1);
}

void doomed_remove(struct store *store, uint64_t n)
{
    struct doomed *doomed = &store->doomed;
    while (n > 0 && doomed->n > 0) {
        const struct index_entry *entry = &doomed->rows[--doomed->n];
        if (doomed->n >= AHEAD)
            prefetch(store, entry - AHEAD);
        if (!doomed_has(doomed, entry->ref - 1))
            continue;
        take_out(store, entry->hash, entry->slot, entry->ref - 1);
        n--;
    }
}

void doomed_remove_all(struct store *store)
{
    if (store->doomed.n_left > 0)
        merge_forget(&store->merge);
    doomed_remove(store, UINT64_MAX);
}

void doomed_fini(struct doomed *doomed)
{
    memory_free(doomed->rows, doomed->capacity * sizeof *doomed->rows);
    marks_fini(&doomed->marks);
}

uint64_t doomed_bytes(const struct doomed *doomed)
{
    return doomed->capacity * sizeof *doomed->rows + marks_bytes(&doomed->marks);
}
