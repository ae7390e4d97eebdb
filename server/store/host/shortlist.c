#include "host.h"

#include "memory.h"
#include "victims.h"

#define FEWEST 3u /* halves of a pass */
#define MOST   16u
#define SPARE  4096u

static uint64_t most_of(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

void shortlist_drop(struct store *store)
{
    struct shortlist *list = &store->shortlist;
    memory_free(list->rows, list->capacity * sizeof *list->rows);
    *list = (struct shortlist){.halves = list->halves};
}

void shortlist_disappoints(struct store *store)
{
    uint64_t halves = most_of(store->shortlist.halves, FEWEST) * 2;
    shortlist_drop(store);
    store->shortlist.halves = (uint32_t)(halves < MOST ? halves : MOST);
}

/* More than there is room for: there is no list. */
static void add(struct store *store, const struct index_entry *entry)
{
    struct shortlist *list = &store->shortlist;
    if (list->n == list->capacity)
        shortlist_drop(store);
    else
        list->rows[list->n++] = *entry;
}

static void add_if_low(struct store *store, const struct index_entry *entry, void *arg)
{
    (void)arg;
    const struct use_rank *bound = &store->shortlist.bound;
    struct row_use use = host_use(store, entry->ref - 1);
    bool is_above = use.count != bound->count ? use.count > bound->count : use.stamp > bound->stamp;
    if (!store->shortlist.is_on || is_above)
        return;
    struct victim row = host_victim(entry, use);
    if (!use_goes_first(bound, &row.rank))
        add(store, entry);
}

/* ---- drawing it up ---- */

static void add_to_sample(struct store *store, const struct index_entry *entry, void *arg)
{
    struct victim row = host_victim(entry, host_use(store, entry->ref - 1));
    victims_add(arg, &row);
}

static void read_on(struct store *store, host_visit *visit, void *arg)
{
    struct shortlist *list = &store->shortlist;
    uint64_t next = host_visit_segment(store, list->read_to, visit, arg);
    list->read_to = next;
    list->is_ready = next == 0;
}

/* The lowest of the first segment: as many as it has of `wanted` rows of the whole table. */
static bool read_first(struct store *store, uint64_t wanted)
{
    struct shortlist *list = &store->shortlist;
    const struct segment *first = index_place(&store->index, 0)->segment;
    struct victims sample;
    if (!victims_open(&sample, (wanted >> first->depth) + 1, most_of(first->used, 1)))
        return false;
    list->is_on = true;
    read_on(store, add_to_sample, &sample);
    victims_finish(&sample);
    list->bound = (struct use_rank){.count = UINT64_MAX};
    if (sample.is_cut)
        list->bound = sample.list[sample.most - 1].rank;
    for (uint64_t i = 0; i < sample.n && list->is_on; i++)
        add(store, &(struct index_entry){.hash = sample.list[i].hash,
                                         .ref = sample.list[i].row + 1,
                                         .slot = sample.list[i].rank.slot});
    victims_close(&sample);
    return list->is_on;
}

/* There is memory for rows that the sample did not foresee, and for new ones. */
static bool begin(struct store *store, uint64_t a_pass)
{
    struct shortlist *list = &store->shortlist;
    uint64_t wanted = a_pass * most_of(list->halves, FEWEST) / 2, rows = rows_used(&store->rows);
    uint64_t capacity = wanted + wanted / 4;
    list->capacity = (capacity < rows ? capacity : rows) + a_pass + SPARE;
    list->n = 0;
    list->rows = memory_new(list->capacity * sizeof *list->rows);
    if (list->rows != NULL && read_first(store, wanted))
        return true;
    shortlist_drop(store);
    return false;
}

static bool read_up_to(struct store *store, uint64_t hash)
{
    struct shortlist *list = &store->shortlist;
    while (list->is_on && !list->is_ready && list->read_to < hash)
        read_on(store, add_if_low, NULL);
    return list->is_on;
}

void shortlist_go_on(struct store *store, uint32_t n_new)
{
    struct shortlist *list = &store->shortlist;
    uint64_t room = host_room(store), part = store->schema->s.capacity / USE_PASS_PART;
    if (n_new == 0 || room >= part || list->is_ready)
        return;
    if (!list->is_on && !begin(store, most_of(part, n_new)))
        return;
    /* such that it is ready before a request like this one finds no room */
    uint64_t left = room > n_new ? room - n_new : 0;
    read_up_to(store, left ? UINT64_MAX / part * (part - left) : UINT64_MAX);
}

bool shortlist_finish(struct store *store, uint64_t most)
{
    return (store->shortlist.is_on || begin(store, most)) && read_up_to(store, UINT64_MAX);
}

/* ---- what changes ---- */

void shortlist_note_new(struct store *store, const struct index_entry *entry)
{
    const struct shortlist *list = &store->shortlist;
    if (list->is_on && (list->is_ready || entry->hash < list->read_to))
        add_if_low(store, entry, NULL);
}

bool shortlist_holds(const struct store *store, const struct index_entry *entry)
{
    return index_find(&store->index, entry->hash, entry->slot) == entry->ref;
}
