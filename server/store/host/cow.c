/* cow.c - see cow.h.
 *
 * The happy path: freeze clears a bit for each row. scan_frozen (frozen.c) gives the copies that
 * exist, then rows in the order of the index, each once, by its bit. Pushes come between two of its
 * calls, and the rows that they are the first to change are copied. If entries of the index moved
 * meanwhile, the segment being read is scanned again: the bits mark the rows that were read. Keys
 * without a row have no number, so those are remembered in a second index.
 *
 * What can fail is memory for a copy: the push goes on, and the cut is given up; its next scan says
 * so. */
#include <stdlib.h>
#include <string.h>

#include "server/store/host/table.h"

/* ---- what has changed since earlier cuts ---- */

static void set_fini(struct change_set *set)
{
    row_set_fini(&set->rows);
    gone_fini(&set->gone);
    free(set->listed);
    *set = (struct change_set){.cut = 0};
}

void changes_fini(struct changes *changes)
{
    for (uint32_t i = 0; i < changes->n; i++)
        set_fini(&changes->sets[i]);
    changes->n = 0;
}

uint64_t changes_bytes(const struct changes *changes)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < changes->n; i++)
        bytes += row_set_bytes(&changes->sets[i].rows) + gone_bytes(&changes->sets[i].gone) +
                 changes->sets[i].listed_capacity * sizeof(struct changed_key);
    return bytes;
}

void changes_forget(struct changes *changes)
{
    if (changes->n > 0)
        changes->sets[changes->n - 1].gone.is_unsure = true;
}

/* The oldest set is dropped if there is no place for one more. */
static void changes_make_room(struct changes *changes)
{
    if (changes->n < CHANGES_MAX)
        return;
    set_fini(&changes->sets[0]);
    memmove(changes->sets, changes->sets + 1, --changes->n * sizeof *changes->sets);
}

static uint32_t listed_most(const struct store *store)
{
    uint64_t n = rows_used(&store->rows) / LISTED_PART;
    return n < LISTED_LEAST ? LISTED_LEAST : n > LISTED_MOST ? LISTED_MOST : (uint32_t)n;
}

/* There is room: what changes from now on is noted since this cut. Out of memory: it will have_all.
 */
static void changes_begin(struct store *store, uint64_t cut)
{
    struct changes *changes = &store->changes;
    struct change_set *set = &changes->sets[changes->n++];
    *set = (struct change_set){.cut = cut, .listed_most = listed_most(store)};
    set->has_all = !row_set_reserve(&set->rows, store->rows.n + 1);
}

/* The first of the sets since that of `cut`; n: no set has that cut, or one is unsure. */
static uint32_t changes_find(const struct changes *changes, uint64_t cut)
{
    uint32_t found = 0;
    while (found < changes->n && changes->sets[found].cut != cut)
        found++;
    for (uint32_t i = found; i < changes->n; i++)
        if (changes->sets[i].gone.is_unsure)
            return changes->n;
    return found;
}

static bool unmark_all(const struct changes *changes, uint32_t first)
{
    for (uint32_t i = first; i < changes->n; i++)
        if (changes->sets[i].has_all)
            return true;
    return false;
}

/* Drops those of the first n_rows rows that changed, as the sets from `first` on say, and adds the
 * others. */
static void changes_unmark(const struct changes *changes, uint32_t first, struct row_set *rows,
                           uint64_t n_rows)
{
    bool all = unmark_all(changes, first);
    for (uint64_t word = 0; word * 64 < n_rows; word++) {
        uint64_t changed = all ? UINT64_MAX : 0;
        for (uint32_t i = first; i < changes->n; i++)
            if (word * 64 < changes->sets[i].rows.capacity)
                changed |= changes->sets[i].rows.words[word];
        rows->words[word] = ~changed;
    }
}

static struct change_set *newest(struct store *store)
{
    return &store->changes.sets[store->changes.n - 1];
}

/* Memory for all rows there are. */
static bool has_place(struct store *store, struct change_set *set)
{
    if (!set->has_all && store->rows.n > set->rows.capacity)
        set->has_all = !row_set_grow(&set->rows, store->rows.n);
    return !set->has_all;
}

/* ---- keys, while they are few ---- */

static void set_unlist(struct change_set *set)
{
    free(set->listed);
    set->listed = NULL;
    set->n_listed = set->listed_capacity = 0;
    set->is_unlisted = true;
}

/* Twice as many. */
static bool list_grow(struct change_set *set)
{
    uint32_t capacity = set->listed_capacity > 0 ? 2 * set->listed_capacity : 1024;
    capacity = capacity < set->listed_most ? capacity : set->listed_most;
    struct changed_key *grown =
        set->n_listed == set->listed_most ? NULL : realloc(set->listed, capacity * sizeof *grown);
    if (grown == NULL)
        return false;
    set->listed = grown;
    set->listed_capacity = capacity;
    return true;
}

static void list_add(struct change_set *set, uint64_t hash, uint32_t slot)
{
    if (set->is_unlisted)
        return;
    if (set->n_listed == set->listed_capacity && !list_grow(set)) {
        set_unlist(set);
        return;
    }
    set->listed[set->n_listed++] = (struct changed_key){hash, slot};
}

static uint64_t count_listed(const struct changes *changes, uint32_t first)
{
    uint64_t n = 0;
    for (uint32_t i = first; i < changes->n; i++)
        n += changes->sets[i].n_listed;
    return n;
}

static bool is_listed(const struct changes *changes, uint32_t first)
{
    for (uint32_t i = first; i < changes->n; i++)
        if (changes->sets[i].is_unlisted || changes->sets[i].has_all)
            return false;
    return count_listed(changes, first) <= changes->sets[first].listed_most;
}

/* The cut reads these keys. Out of memory: the index. */
static void list_changed(struct store *store, uint32_t first)
{
    const struct changes *changes = &store->changes;
    struct cow *cow = &store->cow;
    uint64_t n = count_listed(changes, first);
    cow->listed = malloc((n + 1) * sizeof *cow->listed);
    if (cow->listed == NULL)
        return;
    for (uint32_t i = first; i < changes->n; i++) {
        const struct change_set *set = &changes->sets[i];
        if (set->n_listed > 0)
            memcpy(cow->listed + cow->n_listed, set->listed, set->n_listed * sizeof *set->listed);
        cow->n_listed += set->n_listed;
    }
}

/* ---- */

/* Adds the later set's changes to those of the earlier one. */
static void set_join(struct store *store, struct change_set *set, const struct change_set *later)
{
    set->has_all = set->has_all || later->has_all;
    if (!set->has_all)
        set->has_all = !row_set_grow(&set->rows, later->rows.capacity);
    for (uint64_t word = 0; !set->has_all && word * 64 < later->rows.capacity; word++)
        set->rows.words[word] |= later->rows.words[word];
    if (later->is_unlisted)
        set_unlist(set);
    for (uint32_t i = 0; i < later->n_listed; i++)
        list_add(set, later->listed[i].hash, later->listed[i].slot);
    set->gone.is_unsure = set->gone.is_unsure || later->gone.is_unsure;
    for (uint64_t i = 0; i < later->gone.n; i++)
        gone_add(&set->gone, later->gone.keys[i].key, later->gone.keys[i].slot,
                 rows_used(&store->rows));
}

void host_forget(struct store *store, uint64_t cut)
{
    struct changes *changes = &store->changes;
    uint32_t at = 0;
    while (at < changes->n && changes->sets[at].cut != cut)
        at++;
    if (at == changes->n)
        return;
    if (at > 0)
        set_join(store, &changes->sets[at - 1], &changes->sets[at]);
    set_fini(&changes->sets[at]);
    changes->n--;
    memmove(changes->sets + at, changes->sets + at + 1, (changes->n - at) * sizeof *changes->sets);
}

void cow_note_row(struct store *store, uint64_t hash, uint32_t slot, uint32_t row)
{
    struct change_set *set = newest(store);
    if (!has_place(store, set))
        return;
    row_set_add(&set->rows, row);
    list_add(set, hash, slot);
}

void cow_note_merged(struct store *store)
{
    const struct merge *merge = &store->merge;
    struct change_set *set = newest(store);
    if (!has_place(store, set))
        return;
    struct row_set rows = set->rows;
    for (uint32_t i = 0; i < merge->n; i++) {
        const struct distinct *d = &merge->distinct[i];
        if (d->ref == 0)
            continue;
        if (!set->is_unlisted && !row_set_has(&rows, d->ref - 1))
            list_add(set, d->hash, d->slot);
        row_set_add(&rows, d->ref - 1);
    }
}

void cow_note_all(struct store *store)
{
    newest(store)->has_all = true;
}

void cow_note_gone(struct store *store, uint64_t hash, uint32_t slot)
{
    gone_add(&newest(store)->gone, index_key(hash, slot), slot, rows_used(&store->rows));
}

/* ---- copies ---- */

static size_t chunk_bytes(const struct store *store)
{
    return sizeof(struct cow_chunk) + (size_t)COW_CHUNK_ROWS * store->cow.copy_bytes;
}

uint64_t cow_bytes(const struct store *store)
{
    const struct cow *cow = &store->cow;
    if (!cow->is_on)
        return 0;
    return row_set_bytes(&cow->done) + cow->n_chunks * chunk_bytes(store) +
           cow->candidates_capacity * sizeof *cow->candidates +
           cow->n_listed * sizeof *cow->listed +
           (cow->seen.places != NULL ? index_bytes(&cow->seen) : 0);
}

static bool may_take(const struct store *store, uint64_t bytes)
{
    const struct cow *cow = &store->cow;
    return cow->most_bytes == 0 || cow_bytes(store) + bytes <= cow->most_bytes;
}

static struct cow_chunk *chunk_with_room(struct store *store)
{
    struct cow *cow = &store->cow;
    if (cow->last != NULL && cow->last->n < COW_CHUNK_ROWS)
        return cow->last;
    struct cow_chunk *chunk =
        may_take(store, chunk_bytes(store)) ? malloc(chunk_bytes(store)) : NULL;
    if (chunk == NULL)
        return NULL;
    cow->n_chunks++;
    chunk->next = NULL;
    chunk->n = chunk->n_read = 0;
    if (cow->last != NULL)
        cow->last->next = chunk;
    else
        cow->first = chunk;
    cow->last = chunk;
    return chunk;
}

static void keep_row(struct store *store, uint64_t hash, uint32_t slot, uint32_t row)
{
    struct cow *cow = &store->cow;
    if (row >= cow->n_rows || row_set_has(&cow->done, row))
        return;
    struct cow_chunk *chunk = chunk_with_room(store);
    if (chunk == NULL) {
        cow->is_broken = true;
        return;
    }
    row_set_add(&cow->done, row);
    cow->n_left--;
    chunk->keys[chunk->n] = index_key(hash, slot);
    chunk->slots[chunk->n] = (uint16_t)slot;
    memcpy(chunk->records + (size_t)chunk->n * cow->copy_bytes, rows_at(&store->rows, row),
           cow->copy_bytes);
    chunk->n++;
}

bool cow_see(struct store *store, uint64_t hash, uint32_t slot)
{
    struct cow *cow = &store->cow;
    if (index_find(&cow->seen, hash, slot) != 0)
        return false;
    if (!may_take(store, index_growth(&cow->seen, 1)) || !index_reserve(&cow->seen, &hash, 1)) {
        cow->is_broken = true;
        return false;
    }
    index_put(&cow->seen, hash, slot, 1);
    return true;
}

/* Twice as many. */
static bool grow_candidates(struct store *store)
{
    struct cow *cow = &store->cow;
    uint64_t capacity = cow->candidates_capacity ? 2 * cow->candidates_capacity : 1024;
    size_t bytes = capacity * sizeof *cow->candidates;
    struct cow_candidate *grown = may_take(store, bytes) ? realloc(cow->candidates, bytes) : NULL;
    if (grown == NULL)
        return false;
    cow->candidates = grown;
    cow->candidates_capacity = capacity;
    return true;
}

static void keep_candidate(struct store *store, uint64_t hash, uint32_t slot, uint32_t ref)
{
    struct cow *cow = &store->cow;
    if (!cow_see(store, hash, slot) || ref == 0)
        return;
    if (cow->n_candidates == cow->candidates_capacity && !grow_candidates(store)) {
        cow->is_broken = true;
        return;
    }
    cow->candidates[cow->n_candidates++] =
        (struct cow_candidate){index_key(hash, slot), slot, ref & INDEX_SIGHTS_MAX};
}

static bool has_candidates(const struct store *store)
{
    return store->cow.has_candidates;
}

void cow_keep(struct store *store, uint64_t hash, uint32_t slot, uint32_t ref)
{
    if (ref != 0 && !(ref & INDEX_CANDIDATE))
        keep_row(store, hash, slot, ref - 1);
    else if (has_candidates(store))
        keep_candidate(store, hash, slot, cow_is_in_cut(&store->cow, ref) ? ref : 0);
}

#define AHEAD 8u

void cow_keep_merged(struct store *store)
{
    const struct merge *merge = &store->merge;
    for (uint32_t i = 0; i < merge->n; i++) {
        uint32_t next = i + AHEAD < merge->n ? merge->distinct[i + AHEAD].ref : 0;
        if (next != 0 && !(next & INDEX_CANDIDATE))
            rows_prefetch(rows_at(&store->rows, next - 1), store->rows.stride);
        cow_keep(store, merge->distinct[i].hash, merge->distinct[i].slot, merge->distinct[i].ref);
    }
}

bool cow_keep_some(struct store *store, uint64_t *at, uint64_t n)
{
    struct index_entry entry;
    for (; n > 0 && !store->cow.is_read; n--)
        if (index_next(&store->index, at, &entry))
            cow_keep(store, entry.hash, entry.slot, entry.ref);
        else
            store->cow.is_read = true;
    return !store->cow.is_read;
}

void cow_note_new(struct store *store, uint32_t row)
{
    struct cow *cow = &store->cow;
    if (row >= cow->n_rows || row_set_has(&cow->done, row))
        return;
    row_set_add(&cow->done, row);
    cow->n_left--;
}

/* ---- the calls of store_ops ---- */

/* Rows whose keys have lost them are not in the cut. */
static void leave_pending_out(struct store *store)
{
    const struct row_set *pending = &store->pending.set;
    struct row_set *done = &store->cow.done;
    if (store->pending.n_left > 0)
        for (uint64_t i = 0; i * 64 < store->cow.n_rows && i * 64 < pending->capacity; i++)
            done->words[i] |= pending->words[i];
}

/* In a cut since another one, rows that did not change count as read. */
static void leave_out(struct store *store, struct store_cut *cut)
{
    struct changes *changes = &store->changes;
    struct cow *cow = &store->cow;
    if (cut->id != 0)
        changes_make_room(changes);
    uint32_t first = cut->since == 0 ? changes->n : changes_find(changes, cut->since);
    cut->has_all = first == changes->n;
    if (!cut->has_all) {
        changes_unmark(changes, first, &cow->done, cow->n_rows);
        cow->first_set = first;
        cow->end_set = changes->n;
        cow->gone_end = changes->sets[changes->n - 1].gone.n;
        if (!cow->has_candidates && is_listed(changes, first))
            list_changed(store, first);
    }
    if (cut->id != 0)
        changes_begin(store, cut->id);
}

static uint64_t count_left(const struct cow *cow)
{
    uint64_t n_done = 0, word = 0;
    for (; word < cow->n_rows / 64; word++)
        n_done += (uint64_t)__builtin_popcountll(cow->done.words[word]);
    uint64_t rest = (UINT64_C(1) << cow->n_rows % 64) - 1;
    if (rest != 0)
        n_done += (uint64_t)__builtin_popcountll(cow->done.words[word] & rest);
    return cow->n_rows - n_done;
}

int host_freeze(struct store *store, struct store_cut *cut, struct embd__error *e)
{
    struct cow *cow = &store->cow;
    *cow = (struct cow){.n_rows = store->rows.n,
                        .moved = index_moved(&store->index, 0),
                        .generation = store->generation,
                        .has_candidates = store->schema->s.admit_after > 1,
                        .copy_bytes = cut->no_states ? store->value_bytes : store->rows.stride,
                        .most_bytes = cut->copy_bytes};
    bool has_memory = row_set_reserve(&cow->done, cow->n_rows + 1) &&
                      (!has_candidates(store) || index_open(&cow->seen, store->index.has_slots));
    if (!has_memory) {
        row_set_fini(&cow->done);
        return embd__error_set(e, EMBD_NO_MEMORY, "table %s: no memory for a cut of %llu rows",
                               store->schema->s.name, (unsigned long long)cow->n_rows);
    }
    cow->is_on = true;
    sweep_freeze(&store->sweep);
    store->is_decided = false; /* rows of that change would not be copied */
    leave_out(store, cut);
    leave_pending_out(store);
    cow->n_left = count_left(cow);
    return EMBD_OK;
}

void host_thaw(struct store *store)
{
    struct cow *cow = &store->cow;
    if (!cow->is_on)
        return;
    while (cow->first != NULL) {
        struct cow_chunk *next = cow->first->next;
        free(cow->first);
        cow->first = next;
    }
    free(cow->candidates);
    free(cow->listed);
    row_set_fini(&cow->done);
    if (has_candidates(store))
        index_close(&cow->seen);
    *cow = (struct cow){.is_on = false};
}
