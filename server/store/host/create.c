/* create.c - rows for keys that have none.
 *
 * Everything that may fail happens before anything that shows: what becomes of each key is
 * counted, memory for the new rows and entries is reserved; then rows are made. Rows that there is
 * no room for are the last of the request, in order of first occurrence. */
#include "server/store/host/host.h"

#include <string.h>

#include "server/store/optimizer.h"

uint64_t host_room(const struct store *store)
{
    const embd_schema *s = &store->schema->s;
    uint64_t most = INDEX_ROWS_MAX;
    if (s->on_full != EMBD_ON_FULL_GROW && s->capacity != 0 && s->capacity < most)
        most = s->capacity;
    uint64_t used = host_rows(store);
    return most > used ? most - used : 0;
}

/* What becomes of a key that the index says `ref` of; takes from *room. */
static embd_key_status judge(const struct store *store, uint32_t ref, uint64_t *room)
{
    if (index_has_row(ref))
        return EMBD_KEY_HIT;
    uint32_t sights = ref & INDEX_SIGHTS_MAX;
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
        embd_key_status status = judge(store, ref, &room);
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
    float value[EMBD_DIM_MAX];
    uint32_t row = rows_take(&store->rows);
    if (store->frozen.is_on)
        frozen_note_new(store, row);
    if (store->changes.n > 0)
        changes_note_row(store, row);
    uint8_t *record = rows_at(&store->rows, row);
    host_first_value(store, key, slot, value);
    embd__from_f32(record, store->dtype, value, store->dim);
    float first = optimizer_first_state(&store->schema->s.optimizer);
    for (uint32_t i = 0; i < store->state_floats; i++)
        host_state(store, record)[i] = i < store->optimizer_floats ? first : 0.0f;
    if (store->evicts)
        use_begin(host_state(store, record) + store->use_at, store->step);
    return row;
}

void host_set_statuses(const struct merge *merge, const struct distinct *d, uint8_t *statuses,
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
static void settle(struct store *store, const struct store_keys *in, struct distinct *d,
                   embd_key_status status)
{
    bool was_candidate = d->ref != 0;
    uint32_t sights = d->ref & INDEX_SIGHTS_MAX;
    d->ref = 0;
    if (status == EMBD_KEY_INSERTED) {
        d->ref = new_row(store, in->keys[d->first], d->slot) + 1;
        store->n_candidates -= was_candidate;
        index_put(&store->index, d->hash, d->slot, d->ref);
        shortlist_note_new(store,
                           &(struct index_entry){.hash = d->hash, .ref = d->ref, .slot = d->slot});
    } else if (status == EMBD_KEY_FILTERED) {
        store->n_candidates += !was_candidate;
        sights += sights < INDEX_SIGHTS_MAX;
        index_put(&store->index, d->hash, d->slot, INDEX_CANDIDATE | sights);
    }
}

static void create_all(struct store *store, const struct store_keys *in, uint8_t *statuses)
{
    uint64_t room = host_room(store);
    for (uint32_t i = 0; i < store->merge.n; i++) {
        struct distinct *d = &store->merge.distinct[i];
        embd_key_status status = judge(store, d->ref, &room);
        if (status == EMBD_KEY_HIT)
            continue;
        settle(store, in, d, status);
        if (statuses)
            host_set_statuses(&store->merge, d, statuses, status);
    }
}

/* All that may fail, with `n_gone` rows on their way out. */
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
static void remove_doomed(struct store *store, uint32_t n_new)
{
    if (store->doomed.n_left > 0)
        doomed_remove(store, n_new + store->schema->s.capacity / USE_PASS_PART / 64 + 1);
}

int create_reserve(struct store *store, bool may_drop, struct created *created,
                   struct embd__error *e)
{
    uint64_t n_gone = 0;
    uint32_t n_new;
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

void create_rows(struct store *store, const struct store_keys *in, uint8_t *statuses,
                 const struct created *created)
{
    evict_rows(store, created->n_evicted);
    remove_doomed(store, created->n_inserted);
    if (statuses)
        memset(statuses, EMBD_KEY_HIT, in->n_keys);
    if (created->n_inserted + created->n_full + created->n_filtered)
        create_all(store, in, statuses);
}

int host_reserve(struct store *store, uint64_t n, bool may_drop, struct embd__error *e)
{
    uint64_t room = host_room(store), n_rows = n < room ? n : room;
    (void)may_drop;
    if (rows_reserve(&store->rows, host_rows(store) + n_rows) &&
        index_reserve_more(&store->index, n))
        return EMBD_OK;
    return embd__error_set(e, EMBD_NO_MEMORY, "table %s: no memory for %llu more rows of %u bytes",
                           store->schema->s.name, (unsigned long long)n, store->rows.stride);
}
