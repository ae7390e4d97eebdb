/* shortlist.c - see shortlist.h. */
#include <string.h>

#include "server/store/host/host.h"
#include "server/store/host/memory.h"

#define FEWEST 4u /* halves of a pass */
#define MOST   8u
#define SPARE  4096u

static uint64_t most_of(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static uint64_t a_pass(const struct store *store)
{
    return store->schema->s.capacity / USE_PASS_PART;
}

void shortlist_drop(struct store *store)
{
    struct shortlist *list = &store->shortlist;
    memory_free(list->rows, list->capacity * sizeof *list->rows);
    marks_fini(&list->has);
    *list = (struct shortlist){.halves = list->halves};
}

static void lengthen(struct shortlist *list)
{
    uint64_t halves = most_of(list->halves, FEWEST) * 2;
    list->halves = (uint32_t)(halves < MOST ? halves : MOST);
}

void shortlist_disappoints(struct store *store)
{
    lengthen(&store->shortlist);
    shortlist_drop(store);
}

/* The true entries alone, one for each row that is on the list. */
static void tidy(struct shortlist *list)
{
    uint64_t begin = list->n;
    for (uint64_t i = list->n; i-- > 0;)
        if (marks_has(&list->has, list->rows[i].row)) {
            marks_drop(&list->has, list->rows[i].row);
            list->rows[--begin] = list->rows[i];
        }
    list->n -= begin;
    if (begin > 0)
        memmove(list->rows, list->rows + begin, list->n * sizeof *list->rows);
    for (uint64_t i = 0; i < list->n; i++)
        marks_set(&list->has, list->rows[i].row);
}

static bool is_within(const struct shortlist_bound *bound, const struct victim *row)
{
    if (bound->is_all)
        return true;
    if (row->count != bound->rank.count)
        return row->count < bound->rank.count;
    if (row->stamp != bound->rank.stamp)
        return row->stamp < bound->rank.stamp;
    struct use_rank rank = victim_rank(row);
    return !use_goes_first(&bound->rank, &rank);
}

/* One that is not on the list. More than there is room for, or nearly so, which would have it
 * tidied again and again: there is no list. */
static void add(struct store *store, const struct victim *row)
{
    struct shortlist *list = &store->shortlist;
    if (list->n == list->capacity) {
        tidy(list);
        if (list->n > list->capacity / 16 * 15) {
            shortlist_drop(store);
            return;
        }
    }
    marks_set(&list->has, row->row);
    list->rows[list->n++] = *row;
    list->n_listed++;
    list->n_sure += list->is_ready && is_within(&list->bound, row);
}

/* It may have been above the bound: there are no fewer than are sure. */
static void take_off(struct shortlist *list, uint32_t row)
{
    marks_drop(&list->has, row);
    list->n_listed--;
    list->n_sure = less(list->n_sure, 1);
}

/* ---- drawing it up ---- */

static void add_to_sample(struct store *store, const struct index_entry *entry, void *arg)
{
    struct victim row = host_victim(entry, host_use(store, entry->ref - 1));
    if (!doomed_has(&store->doomed, row.row))
        victims_add(arg, &row);
}

static void add_if_low(struct store *store, const struct index_entry *entry, void *arg)
{
    (void)arg;
    struct shortlist *list = &store->shortlist;
    if (!list->is_on || marks_has(&list->has, entry->ref - 1))
        return;
    struct victim row = host_victim(entry, host_use(store, entry->ref - 1));
    if (is_within(&list->next, &row) && !doomed_has(&store->doomed, row.row))
        add(store, &row);
}

static void read_on(struct store *store, host_visit *visit, void *arg)
{
    struct shortlist *list = &store->shortlist;
    uint64_t next = host_visit_segment(store, list->read_to, visit, arg);
    if (!list->is_on) /* there were too many */
        return;
    list->read_to = next;
    if (next != 0)
        return;
    list->is_drawing = false;
    list->is_ready = true;
    list->bound = list->next;
    list->n_sure = list->n_listed;
}

/* How many rows it is drawn for, where a pass takes so many. */
static uint64_t wanted(const struct shortlist *list, uint64_t n_pass)
{
    return n_pass * most_of(list->halves, FEWEST) / 2;
}

/* Up to which rank: of the first segment the lowest, as many as it has of those that are wanted. */
static bool aim(struct store *store, uint64_t n_wanted)
{
    struct shortlist *list = &store->shortlist;
    const struct segment *first = index_place(&store->index, 0)->segment;
    struct victims sample;
    if (!victims_open(&sample, (n_wanted >> first->depth) + 1, most_of(first->used, 1)))
        return false;
    host_visit_segment(store, 0, add_to_sample, &sample);
    victims_finish(&sample);
    list->next = (struct shortlist_bound){.is_all = !sample.is_cut};
    if (sample.is_cut) {
        const struct victim *last = &sample.list[sample.most - 1];
        list->next.rank = victim_rank(last);
        if (list->is_ready && is_within(&list->bound, last))
            list->next = list->bound;
    }
    victims_close(&sample);
    return true;
}

/* Rows that every pass must find, and what one request may take off before more is drawn. */
static uint64_t needed(const struct store *store)
{
    return a_pass(store) + 2 * store->shortlist.n_keys;
}

static void begin_drawing(struct store *store, uint64_t spared)
{
    struct shortlist *list = &store->shortlist;
    list->is_on = list->is_drawing = true;
    list->read_to = 0;
    list->spared = spared;
    read_on(store, add_if_low, NULL);
}

/* There is memory for the longest one, for rows that the sample did not foresee, and for new ones;
 * what is not written to is none. */
static bool begin(struct store *store, uint64_t n_pass)
{
    struct shortlist *list = &store->shortlist;
    uint64_t n_wanted = wanted(list, n_pass), rows = rows_used(&store->rows);
    uint64_t capacity = n_pass * MOST / 2 / 4 * 5;
    list->capacity = (capacity < rows ? capacity : rows) + n_pass + SPARE;
    list->rows = memory_new(list->capacity * sizeof *list->rows);
    if (list->rows != NULL && marks_reserve(&list->has, store->schema->s.capacity) &&
        aim(store, n_wanted)) {
        begin_drawing(store, less(n_wanted, needed(store)) / 2);
        return list->is_on;
    }
    shortlist_drop(store);
    return false;
}

/* Whether a pass finds all it needs up to the bound. */
static bool is_enough(const struct store *store)
{
    return store->shortlist.is_ready && store->shortlist.n_sure >= needed(store);
}

/* Up to a higher rank. Without memory it stays as it is. */
static void begin_further(struct store *store)
{
    struct shortlist *list = &store->shortlist;
    lengthen(list);
    uint64_t n_wanted = wanted(list, a_pass(store));
    uint64_t now = less(list->n_sure, needed(store)), then = less(n_wanted, needed(store)) / 2;
    if (aim(store, n_wanted))
        begin_drawing(store, is_enough(store) && now < then ? now : then);
}

static bool read_up_to(struct store *store, uint64_t hash)
{
    struct shortlist *list = &store->shortlist;
    while (list->is_on && list->is_drawing && list->read_to < hash)
        read_on(store, add_if_low, NULL);
    return list->is_on;
}

/* Half of the rows that can be spared were taken off; where these are few, to draw further would
 * cost more than it saves. */
static bool is_short(const struct store *store)
{
    const struct shortlist *list = &store->shortlist;
    uint64_t spare = less(wanted(list, a_pass(store)), needed(store));
    return !list->bound.is_all && spare >= a_pass(store) / 4 &&
           list->n_sure < needed(store) + spare / 2;
}

/* How many requests like this one there will be until the drawing has to be done: they find room,
 * and rows to take off. */
static uint64_t requests_left(const struct store *store, uint32_t n_new, uint64_t n_off)
{
    const struct shortlist *list = &store->shortlist;
    uint64_t n = UINT64_MAX;
    if (!is_enough(store) && n_new > 0)
        n = 1 + host_room(store) / n_new;
    if (n_off > 0 && 1 + list->spared / n_off < n)
        n = 1 + list->spared / n_off;
    return n;
}

void shortlist_go_on(struct store *store, uint32_t n_new, uint32_t n_keys)
{
    struct shortlist *list = &store->shortlist;
    uint64_t n_off = list->n_off, n;
    list->n_off = 0;
    list->n_keys = most_of(list->n_keys, n_keys);
    if (!list->is_on && (n_new == 0 || host_room(store) >= a_pass(store) ||
                         !begin(store, most_of(a_pass(store), n_new))))
        return;
    if (list->is_ready && !list->is_drawing && n_off > 0 && is_short(store))
        begin_further(store);
    if (!list->is_drawing || (n = requests_left(store, n_new, n_off)) == UINT64_MAX)
        return;
    list->spared = less(list->spared, n_off);
    read_up_to(store, list->read_to + (UINT64_MAX - list->read_to) / n);
}

bool shortlist_prepare(struct store *store, uint64_t most)
{
    struct shortlist *list = &store->shortlist;
    if (!list->is_on && !begin(store, most))
        return false;
    if (!list->is_ready && !read_up_to(store, UINT64_MAX))
        return false;
    tidy(list);
    return true;
}

bool shortlist_prepare_further(struct store *store)
{
    struct shortlist *list = &store->shortlist;
    if (!list->is_drawing || !read_up_to(store, UINT64_MAX))
        return false;
    tidy(list);
    return true;
}

/* ---- what changes ---- */

/* Whether the list has rows like this one, as far as it is drawn. */
static bool has_such(const struct shortlist *list, const struct victim *row)
{
    return (list->is_ready && is_within(&list->bound, row)) ||
           (list->is_drawing && row->hash < list->read_to && is_within(&list->next, row));
}

static void add_such(struct store *store, const struct index_entry *entry)
{
    struct victim row = host_victim(entry, host_use(store, entry->ref - 1));
    if (has_such(&store->shortlist, &row))
        add(store, &row);
}

void shortlist_note_new(struct store *store, const struct index_entry *entry)
{
    if (store->shortlist.is_on)
        add_such(store, entry);
}

void shortlist_before_use(struct store *store, const struct index_entry *entry)
{
    struct shortlist *list = &store->shortlist;
    if (!list->is_drawing || entry->hash < list->read_to || marks_has(&list->has, entry->ref - 1))
        return;
    struct victim row = host_victim(entry, host_use(store, entry->ref - 1));
    list->n_off += is_within(&list->next, &row);
}

void shortlist_note_use(struct store *store, const struct index_entry *entry)
{
    struct shortlist *list = &store->shortlist;
    uint32_t row = entry->ref - 1;
    if (!marks_has(&list->has, row))
        return;
    take_off(list, row);
    add_such(store, entry);
    list->n_off += list->is_on && !marks_has(&list->has, row);
}

void shortlist_note_gone(struct store *store, uint32_t row)
{
    struct shortlist *list = &store->shortlist;
    if (!marks_has(&list->has, row))
        return;
    take_off(list, row);
    list->n_off++;
}

void shortlist_cut(struct store *store, uint64_t n)
{
    struct shortlist *list = &store->shortlist;
    if (!list->is_drawing && list->n < n + needed(store)) {
        shortlist_drop(store);
        return;
    }
    for (uint64_t i = 0; i < n; i++)
        take_off(list, list->rows[i].row);
    list->n -= n;
    memmove(list->rows, list->rows + n, list->n * sizeof *list->rows);
}
