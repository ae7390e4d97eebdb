/* evict.c - which rows go where room is missing, and their removal bit by bit: see evict.h.
 *
 * Only a push writes a row's use, beside the row it steps anyway. When room is missing, one pass
 * finds the rows to go: among those of the queue, or where it was used up at once among all. Rows
 * of the request at hand stay. The removal of those that go is pending: they are taken out of the
 * index bit by bit. */
#include "server/store/host/memory.h"
#include "server/store/host/table.h"

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The highest order of the scores of a key's occurrences. */
static uint32_t score_of(const struct merge *merge, const struct distinct *d, const float *scores)
{
    uint32_t k = d->first, highest = use_score_order(scores[k]);
    for (uint32_t i = 0; i < d->repeats; i++) {
        k = merge->next[k];
        uint32_t order = use_score_order(scores[k]);
        highest = order > highest ? order : highest;
    }
    return highest;
}

void evict_note_use(struct store *store, const float *scores)
{
    const struct merge *merge = &store->merge;
    for (uint32_t i = 0; i < merge->n; i++) {
        const struct distinct *d = &merge->distinct[i];
        if (d->ref == 0)
            continue;
        const struct index_entry entry = {.hash = d->hash, .ref = d->ref, .slot = d->slot};
        if (store->queue.is_on)
            eviction_queue_before_use(store, &entry);
        use_note(row_use_at(store, d->ref - 1), host_use_time(store), &store->use_rule,
                 d->repeats + 1u);
        if (scores != NULL && store->use_rule.scores)
            use_note_score(row_use_at(store, d->ref - 1), score_of(merge, d, scores));
        if (store->queue.is_on)
            eviction_queue_note_use(store, &entry);
    }
}

/* ---- pending removal ---- */

/* Entries and rows are prefetched this many ahead. */
#define AHEAD 24u

bool pending_reserve(struct pending_removal *pending, uint64_t n, uint64_t n_rows)
{
    if (!row_set_reserve(&pending->set, n_rows))
        return false;
    if (n <= pending->capacity)
        return true;
    memory_free(pending->rows, pending->capacity * sizeof *pending->rows);
    pending->rows = memory_new(n * sizeof *pending->rows);
    pending->capacity = pending->rows != NULL ? n : 0;
    return pending->rows != NULL;
}

/* The first n of `rows`, which the caller has filled, lose their keys. */
static void begin_pending(struct store *store, uint64_t n)
{
    struct pending_removal *pending = &store->pending;
    for (uint64_t i = 0; i < n; i++) {
        const struct index_entry *entry = &pending->rows[i];
        row_set_add(&pending->set, entry->ref - 1);
        if (store->changes.n > 0)
            cow_note_gone(store, entry->hash, entry->slot);
    }
    pending->n = pending->n_left = n;
    store->n_evicted += n;
}

static void take_out(struct store *store, uint64_t hash, uint32_t slot, uint32_t row)
{
    if (store->cow.is_on)
        cow_keep(store, hash, slot, row + 1);
    index_remove(&store->index, hash, slot);
    rows_give_back(&store->rows, row);
    row_set_drop(&store->pending.set, row);
    store->pending.n_left--;
}

void pending_remove_merged(struct store *store)
{
    const struct merge *merge = &store->merge;
    for (uint32_t i = 0; i < merge->n && store->pending.n_left > 0; i++) {
        struct distinct *d = &merge->distinct[i];
        if (!index_has_row(d->ref) || !pending_has(&store->pending, d->ref - 1))
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

void pending_remove(struct store *store, uint64_t n)
{
    struct pending_removal *pending = &store->pending;
    while (n > 0 && pending->n > 0) {
        const struct index_entry *entry = &pending->rows[--pending->n];
        if (pending->n >= AHEAD)
            prefetch(store, entry - AHEAD);
        if (!pending_has(pending, entry->ref - 1))
            continue;
        take_out(store, entry->hash, entry->slot, entry->ref - 1);
        n--;
    }
}

void pending_remove_all(struct store *store)
{
    if (store->pending.n_left > 0)
        merge_forget(&store->merge);
    pending_remove(store, UINT64_MAX);
}

void pending_fini(struct pending_removal *pending)
{
    memory_free(pending->rows, pending->capacity * sizeof *pending->rows);
    row_set_fini(&pending->set);
}

/* ---- choosing ---- */

/* evict_ttl: whether a row has expired. Others may go at any time. */
static bool may_go(struct store *store, uint64_t stamp)
{
    if (store->schema->s.on_full != EMBD_ON_FULL_EVICT_TTL)
        return true;
    uint64_t expiry = use_expiry(stamp, host_lifetime(store));
    store->none_expire_before = least(store->none_expire_before, expiry);
    return expiry <= host_use_time(store);
}

static void consider(struct store *store, const struct index_entry *entry, void *arg)
{
    struct victims *victims = arg;
    struct row_use use = row_use_of(store, entry->ref - 1);
    if (!may_go(store, use.stamp) || !victims_may_take(victims, use.count, use.stamp) ||
        row_set_has(&store->named, entry->ref - 1))
        return;
    struct victim new = victim_of(entry, use);
    victims_add(victims, &new);
}

/* Rows of the request at hand are marked. */
static void begin_pass(struct store *store)
{
    const struct merge *merge = &store->merge;
    row_set_clear(&store->named, store->rows.n);
    for (uint32_t i = 0; i < merge->n; i++)
        if (index_has_row(merge->distinct[i].ref))
            row_set_add(&store->named, merge->distinct[i].ref - 1);
    /* of rows that are made or pushed now: */
    store->none_expire_before =
        use_expiry(store->is_timed ? store->clock : store->step, host_lifetime(store));
}

/* Takes those of the queue's rows that may go, before others. */
static uint64_t sort_out(struct store *store)
{
    struct eviction_queue *queue = &store->queue;
    uint64_t n = 0;
    for (uint64_t i = 0; i < queue->n; i++) {
        struct victim row = queue->rows[i];
        if (!may_go(store, row.stamp) || row_set_has(&store->named, row.row))
            continue;
        queue->rows[i] = queue->rows[n];
        queue->rows[n++] = row;
    }
    return n;
}

static void set_pending(struct store *store, const struct victim *rows, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        store->pending.rows[i] = (struct index_entry){
            .hash = rows[i].hash, .ref = rows[i].row + 1, .slot = rows[i].slot};
}

/* Whether all that go are found: the rows outside the queue are above its bound. */
static bool choose_queued(struct store *store, uint64_t most, uint64_t *n_out)
{
    struct eviction_queue *queue = &store->queue;
    begin_pass(store);
    uint64_t n = victims_select(queue->rows, sort_out(store), most);
    set_pending(store, queue->rows, n);
    *n_out = n;
    if (queue->bound.is_all || !may_go(store, queue->bound.rank.stamp))
        return true;
    if (n < most)
        return false;
    struct use_rank last = victim_rank(&queue->rows[n - 1]);
    return !use_goes_first(&queue->bound.rank, &last);
}

static bool choose_among_all(struct store *store, uint64_t most, uint64_t *n_out)
{
    struct victims victims;
    uint64_t hash = 0;
    if (!victims_open(&victims, most, rows_used(&store->rows)))
        return false;
    begin_pass(store);
    do
        hash = eviction_queue_visit(store, hash, consider, &victims);
    while (hash != 0);
    victims_finish(&victims);
    set_pending(store, victims.list, victims.n);
    *n_out = victims.n;
    victims_close(&victims);
    return true;
}

bool evict_choose(struct store *store, uint64_t missing, uint64_t *n_out)
{
    const embd_schema *s = &store->schema->s;
    uint64_t part = s->capacity / USE_PASS_PART, most = missing > part ? missing : part;
    *n_out = 0;
    pending_remove_all(store);
    most = least(most, rows_used(&store->rows));
    bool is_ttl = s->on_full == EMBD_ON_FULL_EVICT_TTL;
    if (most == 0 || (is_ttl && host_use_time(store) < store->none_expire_before))
        return true;
    if (!row_set_reserve(&store->named, store->rows.n) ||
        !pending_reserve(&store->pending, most, host_row_numbers(store)))
        return false;
    bool is_queued = eviction_queue_prepare(store, most);
    if (is_queued && (choose_queued(store, most, n_out) ||
                      (eviction_queue_prepare_further(store) && choose_queued(store, most, n_out))))
        return true;
    if (is_queued)
        eviction_queue_was_short(store);
    return choose_among_all(store, most, n_out);
}

void evict_rows(struct store *store, uint64_t n)
{
    begin_pending(store, n);
    if (store->queue.is_on)
        eviction_queue_cut(store, n);
}
