/* evict.c - on_full = evict_...: rows that go so that others can come, by the rules of use.h.
 *
 * Only a push writes a row's use, beside the row it steps anyway. When room is missing, one pass
 * over the index finds the rows to go. It lists those that may be among them; when the list is
 * twice as long as it needs to be, the higher half is thrown away, and rows above the highest that
 * is left cost a comparison from then on. Rows of the request at hand stay. */
#include "host.h"

#include "memory.h"

#define BATCH 32u
#define SPARE 1024u /* victims there is memory for beyond twice those that go */

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

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

/* ---- the lowest of many ---- */

static bool goes_first(const struct victim *a, const struct victim *b)
{
    return use_goes_first(&a->rank, &b->rank);
}

/* Two parts: i and more are not below the pivot, j and fewer not above. */
static void part(struct victim *list, int64_t *i, int64_t *j, struct victim pivot)
{
    do {
        while (goes_first(&list[*i], &pivot))
            ++*i;
        while (goes_first(&pivot, &list[*j]))
            --*j;
        if (*i > *j)
            return;
        struct victim swapped = list[*i];
        list[(*i)++] = list[*j];
        list[(*j)--] = swapped;
    } while (*i <= *j);
}

/* Moves the `most` lowest to the front, the highest of them last (Hoare's selection). */
static void keep_lowest(struct victims *v)
{
    int64_t low = 0, high = (int64_t)v->n - 1, wanted = (int64_t)v->most - 1;
    while (low < high) {
        int64_t i = low, j = high;
        part(v->list, &i, &j, v->list[low + (high - low) / 2]);
        if (wanted <= j)
            high = j;
        else if (wanted >= i)
            low = i;
        else
            break;
    }
    v->n = v->most;
    v->is_cut = true;
}

static void add(struct victims *v, const struct victim *new)
{
    if (v->is_cut && !goes_first(new, &v->list[v->most - 1]))
        return;
    v->list[v->n++] = *new;
    if (v->n == v->capacity)
        keep_lowest(v);
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

static void consider(struct store *store, struct victims *v, const struct index_entry *entry)
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
    add(v, &new);
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

static void pass(struct store *store, struct victims *victims)
{
    uint64_t at = 0;
    while (at != UINT64_MAX) {
        struct index_entry batch[BATCH];
        uint32_t n = 0;
        for (; n < BATCH && index_next(&store->index, &at, &batch[n]); n++)
            if (!(batch[n].ref & INDEX_CANDIDATE))
                __builtin_prefetch(use_of(store, batch[n].ref - 1));
        for (uint32_t i = 0; i < n; i++)
            consider(store, victims, &batch[i]);
    }
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
    if (!marks_reserve(&store->marks, store->rows.n))
        return false;
    victims->most = most;
    victims->capacity = least(2 * most + SPARE, rows_used(&store->rows));
    victims->list = memory_new(victims->capacity * sizeof *victims->list);
    if (victims->list == NULL)
        return false;
    mark_request(store);
    /* of rows that are made or pushed now: */
    store->none_expire_before = use_expiry(store->step, s->ttl);
    pass(store, victims);
    if (victims->n > most)
        keep_lowest(victims);
    return true;
}

void evict_rows(struct store *store, const struct victims *victims)
{
    for (uint64_t i = 0; i < victims->n; i++) {
        if (store->frozen.is_on)
            frozen_keep(store, victims->list[i].hash, victims->list[i].rank.slot,
                        victims->list[i].row + 1);
        index_remove(&store->index, victims->list[i].hash, victims->list[i].rank.slot);
        rows_give_back(&store->rows, victims->list[i].row);
    }
    store->n_evicted += victims->n;
}

void evict_end(struct victims *victims)
{
    memory_free(victims->list, victims->capacity * sizeof *victims->list);
}
