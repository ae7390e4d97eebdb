/* evict.c - on_full = evict_...: rows that go so that others can come, by the rules of use.h.
 *
 * Only a push writes a row's use, beside the row it steps anyway. When room is missing, one pass
 * finds the rows to go: most often among those of the shortlist, else among all. Rows of the
 * request at hand stay. */
#include "host.h"

/* How many buckets, rows or entries their memory is asked for ahead. */
#define AHEAD_BUCKETS 8u
#define AHEAD_ROWS    24u

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static float *use_at(const struct store *store, uint32_t row)
{
    return host_state(store, rows_at(&store->rows, row)) + store->use_at;
}

MEMORY_PREFETCH void prefetch_use(const struct store *store, uint32_t row)
{
    __builtin_prefetch(use_at(store, row), 0, 2);
}

void evict_note_use(struct store *store)
{
    bool counts = store->schema->s.on_full == EMBD_EVICT_LFU;
    const struct merge *merge = &store->merge;
    for (uint32_t i = 0; i < merge->n; i++)
        if (merge->distinct[i].ref != 0)
            use_note(use_at(store, merge->distinct[i].ref - 1), store->step, counts);
}

struct row_use host_use(const struct store *store, uint32_t row)
{
    const float *use = use_at(store, row);
    bool counts = store->schema->s.on_full == EMBD_EVICT_LFU;
    return (struct row_use){use_count(use, counts), embd__stamp_get(use)};
}

struct victim host_victim(const struct index_entry *entry, struct row_use use)
{
    uint64_t key = index_key(entry->hash, entry->slot);
    return (struct victim){
        .rank = {use.count, use.stamp, embd__mix64(key), entry->slot},
        .hash = entry->hash,
        .row = entry->ref - 1,
    };
}

static bool has_row(uint32_t ref)
{
    return ref != 0 && !(ref & INDEX_CANDIDATE);
}

/* ---- all rows ---- */

MEMORY_PREFETCH void prefetch_uses(const struct store *store, const struct index_bucket *bucket)
{
    for (unsigned i = 0; i < INDEX_BUCKET; i++)
        if (has_row(bucket->ref[i]))
            prefetch_use(store, bucket->ref[i] - 1);
}

uint64_t host_visit_segment(struct store *store, uint64_t hash, host_visit *visit, void *arg)
{
    uint64_t n, next;
    const struct index_bucket *buckets = index_segment(&store->index, hash, &n, &next);
    for (uint64_t at = 0; at < n; at++) {
        const struct index_bucket *b = &buckets[at];
        if (at + AHEAD_BUCKETS < n)
            prefetch_uses(store, b + AHEAD_BUCKETS);
        for (unsigned i = 0; i < INDEX_BUCKET && b->ref[i] != 0; i++) {
            struct index_entry entry = {.hash = b->hash[i], .ref = b->ref[i], .slot = b->slot[i]};
            if (has_row(entry.ref))
                visit(store, &entry, arg);
        }
    }
    return next;
}

/* ---- choosing ---- */

static void consider(struct store *store, const struct index_entry *entry, void *arg)
{
    struct victims *victims = arg;
    struct row_use use = host_use(store, entry->ref - 1);
    if (store->schema->s.on_full == EMBD_EVICT_TTL) {
        uint64_t step = use_expiry(use.stamp, store->schema->s.ttl);
        store->none_expire_before = least(store->none_expire_before, step);
        if (step > store->step)
            return;
    }
    if (!victims_may_take(victims, use.count, use.stamp) ||
        marks_has(&store->marks, entry->ref - 1))
        return;
    struct victim new = host_victim(entry, use);
    marks_set(&store->marks, new.row); /* it may be on the shortlist twice */
    victims_add(victims, &new);
}

static void begin_pass(struct store *store, struct victims *victims)
{
    const struct merge *merge = &store->merge;
    marks_clear(&store->marks, store->rows.n);
    for (uint32_t i = 0; i < merge->n; i++)
        if (has_row(merge->distinct[i].ref))
            marks_set(&store->marks, merge->distinct[i].ref - 1);
    victims->n = 0;
    victims->is_cut = false;
    /* of rows that are made or pushed now: */
    store->none_expire_before = use_expiry(store->step, store->schema->s.ttl);
}

/* Whether all that go are found: the rows that are not on the list are above its bound. */
static bool choose_listed(struct store *store, struct victims *victims)
{
    struct shortlist *list = &store->shortlist;
    uint64_t n_left = 0;
    begin_pass(store, victims);
    for (uint64_t i = 0; i < list->n; i++) {
        struct index_entry entry = list->rows[i];
        if (i + AHEAD_ROWS < list->n) {
            index_prefetch(&store->index, list->rows[i + AHEAD_ROWS].hash);
            prefetch_use(store, list->rows[i + AHEAD_ROWS].ref - 1);
        }
        if (!shortlist_holds(store, &entry))
            continue;
        list->rows[n_left++] = entry;
        consider(store, &entry, victims);
    }
    list->n = n_left;
    victims_finish(victims);
    const struct use_rank *bound = &list->bound;
    if (bound->count == UINT64_MAX)
        return true;
    if (store->schema->s.on_full == EMBD_EVICT_TTL) {
        uint64_t step = use_expiry(bound->stamp, store->schema->s.ttl);
        store->none_expire_before = least(store->none_expire_before, step);
        if (step > store->step)
            return true;
    }
    return victims->n == victims->most &&
           !use_goes_first(bound, &victims->list[victims->n - 1].rank);
}

static void choose_among_all(struct store *store, struct victims *victims)
{
    uint64_t hash = 0;
    begin_pass(store, victims);
    do
        hash = host_visit_segment(store, hash, consider, victims);
    while (hash != 0);
    victims_finish(victims);
}

bool evict_choose(struct store *store, uint64_t missing, struct victims *victims)
{
    const embd_schema *s = &store->schema->s;
    uint64_t part = s->capacity / USE_PASS_PART, most = missing > part ? missing : part;
    *victims = (struct victims){0};
    most = least(most, rows_used(&store->rows));
    bool is_ttl = s->on_full == EMBD_EVICT_TTL;
    if (most == 0 || (is_ttl && store->step < store->none_expire_before))
        return true;
    if (!marks_reserve(&store->marks, store->rows.n) ||
        !victims_open(victims, most, rows_used(&store->rows)))
        return false;
    if (shortlist_finish(store, most)) {
        if (choose_listed(store, victims))
            return true;
        shortlist_disappoints(store);
    }
    choose_among_all(store, victims);
    return true;
}

void evict_rows(struct store *store, const struct victims *victims)
{
    const struct victim *list = victims->list;
    for (uint64_t i = 0; i < victims->n; i++) {
        if (i + AHEAD_ROWS < victims->n) {
            index_prefetch(&store->index, list[i + AHEAD_ROWS].hash);
            rows_prefetch(rows_at(&store->rows, list[i + AHEAD_ROWS].row), 1);
        }
        if (store->frozen.is_on)
            frozen_keep(store, list[i].hash, list[i].rank.slot, list[i].row + 1);
        if (store->changes.n > 0)
            changes_note_gone(store, list[i].hash, list[i].rank.slot);
        index_remove(&store->index, list[i].hash, list[i].rank.slot);
        rows_give_back(&store->rows, list[i].row);
    }
    store->n_evicted += victims->n;
    if (victims->n != 0 &&
        store->shortlist.n < victims->n + store->schema->s.capacity / USE_PASS_PART)
        shortlist_drop(store);
}
