/* evict.c - on_full = evict_...: rows that go so that others can come, by the rules of use.h.
 *
 * Only a push writes a row's use, beside the row it steps anyway. When room is missing, one pass
 * over the index finds the rows to go: a heap keeps the best of those seen so far, so that most
 * rows cost a comparison. Rows of the request at hand stay. */
#include "host.h"

#include "memory.h"

#define BATCH 32u

static float *use_of(const struct store *store, uint32_t row)
{
    return host_state(store, rows_at(&store->rows, row)) + store->use_at;
}

void evict_note_use(struct store *store)
{
    bool counts = store->schema->s.on_full == EMBD_EVICT_LFU;
    const struct merge *merge = &store->merge;
    for (uint32_t i = 0; i < merge->n; i++)
        if (merge->distinct[i].ref != 0)
            use_note(use_of(store, merge->distinct[i].ref - 1), store->step, counts);
}

/* ---- the heap ---- */

static bool goes_first(const struct victim *a, const struct victim *b)
{
    return use_goes_first(&a->rank, &b->rank);
}

static void sift_up(struct victim *heap, uint64_t i, struct victim new)
{
    for (; i > 0 && goes_first(&heap[(i - 1) / 2], &new); i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = new;
}

static void replace_top(struct victim *heap, uint64_t n, struct victim new)
{
    uint64_t i = 0;
    for (uint64_t child = 1; child < n; child = 2 * i + 1) {
        if (child + 1 < n && goes_first(&heap[child], &heap[child + 1]))
            child++;
        if (!goes_first(&new, &heap[child]))
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = new;
}

/* ---- choosing ---- */

static struct victim victim_of(const struct store *store, const struct index_entry *entry)
{
    const float *use = use_of(store, entry->ref - 1);
    bool counts = store->schema->s.on_full == EMBD_EVICT_LFU;
    uint64_t key = index_key(entry->hash, entry->slot);
    return (struct victim){
        .rank = use_rank_of(use, counts, key, entry->slot),
        .hash = entry->hash,
        .row = entry->ref - 1,
    };
}

static void consider(struct store *store, struct victims *v, uint64_t most,
                     const struct index_entry *entry)
{
    if (entry->ref & INDEX_CANDIDATE)
        return;
    struct victim new = victim_of(store, entry);
    bool stays = marks_has(&store->marks, entry->ref - 1);
    if (store->schema->s.on_full == EMBD_EVICT_TTL) {
        uint64_t step = use_expiry(new.rank.stamp, store->schema->s.ttl);
        if (step < store->none_expire_before)
            store->none_expire_before = step;
        stays |= step > store->step;
    }
    if (stays)
        return;
    if (v->n < most)
        sift_up(v->heap, v->n++, new);
    else if (goes_first(&new, &v->heap[0]))
        replace_top(v->heap, v->n, new);
}

static void mark_request(struct store *store)
{
    const struct merge *merge = &store->merge;
    marks_clear(&store->marks, store->rows.n);
    for (uint32_t i = 0; i < merge->n; i++) {
        uint32_t ref = merge->distinct[i].ref;
        if (ref != 0 && !(ref & INDEX_CANDIDATE))
            marks_set(&store->marks, ref - 1);
    }
}

static void pass(struct store *store, struct victims *victims, uint64_t most)
{
    uint64_t at = 0;
    while (at != UINT64_MAX) {
        struct index_entry batch[BATCH];
        uint32_t n = 0;
        for (; n < BATCH && index_next(&store->index, &at, &batch[n]); n++)
            if (!(batch[n].ref & INDEX_CANDIDATE))
                __builtin_prefetch(use_of(store, batch[n].ref - 1));
        for (uint32_t i = 0; i < n; i++)
            consider(store, victims, most, &batch[i]);
    }
}

bool evict_choose(struct store *store, uint64_t missing, struct victims *victims)
{
    const embd_schema *s = &store->schema->s;
    uint64_t part = s->capacity / USE_PASS_PART, most = missing > part ? missing : part;
    *victims = (struct victims){0};
    if (most > rows_used(&store->rows))
        most = rows_used(&store->rows);
    bool is_ttl = s->on_full == EMBD_EVICT_TTL;
    if (most == 0 || (is_ttl && store->step < store->none_expire_before))
        return true;
    if (!marks_reserve(&store->marks, store->rows.n))
        return false;
    victims->heap = memory_new(most * sizeof *victims->heap);
    if (victims->heap == NULL)
        return false;
    victims->capacity = most;
    mark_request(store);
    /* of rows that are made or pushed now: */
    store->none_expire_before = use_expiry(store->step, s->ttl);
    pass(store, victims, most);
    return true;
}

void evict_rows(struct store *store, const struct victims *victims)
{
    for (uint64_t i = 0; i < victims->n; i++) {
        index_remove(&store->index, victims->heap[i].hash, victims->heap[i].rank.slot);
        rows_give_back(&store->rows, victims->heap[i].row);
    }
    store->n_evicted += victims->n;
}

void evict_end(struct victims *victims)
{
    memory_free(victims->heap, victims->capacity * sizeof *victims->heap);
}
