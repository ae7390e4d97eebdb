/* frozen.c - reads a cut (cow.h): keys that lost their rows, then copies that exist, then rows that
 * were neither copied nor read, in the order of the index, or of a list of those that changed. */
#include "proto/assert.h"
#include "server/store/host/table.h"

/* Entries looked at in one scan: even if most of them were copied, a scan must be short. A segment
 * whose entries move between any two scans is scanned from its beginning in each, and must come to
 * an end. */
#define VISITS 131072u
_Static_assert(VISITS > INDEX_BUCKETS_MAX * INDEX_BUCKET, "a scan reads a segment");
/* The same where most keys may be skipped: some 50 us, as it takes to pass over so many times as
 * many. */
#define SKIP_VISITS 8192u
#define SKIP_PASSES 8u

static bool has_room(const struct store_scan *out, uint32_t max_rows)
{
    return out->n_rows + out->n_candidates < max_rows;
}

/* Keys without a row, as candidates that were seen no time. */
static void read_gone(struct store *store, uint32_t max_rows, struct store_scan *out)
{
    struct cow *cow = &store->cow;
    for (; cow->first_set < cow->end_set; cow->first_set++, cow->gone_at = 0) {
        const struct gone *gone = &store->changes.sets[cow->first_set].gone;
        uint64_t end = cow->first_set + 1 == cow->end_set ? cow->gone_end : gone->n;
        for (; cow->gone_at < end; cow->gone_at++) {
            if (!has_room(out, max_rows))
                return;
            values_copy_candidate(store, gone->keys[cow->gone_at].key,
                                  gone->keys[cow->gone_at].slot, 0, out);
        }
    }
}

/* The oldest copies; chunks that were read are freed. */
static void read_copies(struct store *store, uint32_t max_rows, struct store_scan *out)
{
    struct cow *cow = &store->cow;
    while (cow->first != NULL && has_room(out, max_rows)) {
        struct cow_chunk *chunk = cow->first;
        for (; chunk->n_read < chunk->n && has_room(out, max_rows); chunk->n_read++)
            values_copy_row(store, chunk->keys[chunk->n_read], chunk->slots[chunk->n_read],
                            chunk->records + (size_t)chunk->n_read * cow->copy_bytes, out);
        if (chunk->n_read < chunk->n)
            return;
        cow->first = chunk->next;
        if (cow->first == NULL)
            cow->last = NULL;
        free(chunk);
        cow->n_chunks--;
    }
    for (; cow->n_candidates_read < cow->n_candidates && has_room(out, max_rows);
         cow->n_candidates_read++) {
        const struct cow_candidate *c = &cow->candidates[cow->n_candidates_read];
        values_copy_candidate(store, c->key, c->slot, c->count, out);
    }
}

static bool is_skipped(const struct store_skip *skip, const struct index_entry *entry)
{
    return skip != NULL && skip->has(skip, index_key(entry->hash, entry->slot), entry->slot);
}

/* Whether the entry is in the cut, wanted, and was neither read nor copied: it counts as read then,
 * and so does a row that is not wanted: no push copies it any more. */
static bool take(struct store *store, const struct index_entry *entry,
                 const struct store_skip *skip)
{
    struct cow *cow = &store->cow;
    if (entry->ref & INDEX_CANDIDATE)
        return cow->has_candidates && cow_is_in_cut(cow, entry->ref) && !is_skipped(skip, entry) &&
               cow_see(store, entry->hash, entry->slot);
    uint32_t row = entry->ref - 1;
    if (row >= cow->n_rows || row_set_has(&cow->done, row))
        return false;
    row_set_add(&cow->done, row);
    cow->n_left--;
    if (is_skipped(skip, entry))
        return false;
    rows_prefetch(rows_at(&store->rows, row), cow->copy_bytes);
    return true;
}

/* Whether take() takes a row of the bucket. Without branches: where entries end in a bucket, and
 * which rows were read, no processor foretells. */
static inline bool has_unread(const struct cow *cow, const struct index_bucket *bucket)
{
    uint64_t unread = 0;
    for (unsigned i = 0; i < INDEX_BUCKET; i++) {
        uint32_t row = bucket->ref[i] - 1; /* of empty places and candidates: none */
        bool is_in = row < cow->n_rows;
        uint32_t at = is_in ? row : 0;
        unread |= is_in & ~(cow->done.words[at / 64] >> at % 64);
    }
    return unread & 1;
}

/* Where few rows are left, as in a cut since another one, most buckets are passed over: from the
 * next one on to one that has some, or the segment's end, past `most` entries or a bucket more.
 * Returns how many of them it passed. */
static uint32_t pass_over(struct store *store, uint32_t most)
{
    struct cow *cow = &store->cow;
    uint64_t next, first = (cow->at + INDEX_BUCKET - 1) / INDEX_BUCKET, bucket = first,
                   end = bucket + most / INDEX_BUCKET + 1;
    const struct segment *segment = index_segment(&store->index, cow->address, &next);
    if (cow->at % INDEX_BUCKET != 0)
        return 0;
    while (bucket <= segment->bucket_mask && bucket < end &&
           !has_unread(cow, &segment->buckets[bucket])) {
        bucket++;
        __builtin_prefetch(&segment->buckets[bucket + 16]);
    }
    cow->at = bucket * INDEX_BUCKET;
    uint32_t n = (uint32_t)(bucket - first) * INDEX_BUCKET;
    return n < most ? n : most;
}

#define FEW   16u /* a row of so many is left */
#define BATCH 32u

/* The same as take() of each entry of the next bucket, of a cut without candidates whose rows are
 * all wanted. Returns how many it took; 0 also where the segment has no more buckets. */
static uint32_t take_bucket(struct store *store, struct index_entry *out)
{
    struct cow *cow = &store->cow;
    uint64_t next, at = cow->at / INDEX_BUCKET;
    const struct segment *segment = index_segment(&store->index, cow->address, &next);
    if (cow->at % INDEX_BUCKET != 0 || at > segment->bucket_mask)
        return 0;
    const struct index_bucket *bucket = &segment->buckets[at];
    uint32_t n = 0;
    __builtin_prefetch(bucket + 8);
    cow->at += INDEX_BUCKET;
    for (unsigned i = 0; i < INDEX_BUCKET; i++) {
        uint32_t row = bucket->ref[i] - 1; /* of empty places and candidates: none */
        if (row >= cow->n_rows || row_set_has(&cow->done, row))
            continue;
        row_set_add(&cow->done, row);
        rows_prefetch(rows_at(&store->rows, row), cow->copy_bytes);
        out[n++] = index_entry_of(&store->index, segment, bucket, i);
    }
    cow->n_left -= n;
    return n;
}

/* Some entries to copy out, with their records on the way to the cache. *visits are left. */
static uint32_t take_batch(struct store *store, const struct store_skip *skip, uint32_t max,
                           uint32_t *visits, struct index_entry batch[BATCH])
{
    struct cow *cow = &store->cow;
    uint32_t n = 0, passes = skip != NULL ? SKIP_PASSES : 1;
    uint64_t moved = index_moved(&store->index, cow->address);
    if (cow->moved != moved) {
        cow->moved = moved;
        cow->at = 0;
        *visits = VISITS;
    }
    cow->is_read = cow->is_read || (cow->n_left == 0 && !cow->has_candidates);
    bool takes_all = skip == NULL && !cow->has_candidates;
    uint32_t most = takes_all ? BATCH - INDEX_BUCKET + 1 : BATCH;
    while (!cow->is_read && n < most && n < max && *visits != 0) {
        uint64_t next;
        uint32_t taken = 0;
        --*visits;
        if (cow->n_left < cow->n_rows / FEW && !cow->has_candidates)
            *visits -= pass_over(store, *visits * passes) / passes;
        if (takes_all && n + INDEX_BUCKET <= max)
            taken = take_bucket(store, batch + n);
        n += taken;
        *visits -= taken < *visits ? taken : *visits;
        if (taken > 0)
            continue;
        if (index_next_of(&store->index, cow->address, &cow->at, &batch[n], &next)) {
            n += take(store, &batch[n], skip);
            continue;
        }
        cow->address = next;
        cow->at = 0;
        cow->moved = index_moved(&store->index, next);
        cow->is_read = next == 0;
    }
    return n;
}

/* The cut is younger than a push that still steps rows. */
static void read_row(struct store *store, const struct index_entry *entry, struct store_scan *out)
{
    if (store->sweep.phase != SWEEP_NONE && !store->sweep.keeps)
        sweep_reach(store, entry->hash, entry->slot, entry->ref);
    values_copy_row(store, index_key(entry->hash, entry->slot), entry->slot,
                    rows_at(&store->rows, entry->ref - 1), out);
}

static bool is_wanted(const struct changed_key *key, const struct store_skip *skip)
{
    return !is_skipped(skip, &(struct index_entry){.hash = key->hash, .slot = key->slot});
}

/* The next listed key whose row is to be read; buckets of those behind it are on their way. */
static bool next_listed(struct store *store, const struct store_skip *skip, struct index_entry *out)
{
    struct cow *cow = &store->cow;
    const struct changed_key *key = &cow->listed[cow->n_listed_read++], *ahead = key + BATCH;
    if (cow->n_listed_read + BATCH < cow->n_listed && is_wanted(ahead, skip))
        index_prefetch(&store->index, ahead->hash);
    if (!is_wanted(key, skip))
        return false;
    *out = (struct index_entry){.hash = key->hash,
                                .slot = key->slot,
                                .ref = index_find(&store->index, key->hash, key->slot)};
    return index_has_row(out->ref) && take(store, out, NULL);
}

static void read_listed(struct store *store, uint32_t max_rows, struct store_scan *out)
{
    struct cow *cow = &store->cow;
    struct index_entry batch[BATCH];
    uint32_t visits = out->skip != NULL ? SKIP_VISITS : VISITS;
    while (!cow->is_read && has_room(out, max_rows) && visits > 0) {
        uint32_t n = 0, room = max_rows - out->n_rows - out->n_candidates;
        for (; n < BATCH && n < room && cow->n_listed_read < cow->n_listed && visits > 0; visits--)
            n += next_listed(store, out->skip, &batch[n]);
        for (uint32_t i = 0; i < n; i++)
            read_row(store, &batch[i], out);
        cow->is_read = cow->n_listed_read == cow->n_listed;
    }
}

static void read_index(struct store *store, uint32_t max_rows, struct store_scan *out)
{
    struct index_entry batch[BATCH];
    uint32_t visits = out->skip != NULL ? SKIP_VISITS : VISITS, n;
    do {
        n = take_batch(store, out->skip, max_rows - out->n_rows - out->n_candidates, &visits,
                       batch);
        for (uint32_t i = 0; i < n; i++) {
            uint64_t key = index_key(batch[i].hash, batch[i].slot);
            if (batch[i].ref & INDEX_CANDIDATE)
                values_copy_candidate(store, key, batch[i].slot, batch[i].ref & INDEX_SIGHTS_MAX,
                                      out);
            else
                read_row(store, &batch[i], out);
        }
    } while (n > 0);
}

int host_scan_frozen(struct store *store, uint32_t max_rows, struct store_scan *out, bool *done_out,
                     struct embd__error *e)
{
    struct cow *cow = &store->cow;
    EMBD_ASSERT(out->states == NULL || cow->copy_bytes == store->rows.stride);
    out->n_rows = out->n_candidates = 0;
    if (!cow->is_broken)
        read_gone(store, max_rows, out);
    bool has_gone = out->n_candidates > 0; /* these come first, and by themselves */
    if (!cow->is_broken && !has_gone)
        read_copies(store, max_rows, out);
    if (!cow->is_broken && !has_gone && cow->listed != NULL)
        read_listed(store, max_rows, out);
    else if (!cow->is_broken && !has_gone && has_room(out, max_rows))
        read_index(store, max_rows, out);
    *done_out = cow->is_read && cow->first_set == cow->end_set && cow->first == NULL &&
                cow->n_candidates_read == cow->n_candidates;
    if (cow->is_broken)
        return embd__error_set(
            e, EMBD_NO_MEMORY,
            "table %s: no memory to copy rows that change while a cut is read: copies take %llu "
            "bytes, row_memory leaves %llu (0: no limit)",
            store->schema->s.name, (unsigned long long)cow_bytes(store),
            (unsigned long long)cow->most_bytes);
    return EMBD_OK;
}
