/* frozen.c - see frozen.h.
 *
 * The happy path: freeze clears a bit for each row; scan_frozen gives the copies there are, then
 * rows in the order of the index, each once, by its bit; between two of its calls pushes come, and
 * what they are the first to change is copied. Where entries of the index changed their places
 * meanwhile, the segment being read is gone through again: what was read of it is known by its
 * bits. Keys without a row have no number, so those are remembered in a second index.
 *
 * What can fail is memory for a copy: the push goes on, and the cut is given up, which its next
 * scan says. */
#include <stdlib.h>
#include <string.h>

#include "server/store/host/host.h"

/* Entries looked at in one scan: where most of them were copied, a scan shall not take long all the
 * same. A segment whose entries change their places between any two scans is gone through from its
 * begin in each, and has to come to an end. */
#define VISITS INDEX_SEGMENT_MAX

/* ---- copies ---- */

static struct frozen_chunk *chunk_with_room(struct store *store)
{
    struct frozen *f = &store->frozen;
    if (f->last != NULL && f->last->n < FROZEN_CHUNK_ROWS)
        return f->last;
    struct frozen_chunk *chunk =
        malloc(sizeof *chunk + (size_t)FROZEN_CHUNK_ROWS * store->rows.stride);
    if (chunk == NULL)
        return NULL;
    chunk->next = NULL;
    chunk->n = chunk->n_read = 0;
    if (f->last != NULL)
        f->last->next = chunk;
    else
        f->first = chunk;
    f->last = chunk;
    return chunk;
}

static void keep_row(struct store *store, uint64_t hash, uint32_t slot, uint32_t row)
{
    struct frozen *f = &store->frozen;
    if (row >= f->n_rows || marks_has(&f->done, row))
        return;
    struct frozen_chunk *chunk = chunk_with_room(store);
    if (chunk == NULL) {
        f->is_broken = true;
        return;
    }
    marks_set(&f->done, row);
    chunk->keys[chunk->n] = index_key(hash, slot);
    chunk->slots[chunk->n] = (uint16_t)slot;
    memcpy(chunk->records + (size_t)chunk->n * store->rows.stride, rows_at(&store->rows, row),
           store->rows.stride);
    chunk->n++;
}

/* False: it was seen before, or there is no memory. */
static bool see(struct frozen *f, uint64_t hash, uint32_t slot)
{
    if (index_find(&f->seen, hash, slot) != 0)
        return false;
    if (!index_reserve(&f->seen, &hash, 1)) {
        f->is_broken = true;
        return false;
    }
    index_put(&f->seen, hash, slot, 1);
    return true;
}

static void keep_candidate(struct frozen *f, uint64_t hash, uint32_t slot, uint32_t ref)
{
    if (!see(f, hash, slot) || ref == 0)
        return;
    if (f->n_candidates == f->candidates_capacity) {
        uint64_t capacity = f->candidates_capacity ? 2 * f->candidates_capacity : 1024;
        struct frozen_candidate *grown = realloc(f->candidates, capacity * sizeof *grown);
        if (grown == NULL) {
            f->is_broken = true;
            return;
        }
        f->candidates = grown;
        f->candidates_capacity = capacity;
    }
    f->candidates[f->n_candidates++] =
        (struct frozen_candidate){index_key(hash, slot), slot, ref & INDEX_SIGHTS_MAX};
}

static bool has_candidates(const struct store *store)
{
    return store->schema->s.admit_after > 1;
}

void frozen_keep(struct store *store, uint64_t hash, uint32_t slot, uint32_t ref)
{
    if (ref != 0 && !(ref & INDEX_CANDIDATE))
        keep_row(store, hash, slot, ref - 1);
    else if (has_candidates(store))
        keep_candidate(&store->frozen, hash, slot, ref);
}

#define AHEAD 8u

void frozen_keep_merged(struct store *store)
{
    const struct merge *merge = &store->merge;
    for (uint32_t i = 0; i < merge->n; i++) {
        uint32_t next = i + AHEAD < merge->n ? merge->distinct[i + AHEAD].ref : 0;
        if (next != 0 && !(next & INDEX_CANDIDATE))
            rows_prefetch(rows_at(&store->rows, next - 1), store->rows.stride);
        frozen_keep(store, merge->distinct[i].hash, merge->distinct[i].slot,
                    merge->distinct[i].ref);
    }
}

void frozen_keep_all(struct store *store)
{
    struct index_entry entry;
    uint64_t at = 0;
    while (!store->frozen.is_read && index_next(&store->index, &at, &entry))
        frozen_keep(store, entry.hash, entry.slot, entry.ref);
    store->frozen.is_read = true;
}

void frozen_note_new(struct store *store, uint32_t row)
{
    if (row < store->frozen.n_rows)
        marks_set(&store->frozen.done, row);
}

/* ---- the calls of store_ops ---- */

/* Rows whose keys have lost them are not in the cut. */
static void leave_doomed_out(struct store *store)
{
    const struct marks *doomed = &store->doomed.marks;
    struct marks *done = &store->frozen.done;
    if (store->doomed.n_left > 0)
        for (uint64_t i = 0; i * 64 < store->frozen.n_rows && i * 64 < doomed->capacity; i++)
            done->words[i] |= doomed->words[i];
}

/* Of a cut since another one: rows that did not change count as read. */
static void leave_out(struct store *store, struct store_cut *cut)
{
    struct changes *changes = &store->changes;
    struct frozen *f = &store->frozen;
    if (cut->id != 0)
        changes_make_room(changes);
    uint32_t first = cut->since == 0 ? changes->n : changes_find(changes, cut->since);
    cut->has_all = first == changes->n;
    if (!cut->has_all) {
        changes_unmark(changes, first, &f->done, f->n_rows);
        f->first_set = first;
        f->end_set = changes->n;
        f->gone_end = changes->sets[changes->n - 1].gone.n;
    }
    if (cut->id != 0)
        changes_begin(store, cut->id);
}

int host_freeze(struct store *store, struct store_cut *cut, struct embd__error *e)
{
    struct frozen *f = &store->frozen;
    *f = (struct frozen){.n_rows = store->rows.n, .moved = index_moved(&store->index, 0)};
    bool has_memory =
        marks_reserve(&f->done, f->n_rows + 1) && (!has_candidates(store) || index_open(&f->seen));
    if (!has_memory) {
        marks_fini(&f->done);
        return embd__error_set(e, EMBD_NO_MEMORY, "table %s: no memory for a cut of %llu rows",
                               store->schema->s.name, (unsigned long long)f->n_rows);
    }
    f->is_on = true;
    leave_out(store, cut);
    leave_doomed_out(store);
    return EMBD_OK;
}

void host_thaw(struct store *store)
{
    struct frozen *f = &store->frozen;
    if (!f->is_on)
        return;
    while (f->first != NULL) {
        struct frozen_chunk *next = f->first->next;
        free(f->first);
        f->first = next;
    }
    free(f->candidates);
    marks_fini(&f->done);
    if (has_candidates(store))
        index_close(&f->seen);
    *f = (struct frozen){.is_on = false};
}

static bool has_room(const struct store_scan *out, uint32_t max_rows)
{
    return out->n_rows + out->n_candidates < max_rows;
}

/* Keys without a row, as candidates that were seen no time. */
static void read_gone(struct store *store, uint32_t max_rows, struct store_scan *out)
{
    struct frozen *f = &store->frozen;
    for (; f->first_set < f->end_set; f->first_set++, f->gone_at = 0) {
        const struct gone *gone = &store->changes.sets[f->first_set].gone;
        uint64_t end = f->first_set + 1 == f->end_set ? f->gone_end : gone->n;
        for (; f->gone_at < end; f->gone_at++) {
            if (!has_room(out, max_rows))
                return;
            host_copy_candidate(store, gone->keys[f->gone_at].key, gone->keys[f->gone_at].slot, 0,
                                out);
        }
    }
}

/* The oldest copies; chunks that were read are freed. */
static void read_copies(struct store *store, uint32_t max_rows, struct store_scan *out)
{
    struct frozen *f = &store->frozen;
    while (f->first != NULL && has_room(out, max_rows)) {
        struct frozen_chunk *chunk = f->first;
        for (; chunk->n_read < chunk->n && has_room(out, max_rows); chunk->n_read++)
            host_copy_row(store, chunk->keys[chunk->n_read], chunk->slots[chunk->n_read],
                          chunk->records + (size_t)chunk->n_read * store->rows.stride, out);
        if (chunk->n_read < chunk->n)
            return;
        f->first = chunk->next;
        if (f->first == NULL)
            f->last = NULL;
        free(chunk);
    }
    for (; f->n_candidates_read < f->n_candidates && has_room(out, max_rows);
         f->n_candidates_read++) {
        const struct frozen_candidate *c = &f->candidates[f->n_candidates_read];
        host_copy_candidate(store, c->key, c->slot, c->count, out);
    }
}

/* Whether the entry is in the cut and was neither read nor copied: it counts as read then. */
static bool take(struct store *store, const struct index_entry *entry)
{
    struct frozen *f = &store->frozen;
    if (entry->ref & INDEX_CANDIDATE)
        return see(f, entry->hash, entry->slot);
    uint32_t row = entry->ref - 1;
    if (row >= f->n_rows || marks_has(&f->done, row))
        return false;
    marks_set(&f->done, row);
    rows_prefetch(rows_at(&store->rows, row), store->rows.stride);
    return true;
}

#define BATCH 32u

/* Some entries that are to be copied out, their records on the way to the cache. */
static uint32_t take_batch(struct store *store, uint32_t max, uint32_t *visits,
                           struct index_entry batch[BATCH])
{
    struct frozen *f = &store->frozen;
    uint32_t n = 0;
    uint64_t moved = index_moved(&store->index, f->hash);
    if (f->moved != moved) {
        f->moved = moved;
        f->at = 0;
    }
    while (!f->is_read && n < BATCH && n < max && *visits < VISITS) {
        uint64_t next;
        ++*visits;
        if (index_next_of(&store->index, f->hash, &f->at, &batch[n], &next)) {
            n += take(store, &batch[n]);
            continue;
        }
        f->hash = next;
        f->at = 0;
        f->moved = index_moved(&store->index, next);
        f->is_read = next == 0;
    }
    return n;
}

static void read_index(struct store *store, uint32_t max_rows, struct store_scan *out)
{
    struct index_entry batch[BATCH];
    uint32_t visits = 0, n;
    do {
        n = take_batch(store, max_rows - out->n_rows - out->n_candidates, &visits, batch);
        for (uint32_t i = 0; i < n; i++) {
            uint64_t key = index_key(batch[i].hash, batch[i].slot);
            if (batch[i].ref & INDEX_CANDIDATE)
                host_copy_candidate(store, key, batch[i].slot, batch[i].ref & INDEX_SIGHTS_MAX,
                                    out);
            else
                host_copy_row(store, key, batch[i].slot, rows_at(&store->rows, batch[i].ref - 1),
                              out);
        }
    } while (n > 0);
}

int host_scan_frozen(struct store *store, uint32_t max_rows, struct store_scan *out, bool *done_out,
                     struct embd__error *e)
{
    struct frozen *f = &store->frozen;
    out->n_rows = out->n_candidates = 0;
    if (!f->is_broken)
        read_gone(store, max_rows, out);
    bool has_gone = out->n_candidates > 0; /* these come first, and by themselves */
    if (!f->is_broken && !has_gone)
        read_copies(store, max_rows, out);
    if (!f->is_broken && !has_gone && has_room(out, max_rows))
        read_index(store, max_rows, out);
    *done_out = f->is_read && f->first_set == f->end_set && f->first == NULL &&
                f->n_candidates_read == f->n_candidates;
    if (f->is_broken)
        return embd__error_set(e, EMBD_NO_MEMORY,
                               "table %s: no memory to copy rows that change while a cut is read",
                               store->schema->s.name);
    return EMBD_OK;
}
