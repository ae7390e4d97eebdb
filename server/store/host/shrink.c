/* shrink.c - a capacity is set below a table's rows: those that are too many go, the lowest by the
 * rule of use.h, in slices.
 *
 * To sort all rows, or to keep the lowest of them in a heap, would take seconds. Here the last row
 * that goes is found from both sides: what it has is known to lie between two numbers, for each of
 * the words that ranks are compared by, one after the other. A pass over all rows counts those
 * between, in parts of equal width; the part that the last one lies in is what the next pass
 * divides. When few rows are left between, one pass lists all that go, and of these few the lowest
 * are selected. Passes read the index, some buckets a slice.
 *
 * Rows that go are marked as those of an eviction are (evict.h), unseen while none is pending. One
 * number makes all of them pending: they are gone at once. Then they are taken out of the index,
 * some a slice. All memory is taken first. */
#include "server/store/host/table.h"

#include <string.h>

#include "proto/assert.h"
#include "server/store/host/memory.h"
#include "server/store/slice.h"

#define WORDS   3u    /* of a rank; the slot stands behind them */
#define PARTS   4096u /* of what lies between */
#define EDGE    4096u /* rows that are few, and more than the slots of a key */
#define COLUMNS 64u   /* of a slice: what it costs to visit a bucket, or to remove a row */

enum pass { PASS_RANGE, PASS_COUNT, PASS_LIST };

struct shrink {
    embd_schema to;
    struct use_rule rule;
    uint64_t now, lifetime; /* of rows that expire */
    uint64_t n;             /* rows that go */
    enum pass pass;
    struct visit_place place;          /* where it goes on */
    uint64_t low[WORDS], high[WORDS];  /* of the last row that goes, both included */
    uint64_t n_all, n_below, n_inside; /* rows that may go; below what lies between; between */
    uint32_t word, shift;              /* is divided, into parts of 1 << shift */
    uint64_t counts[PARTS];
    uint64_t n_listed; /* in store->pending.rows */
    uint32_t n_edge;
    struct victim edge[EDGE]; /* listed, of those between */
};

/* Buckets or rows of a slice. */
static uint64_t units(void)
{
    return store_slice >= COLUMNS ? store_slice / COLUMNS : 1;
}

/* ---- ranks ---- */

static uint64_t word_of(const struct victim *row, uint32_t word)
{
    if (word == 2)
        return embd__mix64(index_key(row->hash, row->slot));
    return word == 0 ? row->count : row->stamp;
}

enum place { BELOW, BETWEEN, ABOVE };

static enum place place_of(const struct shrink *s, const struct victim *row)
{
    for (uint32_t w = 0; w < WORDS; w++) {
        uint64_t value = word_of(row, w);
        if (value < s->low[w])
            return BELOW;
        if (value > s->high[w])
            return ABOVE;
        if (s->low[w] < s->high[w])
            return BETWEEN;
    }
    return BETWEEN;
}

static bool may_go(const struct shrink *s, uint64_t stamp)
{
    return s->to.on_full != EMBD_ON_FULL_EVICT_TTL || use_expiry(stamp, s->lifetime) <= s->now;
}

/* ---- what a pass does with a row ---- */

static void widen(struct shrink *s, uint32_t word, uint64_t value)
{
    s->low[word] = value < s->low[word] ? value : s->low[word];
    s->high[word] = value > s->high[word] ? value : s->high[word];
}

static void add_to_range(struct shrink *s, const struct victim *row)
{
    s->n_all++;
    widen(s, 0, row->count);
    widen(s, 1, row->stamp);
}

static void add_to_counts(struct shrink *s, const struct victim *row)
{
    if (place_of(s, row) == BETWEEN)
        s->counts[(word_of(row, s->word) - s->low[s->word]) >> s->shift]++;
}

static void list_one(struct store *store, const struct victim *row)
{
    store->pending.rows[store->shrink->n_listed++] =
        (struct index_entry){.hash = row->hash, .ref = row->row + 1, .slot = row->slot};
    row_set_add(&store->pending.set, row->row);
}

static void add_to_list(struct store *store, const struct victim *row)
{
    struct shrink *s = store->shrink;
    enum place place = place_of(s, row);
    if (place == BELOW)
        list_one(store, row);
    else if (place == BETWEEN)
        s->edge[s->n_edge++] = *row;
}

static void look_at(struct store *store, const struct index_entry *entry, void *arg)
{
    struct shrink *s = arg;
    const float *use = row_use_at(store, entry->ref - 1);
    struct row_use found = {use_count(use, &s->rule), embd__stamp_get(use)};
    if (!may_go(s, found.stamp))
        return;
    struct victim row = victim_of(entry, found);
    if (s->pass == PASS_RANGE)
        add_to_range(s, &row);
    else if (s->pass == PASS_COUNT)
        add_to_counts(s, &row);
    else
        add_to_list(store, &row);
}

/* ---- from one pass to the next ---- */

static uint64_t few(void)
{
    return units() < EDGE ? units() : EDGE;
}

static void next_pass(struct shrink *s)
{
    while (s->word < WORDS && s->low[s->word] == s->high[s->word])
        s->word++;
    s->pass = s->word == WORDS || s->n_inside <= few() ? PASS_LIST : PASS_COUNT;
    if (s->pass == PASS_LIST)
        return;
    memset(s->counts, 0, sizeof s->counts);
    s->shift = 0;
    while ((s->high[s->word] - s->low[s->word]) >> s->shift >= PARTS)
        s->shift++;
}

/* The part that the last row lies in. */
static void narrow(struct shrink *s)
{
    uint64_t part = 0;
    while (s->n_below + s->counts[part] < s->n)
        s->n_below += s->counts[part++];
    uint64_t low = s->low[s->word] + (part << s->shift);
    uint64_t last = low + (((uint64_t)1 << s->shift) - 1);
    s->low[s->word] = low;
    s->high[s->word] = last < s->high[s->word] ? last : s->high[s->word];
    s->n_inside = s->counts[part];
}

static void list_lowest(struct store *store)
{
    struct shrink *s = store->shrink;
    uint64_t n = victims_select(s->edge, s->n_edge, s->n - s->n_below);
    for (uint64_t i = 0; i < n; i++)
        list_one(store, &s->edge[i]);
    EMBD_ASSERT(s->n_listed == s->n);
}

static int end_range(struct store *store, struct store_shrink *shrink, struct embd__error *e)
{
    struct shrink *s = store->shrink;
    shrink->n_may_go = s->n_inside = s->n_all;
    if (shrink->only_counts)
        shrink->phase = STORE_SHRINK_DONE;
    else if (s->n_all < s->n)
        embd__error_set(e, EMBD_FULL, "table %s: %llu rows are to go, %llu may", s->to.name,
                        (unsigned long long)s->n, (unsigned long long)s->n_all);
    else
        next_pass(s);
    return e->status;
}

static int end_pass(struct store *store, struct store_shrink *shrink, struct embd__error *e)
{
    struct shrink *s = store->shrink;
    switch (s->pass) {
    case PASS_RANGE:
        return end_range(store, shrink, e);
    case PASS_COUNT:
        narrow(s);
        next_pass(s);
        return EMBD_OK;
    case PASS_LIST:
        list_lowest(store);
        shrink->phase = STORE_SHRINK_CHOSEN;
        return EMBD_OK;
    }
    return EMBD_OK;
}

/* ---- phases ---- */

void host_end_shrink(struct store *store)
{
    memory_free(store->shrink, sizeof *store->shrink);
    store->shrink = NULL;
}

static void set_up(struct store *store, const struct store_shrink *shrink)
{
    struct shrink *s = store->shrink;
    bool is_timed = embd__schema_is_timed(shrink->to);
    s->to = *shrink->to;
    s->rule = use_rule_of(shrink->to);
    s->now = is_timed ? store->clock : store->step;
    s->lifetime = is_timed ? shrink->to->ttl_seconds : shrink->to->ttl;
    s->n = shrink->n;
    s->low[0] = s->low[1] = s->high[2] = UINT64_MAX;
    if (!shrink->only_counts)
        eviction_queue_drop(store);
}

static int begin(struct store *store, const struct store_shrink *shrink, struct embd__error *e)
{
    host_end_sweep(store);
    store->shrink = memory_new(sizeof *store->shrink);
    if (store->shrink == NULL ||
        (!shrink->only_counts && !pending_reserve(&store->pending, shrink->n, store->rows.n)))
        return embd__error_set(e, EMBD_NO_MEMORY, "table %s: no memory to choose %llu rows",
                               shrink->to->name, (unsigned long long)shrink->n);
    set_up(store, shrink);
    return EMBD_OK;
}

/* A slice's. */
static void remove_some(struct store *store)
{
    merge_forget(&store->merge);
    pending_remove(store, units());
}

/* Rows that an eviction left are removed first. */
static int choose(struct store *store, struct store_shrink *shrink, struct embd__error *e)
{
    if (store->pending.n_left > 0) {
        remove_some(store);
        return EMBD_OK;
    }
    if (store->shrink == NULL && begin(store, shrink, e) != EMBD_OK)
        return e->status;
    struct shrink *s = store->shrink;
    bool has_more = eviction_queue_visit_some(store, &s->place, units(), look_at, s);
    return has_more ? EMBD_OK : end_pass(store, shrink, e);
}

/* A cut since an earlier one would have to list all of them. */
static void show(struct store *store)
{
    merge_forget(&store->merge);
    changes_forget(&store->changes);
    store->pending.n = store->pending.n_left = store->shrink->n_listed;
}

int host_shrink(struct store *store, struct store_shrink *shrink, struct embd__error *e)
{
    if (shrink->phase == STORE_SHRINK_CHOOSES) {
        choose(store, shrink, e);
    } else if (shrink->phase == STORE_SHRINK_CHOSEN) {
        show(store);
        shrink->phase = STORE_SHRINK_REMOVES;
    } else {
        remove_some(store);
        if (store->pending.n_left == 0)
            shrink->phase = STORE_SHRINK_DONE;
    }
    if (e->status != EMBD_OK || shrink->phase == STORE_SHRINK_DONE)
        host_end_shrink(store);
    return e->status;
}
