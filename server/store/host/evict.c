/* evict.c - on_full = evict_...: rows that go so that others can come, by the rules of use.h.
 *
 * Only a push writes a row's use, beside the row it steps anyway. When room is missing, one pass
 * finds the rows to go: among those of the shortlist, or where it was used up at once among all.
 * Rows of the request at hand stay. Those that go are doomed, and taken out of the index bit by
 * bit. */
#include "server/store/host/host.h"

/* How many buckets their memory is asked for ahead. */
#define AHEAD_BUCKETS 8u

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
    bool counts = store->schema->s.on_full == EMBD_ON_FULL_EVICT_LFU;
    const struct merge *merge = &store->merge;
    for (uint32_t i = 0; i < merge->n; i++) {
        const struct distinct *d = &merge->distinct[i];
        if (d->ref == 0)
            continue;
        const struct index_entry entry = {.hash = d->hash, .ref = d->ref, .slot = d->slot};
        if (store->shortlist.is_on)
            shortlist_before_use(store, &entry);
        use_note(use_at(store, d->ref - 1), store->step, counts);
        if (store->shortlist.is_on)
            shortlist_note_use(store, &entry);
    }
}

struct row_use host_use(const struct store *store, uint32_t row)
{
    const float *use = use_at(store, row);
    bool counts = store->schema->s.on_full == EMBD_ON_FULL_EVICT_LFU;
    return (struct row_use){use_count(use, counts), embd__stamp_get(use)};
}

struct victim host_victim(const struct index_entry *entry, struct row_use use)
{
    return (struct victim){
        .hash = entry->hash,
        .stamp = use.stamp,
        .row = entry->ref - 1,
        .slot = entry->slot,
        .count = (uint32_t)use.count,
    };
}

/* ---- all rows ---- */

MEMORY_PREFETCH void prefetch_uses(const struct store *store, const struct index_bucket *bucket)
{
    for (unsigned i = 0; i < INDEX_BUCKET; i++)
        if (index_has_row(bucket->ref[i]))
            prefetch_use(store, bucket->ref[i] - 1);
}

uint64_t host_visit_segment(struct store *store, uint64_t hash, host_visit *visit, void *arg)
{
    uint64_t n, next;
    const struct index_bucket *buckets = index_segment(&store->index, hash, &n, &next);
    for (uint64_t at = 0; at < n; at++) {
        const struct index_bucket *b = &buckets[at];
        if (at + 2 * AHEAD_BUCKETS < n)
            __builtin_prefetch(b + 2 * AHEAD_BUCKETS, 0, 2);
        if (at + AHEAD_BUCKETS < n)
            prefetch_uses(store, b + AHEAD_BUCKETS);
        for (unsigned i = 0; i < INDEX_BUCKET && b->ref[i] != 0; i++) {
            struct index_entry entry = {.hash = b->hash[i], .ref = b->ref[i], .slot = b->slot[i]};
            if (index_has_row(entry.ref))
                visit(store, &entry, arg);
        }
    }
    return next;
}

/* ---- choosing ---- */

/* evict_ttl: whether a row has expired. Others may go at any time. */
static bool may_go(struct store *store, uint64_t stamp)
{
    if (store->schema->s.on_full != EMBD_ON_FULL_EVICT_TTL)
        return true;
    uint64_t step = use_expiry(stamp, store->schema->s.ttl);
    store->none_expire_before = least(store->none_expire_before, step);
    return step <= store->step;
}

static void consider(struct store *store, const struct index_entry *entry, void *arg)
{
    struct victims *victims = arg;
    struct row_use use = host_use(store, entry->ref - 1);
    if (!may_go(store, use.stamp) || !victims_may_take(victims, use.count, use.stamp) ||
        marks_has(&store->marks, entry->ref - 1))
        return;
    struct victim new = host_victim(entry, use);
    victims_add(victims, &new);
}

/* Rows of the request at hand are marked. */
static void begin_pass(struct store *store)
{
    const struct merge *merge = &store->merge;
    marks_clear(&store->marks, store->rows.n);
    for (uint32_t i = 0; i < merge->n; i++)
        if (index_has_row(merge->distinct[i].ref))
            marks_set(&store->marks, merge->distinct[i].ref - 1);
    /* of rows that are made or pushed now: */
    store->none_expire_before = use_expiry(store->step, store->schema->s.ttl);
}

/* Of the shortlist those that may go, before the others. */
static uint64_t sort_out(struct store *store)
{
    struct shortlist *list = &store->shortlist;
    uint64_t n = 0;
    for (uint64_t i = 0; i < list->n; i++) {
        struct victim row = list->rows[i];
        if (!may_go(store, row.stamp) || marks_has(&store->marks, row.row))
            continue;
        list->rows[i] = list->rows[n];
        list->rows[n++] = row;
    }
    return n;
}

static void doom(struct store *store, const struct victim *rows, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        store->doomed.rows[i] = (struct index_entry){
            .hash = rows[i].hash, .ref = rows[i].row + 1, .slot = rows[i].slot};
}

/* Whether all that go are found: the rows that are not on the list are above its bound. */
static bool choose_listed(struct store *store, uint64_t most, uint64_t *n_out)
{
    struct shortlist *list = &store->shortlist;
    begin_pass(store);
    uint64_t n = victims_select(list->rows, sort_out(store), most);
    doom(store, list->rows, n);
    *n_out = n;
    if (list->bound.is_all || !may_go(store, list->bound.rank.stamp))
        return true;
    if (n < most)
        return false;
    struct use_rank last = victim_rank(&list->rows[n - 1]);
    return !use_goes_first(&list->bound.rank, &last);
}

static bool choose_among_all(struct store *store, uint64_t most, uint64_t *n_out)
{
    struct victims victims;
    uint64_t hash = 0;
    if (!victims_open(&victims, most, rows_used(&store->rows)))
        return false;
    begin_pass(store);
    do
        hash = host_visit_segment(store, hash, consider, &victims);
    while (hash != 0);
    victims_finish(&victims);
    doom(store, victims.list, victims.n);
    *n_out = victims.n;
    victims_close(&victims);
    return true;
}

bool evict_choose(struct store *store, uint64_t missing, uint64_t *n_out)
{
    const embd_schema *s = &store->schema->s;
    uint64_t part = s->capacity / USE_PASS_PART, most = missing > part ? missing : part;
    *n_out = 0;
    doomed_remove_all(store);
    most = least(most, rows_used(&store->rows));
    bool is_ttl = s->on_full == EMBD_ON_FULL_EVICT_TTL;
    if (most == 0 || (is_ttl && store->step < store->none_expire_before))
        return true;
    if (!marks_reserve(&store->marks, store->rows.n) ||
        !doomed_reserve(&store->doomed, most, s->capacity))
        return false;
    bool is_listed = shortlist_prepare(store, most);
    if (is_listed && (choose_listed(store, most, n_out) ||
                      (shortlist_prepare_further(store) && choose_listed(store, most, n_out))))
        return true;
    if (is_listed)
        shortlist_disappoints(store);
    return choose_among_all(store, most, n_out);
}

void evict_rows(struct store *store, uint64_t n)
{
    if (n == 0)
        return;
    doomed_begin(store, n);
    if (store->shortlist.is_on)
        shortlist_cut(store, n);
}
