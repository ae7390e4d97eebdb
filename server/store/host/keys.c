/* keys.c - keys get rows and lose them.
 *
 * New rows: everything that may fail happens before any visible change. The request's keys are
 * counted by their decision (hit, insert, ...), and memory for the new rows and entries is
 * reserved; then rows are created. Keys without room are the last of the request, in order of first
 * occurrence.
 *
 * Forgotten keys: the row becomes free, and the entry leaves the index. If there is no memory to
 * merge the keys, they are looked up one by one, so that nothing can fail: an erase of several
 * tables that is in a journal takes effect in all of them. */
#include <string.h>

#include "server/store/host/table.h"

/* The decision about a key whose index entry is `ref`; takes from *room. */
static embd_key_status decide(const struct store *store, uint32_t ref, uint64_t *room)
{
    if (index_has_row(ref))
        return EMBD_KEY_HIT;
    uint32_t sights = host_known(store, ref) & INDEX_SIGHTS_MAX;
    if ((uint64_t)sights + 1 < store->schema->s.admit_after)
        return EMBD_KEY_FILTERED;
    if (*room == 0)
        return EMBD_KEY_FULL;
    --*room;
    return EMBD_KEY_INSERTED;
}

/* Counts what create_all will do. *n_new: keys the index has not heard of. */
static void plan(const struct store *store, uint64_t room, struct created *created, uint32_t *n_new)
{
    struct created c = {0};
    uint32_t n = 0;
    for (uint32_t i = 0; i < store->merge.n; i++) {
        uint32_t ref = store->merge.distinct[i].ref;
        embd_key_status status = decide(store, ref, &room);
        if (status == EMBD_KEY_HIT)
            continue;
        c.n_inserted += status == EMBD_KEY_INSERTED;
        c.n_full += status == EMBD_KEY_FULL;
        c.n_filtered += status == EMBD_KEY_FILTERED;
        n += ref == 0 && status != EMBD_KEY_FULL;
    }
    *created = c;
    *n_new = n;
}

static bool reserve_entries(struct store *store, uint32_t n_new)
{
    uint64_t *hashes = merge_space(&store->merge);
    uint32_t n = 0;
    for (uint32_t i = 0; i < store->merge.n && n < n_new; i++) /* those without room come last */
        if (store->merge.distinct[i].ref == 0)
            hashes[n++] = store->merge.distinct[i].hash;
    return n == 0 || index_reserve(&store->index, hashes, n);
}

/* A row at its first value. */
static uint32_t new_row(struct store *store, uint64_t key, uint32_t slot)
{
    uint32_t row = rows_take(&store->rows);
    if (store->cow.is_on)
        cow_note_new(store, row);
    if (store->changes.n > 0)
        cow_note_row(store, index_hash(key, slot), slot, row);
    values_begin(store, key, slot, rows_at(&store->rows, row));
    return row;
}

/* Sums all occurrences of a key. */
static void set_statuses(const struct merge *merge, const struct distinct *d, uint8_t *statuses,
                         embd_key_status status)
{
    uint32_t k = d->first;
    statuses[k] = (uint8_t)status;
    for (uint32_t i = 0; i < d->repeats; i++) {
        k = merge->next[k];
        statuses[k] = (uint8_t)status;
    }
}

/* A row, one more sight, or nothing for a key without a row. Cannot fail: all is reserved. */
static void place(struct store *store, const struct store_keys *in, struct distinct *d,
                  embd_key_status status)
{
    uint32_t known = host_known(store, d->ref), sights = known & INDEX_SIGHTS_MAX;
    bool was_candidate = known != 0;
    d->ref = 0;
    if (status == EMBD_KEY_INSERTED) {
        d->ref = new_row(store, in->keys[d->first], d->slot) + 1;
        store->n_candidates -= was_candidate;
        index_put(&store->index, d->hash, d->slot, d->ref);
        if (store->queue.is_on)
            eviction_queue_note_new(
                store, &(struct index_entry){.hash = d->hash, .ref = d->ref, .slot = d->slot});
    } else if (status == EMBD_KEY_FILTERED) {
        store->n_candidates += !was_candidate;
        sights += sights < INDEX_SIGHTS_MAX;
        index_put(&store->index, d->hash, d->slot, INDEX_CANDIDATE | store->generation | sights);
    }
}

void keys_create_some(struct store *store, const struct store_keys *in, uint8_t *statuses,
                      uint32_t begin, uint32_t end)
{
    uint64_t room = host_room(store);
    for (uint32_t i = begin; i < end; i++) {
        struct distinct *d = &store->merge.distinct[i];
        embd_key_status status = decide(store, d->ref, &room);
        if (status == EMBD_KEY_HIT)
            continue;
        place(store, in, d, status);
        if (statuses)
            set_statuses(&store->merge, d, statuses, status);
    }
}

/* All that may fail, while `n_gone` rows are being removed. */
static int reserve(struct store *store, const struct created *created, uint32_t n_new,
                   uint64_t n_gone, bool may_drop, struct embd__error *e)
{
    const char *name = store->schema->s.name;
    uint64_t used = host_rows(store) - n_gone, room = host_room(store) + n_gone;
    if (created->n_full && !may_drop)
        return embd__error_set(e, EMBD_FULL,
                               "table %s: %u keys need a row, %llu rows are left of capacity %llu",
                               name, created->n_inserted + created->n_full,
                               (unsigned long long)room, (unsigned long long)(used + room));
    if (rows_reserve(&store->rows, used + created->n_inserted) && reserve_entries(store, n_new))
        return EMBD_OK;
    return embd__error_set(e, EMBD_NO_MEMORY, "table %s: no memory for %u more rows of %u bytes",
                           name, created->n_inserted, store->rows.stride);
}

/* As many as there will be new rows, so that there is never memory for more than the capacity, and
 * some more, so that it comes to an end. */
static void remove_pending(struct store *store, uint32_t n_new)
{
    if (store->pending.n_left > 0)
        pending_remove(store, n_new + store->schema->s.capacity / USE_PASS_PART / 64 + 1);
}

int keys_reserve(struct store *store, bool may_drop, struct created *created, struct embd__error *e)
{
    uint64_t n_gone = 0;
    uint32_t n_new;
    store->forgets = false;
    if (store->schema->s.admit_after > 0)
        candidates_decide(store);
    plan(store, host_room(store), created, &n_new);
    if (created->n_full && store->evicts) {
        if (!evict_choose(store, created->n_full, &n_gone))
            return embd__error_set(e, EMBD_NO_MEMORY, "table %s: no memory to choose rows to evict",
                                   store->schema->s.name);
        plan(store, host_room(store) + n_gone, created, &n_new);
    }
    created->n_evicted = (uint32_t)n_gone;
    return reserve(store, created, n_new, n_gone, may_drop, e);
}

void keys_begin_create(struct store *store, const struct store_keys *in, uint8_t *statuses,
                       const struct created *created)
{
    if (store->forgets)
        candidates_forget(store);
    if (created->n_evicted > 0)
        evict_rows(store, created->n_evicted);
    remove_pending(store, created->n_inserted);
    if (statuses)
        memset(statuses, EMBD_KEY_HIT, in->n_keys);
}

void keys_end_create(struct store *store)
{
    if (store->is_swept)
        candidates_sweep(store);
}

void keys_create(struct store *store, const struct store_keys *in, uint8_t *statuses,
                 const struct created *created)
{
    keys_begin_create(store, in, statuses, created);
    if (created->n_inserted + created->n_full + created->n_filtered)
        keys_create_some(store, in, statuses, 0, store->merge.n);
    keys_end_create(store);
}

int keys_reserve_more(struct store *store, uint64_t n, struct embd__error *e)
{
    uint64_t room = host_room(store), n_rows = n < room ? n : room;
    if (rows_reserve(&store->rows, host_rows(store) + n_rows) &&
        index_reserve_more(&store->index, n))
        return EMBD_OK;
    return embd__error_set(e, EMBD_NO_MEMORY, "table %s: no memory for %llu more rows of %u bytes",
                           store->schema->s.name, (unsigned long long)n, store->rows.stride);
}

/* Rows that were given back, or are about to be, are taken first. */
uint64_t keys_growth(const struct store *store, uint64_t n_rows, uint64_t n_keys)
{
    uint64_t room = host_room(store), free = store->rows.n_free + store->pending.n_left;
    uint64_t n = n_rows < room ? n_rows : room;
    return (n > free ? n - free : 0) * store->rows.stride + index_growth(&store->index, n_keys);
}

void keys_count(struct store *store, uint32_t *n_rows_out, uint32_t *n_keys_out)
{
    struct created created;
    store->forgets = false;
    if (store->schema->s.admit_after > 0)
        candidates_decide(store);
    plan(store, host_room(store), &created, n_keys_out);
    *n_rows_out = created.n_inserted;
}

/* ---- keys forgotten ---- */

static embd_key_status erase_key(struct store *store, const struct distinct *d)
{
    if (d->ref == 0 || host_is_stale(store, d->ref))
        return EMBD_KEY_MISSING;
    if (store->cow.is_on)
        cow_keep(store, d->hash, d->slot, d->ref);
    if (store->changes.n > 0)
        cow_note_gone(store, d->hash, d->slot);
    index_remove(&store->index, d->hash, d->slot);
    if (d->ref & INDEX_CANDIDATE) {
        store->n_candidates--;
        return EMBD_KEY_MISSING;
    }
    if (store->queue.is_on)
        eviction_queue_note_gone(store, d->ref - 1);
    rows_give_back(&store->rows, d->ref - 1);
    return EMBD_KEY_EVICTED;
}

static uint32_t end_of(const struct store_keys *in, uint32_t row)
{
    return in->offsets != NULL ? in->offsets[row + 1] : row + 1;
}

static struct distinct look_up(const struct store *store, const struct store_keys *in, uint32_t row,
                               uint32_t k)
{
    uint32_t slot = in->slots != NULL ? in->slots[row] : 0;
    struct distinct d = {.hash = index_hash(in->keys[k], slot), .slot = slot & 0x3ff};
    d.ref = index_find(&store->index, d.hash, slot);
    return d;
}

/* All statuses are set before the first key goes, which may occur again. */
static void erase_singly(struct store *store, struct store_erase *erase)
{
    const struct store_keys *in = &erase->in;
    pending_remove_all(store);
    for (uint32_t row = 0, k = 0; row < in->n_rows && erase->statuses != NULL; row++)
        for (; k < end_of(in, row); k++)
            erase->statuses[k] =
                index_has_row(look_up(store, in, row, k).ref) ? EMBD_KEY_EVICTED : EMBD_KEY_MISSING;
    for (uint32_t row = 0, k = 0; row < in->n_rows; row++)
        for (; k < end_of(in, row); k++) {
            const struct distinct d = look_up(store, in, row, k);
            erase->n_erased += erase_key(store, &d) == EMBD_KEY_EVICTED;
        }
}

int host_erase(struct store *store, struct store_erase *erase, struct embd__error *e)
{
    const struct merge *merge = &store->merge;
    (void)e;
    host_end_sweep(store);
    erase->n_erased = 0;
    if (!merge_keys(&store->merge, &erase->in, &store->index)) {
        erase_singly(store, erase);
        return EMBD_OK;
    }
    if (store->evicts)
        pending_remove_merged(store);
    for (uint32_t i = 0; i < merge->n; i++) {
        const struct distinct *d = &merge->distinct[i];
        embd_key_status became = erase_key(store, d);
        erase->n_erased += became == EMBD_KEY_EVICTED;
        if (erase->statuses)
            set_statuses(merge, d, erase->statuses, became);
    }
    merge_end(&store->merge);
    return EMBD_OK;
}
