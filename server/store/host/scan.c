/* scan.c - rows out, for snapshots and dumps, and in. A scan goes through the index in its own
 * order: by the hash of the keys, and where hashes fall together by the time they came. The cursor
 * is a place in the index. */
#include "server/store/host/table.h"

#include <stdlib.h>
#include <string.h>

#include "server/store/host/memory.h"

/* An entry of the index, which has a row or waits for one. */
static void copy_entry(struct store *store, const struct index_entry *entry, struct store_scan *out)
{
    uint64_t key = index_key(entry->hash, entry->slot);
    if (store->sweep.phase != SWEEP_NONE && index_has_row(entry->ref))
        sweep_reach(store, entry->hash, entry->slot, entry->ref);
    if (entry->ref & INDEX_CANDIDATE)
        values_copy_candidate(store, key, entry->slot, entry->ref & INDEX_SIGHTS_MAX, out);
    else
        values_copy_row(store, key, entry->slot, rows_at(&store->rows, entry->ref - 1), out);
}

#define BATCH 32u

int host_scan(struct store *store, uint64_t *cursor, uint32_t max_rows, struct store_scan *out,
              struct embd__error *e)
{
    (void)e;
    out->n_rows = out->n_candidates = 0;
    while (*cursor != UINT64_MAX && out->n_rows + out->n_candidates < max_rows) {
        struct index_entry batch[BATCH];
        uint32_t left = max_rows - out->n_rows - out->n_candidates, n = 0;
        while (n < BATCH && n < left && index_next(&store->index, cursor, &batch[n])) {
            bool has_row = index_has_row(batch[n].ref);
            if (has_row && pending_has(&store->pending, batch[n].ref - 1))
                continue;
            if (host_is_stale(store, batch[n].ref))
                continue;
            if (has_row && out->rows != NULL)
                rows_prefetch(rows_at(&store->rows, batch[n].ref - 1), store->rows.stride);
            n++;
        }
        for (uint32_t i = 0; i < n; i++)
            copy_entry(store, &batch[i], out);
    }
    return EMBD_OK;
}

/* The keys of a block that have no row in its table, or are unknown to it. A key that occurs twice
 * in the block counts twice, and may count where it has a row: that reserves too much, never too
 * little. If it would be too much for the table, count_distinct gives the exact number. */
struct unknown {
    uint64_t *hashes; /* [n_hashes], keys that need an entry */
    uint64_t n_hashes, n_rows;
};

static uint64_t hash_at(const uint64_t *keys, const uint16_t *slots, uint32_t i)
{
    return index_hash(keys[i], slots ? slots[i] : 0);
}

/* Entries of a block's rows are prefetched this many ahead: nearly each is a line that is not in
 * the cache. */
#define AHEAD 16u

MEMORY_PREFETCH void prefetch_row(const struct store *store, const struct row_block *block,
                                  uint32_t i)
{
    if (i < block->n_rows)
        index_prefetch(&store->index, hash_at(block->keys, block->slots, i));
}

/* A block whose first keys have no rows is of new keys, as all of a restore is: then each counts,
 * without being looked up twice. */
#define FIRST_KEYS 32u

static bool seems_new(const struct store *store, const struct row_block *block)
{
    bool is_new = block->n_rows >= FIRST_KEYS && block->n_rows <= host_room(store);
    for (uint32_t i = 0; i < FIRST_KEYS && is_new; i++)
        is_new = index_find(&store->index, hash_at(block->keys, block->slots, i),
                            block->slots ? block->slots[i] : 0) == 0;
    return is_new;
}

static void count_all(const struct row_block *block, struct unknown *unknown)
{
    for (uint32_t i = 0; i < block->n_rows; i++)
        unknown->hashes[unknown->n_hashes++] = hash_at(block->keys, block->slots, i);
    unknown->n_rows = block->n_rows;
}

static void count_unknown_rows(const struct store *store, const struct row_block *block,
                               struct unknown *unknown)
{
    for (uint32_t i = 0; i < AHEAD; i++)
        prefetch_row(store, block, i);
    for (uint32_t i = 0; i < block->n_rows; i++) {
        prefetch_row(store, block, i + AHEAD);
        uint64_t hash = hash_at(block->keys, block->slots, i);
        uint32_t ref = index_find(&store->index, hash, block->slots ? block->slots[i] : 0);
        unknown->n_rows += ref == 0 || (ref & INDEX_CANDIDATE);
        if (ref == 0)
            unknown->hashes[unknown->n_hashes++] = hash;
    }
}

static void count_unknown(const struct store *store, const struct row_block *block,
                          struct unknown *unknown)
{
    if (seems_new(store, block))
        count_all(block, unknown);
    else
        count_unknown_rows(store, block, unknown);
    for (uint32_t i = 0; i < block->n_candidates; i++) {
        uint64_t hash = hash_at(block->candidate_keys, block->candidate_slots, i);
        if (!index_find(&store->index, hash,
                        block->candidate_slots ? block->candidate_slots[i] : 0))
            unknown->hashes[unknown->n_hashes++] = hash;
    }
}

struct place {
    uint64_t hash;
    uint32_t slot;
};

static int compare_places(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->hash != y->hash)
        return x->hash < y->hash ? -1 : 1;
    return (x->slot > y->slot) - (x->slot < y->slot);
}

/* Distinct keys among the block's rows that the table has no row for. EMBD_NO_MEMORY. */
static int count_distinct(const struct store *store, const struct row_block *block, uint64_t *n_out,
                          struct embd__error *e)
{
    size_t bytes = (size_t)block->n_rows * sizeof(struct place), n = 0;
    struct place *places = memory_new(bytes);
    if (places == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "table %s: no memory to load %u rows",
                               store->schema->s.name, block->n_rows);
    for (uint32_t i = 0; i < block->n_rows; i++) {
        struct place p = {hash_at(block->keys, block->slots, i),
                          block->slots ? block->slots[i] : 0};
        uint32_t ref = index_find(&store->index, p.hash, p.slot);
        if (ref == 0 || (ref & INDEX_CANDIDATE))
            places[n++] = p;
    }
    qsort(places, n, sizeof *places, compare_places);
    *n_out = n > 0;
    for (size_t i = 1; i < n; i++)
        *n_out += compare_places(&places[i - 1], &places[i]) != 0;
    memory_free(places, bytes);
    return EMBD_OK;
}

/* Room for all of the block, before any of it is taken in. */
static int reserve_block(struct store *store, const struct row_block *block, struct embd__error *e)
{
    const char *name = store->schema->s.name;
    size_t n = (size_t)block->n_rows + block->n_candidates;
    struct unknown unknown = {.hashes = memory_new(n * sizeof *unknown.hashes)};
    if (unknown.hashes == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "table %s: no memory to load %zu rows", name, n);
    count_unknown(store, block, &unknown);
    int status = EMBD_OK;
    if (unknown.n_rows > host_room(store))
        status = count_distinct(store, block, &unknown.n_rows, e);
    if (status == EMBD_OK && unknown.n_rows > host_room(store))
        status = embd__error_set(
            e, EMBD_FULL, "table %s: %llu rows to load, %llu are left of capacity %llu", name,
            (unsigned long long)unknown.n_rows, (unsigned long long)host_room(store),
            (unsigned long long)(rows_used(&store->rows) + host_room(store)));
    else if (status == EMBD_OK &&
             (!rows_reserve(&store->rows, rows_used(&store->rows) + unknown.n_rows) ||
              !index_reserve(&store->index, unknown.hashes, unknown.n_hashes)))
        status =
            embd__error_set(e, EMBD_NO_MEMORY, "table %s: no memory for %llu more rows of %u bytes",
                            name, (unsigned long long)unknown.n_rows, store->rows.stride);
    memory_free(unknown.hashes, n * sizeof *unknown.hashes);
    return status;
}

static void load_row(struct store *store, const struct row_block *block, uint32_t i)
{
    uint32_t slot = block->slots ? block->slots[i] : 0;
    uint64_t hash = index_hash(block->keys[i], slot);
    uint32_t ref = index_find(&store->index, hash, slot);
    if (store->cow.is_on)
        cow_keep(store, hash, slot, ref);
    if (ref == 0 || (ref & INDEX_CANDIDATE)) {
        store->n_candidates -= ref != 0 && !host_is_stale(store, ref);
        ref = rows_take(&store->rows) + 1;
        if (store->cow.is_on)
            cow_note_new(store, ref - 1);
        index_put(&store->index, hash, slot, ref);
    }
    if (store->changes.n > 0)
        cow_note_row(store, hash, slot, ref - 1);
    uint8_t *record = rows_at(&store->rows, ref - 1);
    memcpy(record, (const uint8_t *)block->rows + (size_t)i * store->value_bytes,
           store->value_bytes);
    if (store->state_floats)
        memcpy(host_state(store, record), block->states + (size_t)i * store->state_floats,
               store->state_floats * sizeof(float));
    if (store->is_timed)
        store->clock = use_later(store->clock, host_state(store, record) + store->use_at);
}

/* A key that has a row keeps it. */
static void load_candidate(struct store *store, const struct row_block *block, uint32_t i)
{
    uint32_t slot = block->candidate_slots ? block->candidate_slots[i] : 0;
    uint64_t hash = index_hash(block->candidate_keys[i], slot);
    uint32_t ref = index_find(&store->index, hash, slot), count = block->candidate_counts[i];
    if (ref != 0 && !(ref & INDEX_CANDIDATE))
        return;
    if (store->cow.is_on)
        cow_keep(store, hash, slot, ref);
    store->has_candidates = true;
    store->n_candidates += ref == 0 || host_is_stale(store, ref);
    count = count == 0 ? 1 : count < INDEX_SIGHTS_MAX ? count : INDEX_SIGHTS_MAX;
    index_put(&store->index, hash, slot, INDEX_CANDIDATE | store->generation | count);
}

int host_load(struct store *store, const struct row_block *block, struct embd__error *e)
{
    if (block->n_rows == 0 && block->n_candidates == 0)
        return EMBD_OK;
    host_end_sweep(store);
    pending_remove_all(store);
    int status = reserve_block(store, block, e);
    if (status != EMBD_OK)
        return status;
    merge_forget(&store->merge);
    store->none_expire_before = 0;
    eviction_queue_drop(store);
    for (uint32_t i = 0; i < AHEAD; i++)
        prefetch_row(store, block, i);
    for (uint32_t i = 0; i < block->n_rows; i++) {
        prefetch_row(store, block, i + AHEAD);
        load_row(store, block, i);
    }
    for (uint32_t i = 0; i < block->n_candidates; i++)
        load_candidate(store, block, i);
    return EMBD_OK;
}
