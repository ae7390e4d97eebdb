#include <string.h>

#include "host.h"
#include "memory.h"

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
    marks_fini(&list->has);
    *list = (struct shortlist){.halves = list->halves};
}

void shortlist_disappoints(struct store *store)
{
    uint64_t halves = most_of(store->shortlist.halves, FEWEST) * 2;
    shortlist_drop(store);
    store->shortlist.halves = (uint32_t)(halves < MOST ? halves : MOST);
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

/* More than there is room for, or nearly so, which would have it tidied again and again: there is no
 * list. */
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
}

static bool is_above(const struct use_rank *bound, const struct victim *row)
{
    if (row->count != bound->count)
        return row->count > bound->count;
    if (row->stamp != bound->stamp)
        return row->stamp > bound->stamp;
    struct use_rank rank = victim_rank(row);
    return use_goes_first(bound, &rank);
}

static void add_if_low(struct store *store, const struct index_entry *entry, void *arg)
{
    (void)arg;
    const struct shortlist *list = &store->shortlist;
    struct victim row = host_victim(entry, host_use(store, entry->ref - 1));
    if (list->is_on && !(list->is_bounded && is_above(&list->bound, &row)) &&
        !doomed_has(&store->doomed, row.row))
        add(store, &row);
}

/* ---- drawing it up ---- */

static void add_to_sample(struct store *store, const struct index_entry *entry, void *arg)
{
    struct victim row = host_victim(entry, host_use(store, entry->ref - 1));
    if (!doomed_has(&store->doomed, row.row))
        victims_add(arg, &row);
}

static void read_on(struct store *store, host_visit *visit, void *arg)
{
    struct shortlist *list = &store->shortlist;
    uint64_t next = host_visit_segment(store, list->read_to, visit, arg);
    if (!list->is_on) /* there were too many */
        return;
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
    list->is_bounded = sample.is_cut;
    if (sample.is_cut)
        list->bound = victim_rank(&sample.list[sample.most - 1]);
    for (uint64_t i = 0; i < sample.n && list->is_on; i++)
        add(store, &sample.list[i]);
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
    if (list->rows != NULL && marks_reserve(&list->has, store->schema->s.capacity) &&
        read_first(store, wanted))
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
    /* so many requests like this one still find room: each reads as much of what is left, and it is
     * ready before one finds none */
    uint64_t n_requests = 1 + room / n_new;
    read_up_to(store, list->read_to + (UINT64_MAX - list->read_to) / n_requests);
}

bool shortlist_finish(struct store *store, uint64_t most)
{
    if ((!store->shortlist.is_on && !begin(store, most)) || !read_up_to(store, UINT64_MAX))
        return false;
    tidy(&store->shortlist);
    return true;
}

/* ---- what changes ---- */

void shortlist_note_new(struct store *store, const struct index_entry *entry)
{
    const struct shortlist *list = &store->shortlist;
    if (list->is_on && (list->is_ready || entry->hash < list->read_to))
        add_if_low(store, entry, NULL);
}

void shortlist_note_use(struct store *store, const struct index_entry *entry)
{
    struct shortlist *list = &store->shortlist;
    if (!marks_has(&list->has, entry->ref - 1))
        return;
    marks_drop(&list->has, entry->ref - 1);
    add_if_low(store, entry, NULL);
}

void shortlist_note_gone(struct store *store, uint32_t row)
{
    marks_drop(&store->shortlist.has, row);
}

void shortlist_cut(struct store *store, uint64_t n)
{
    struct shortlist *list = &store->shortlist;
    if (list->n < n + store->schema->s.capacity / USE_PASS_PART) {
        shortlist_drop(store);
        return;
    }
    for (uint64_t i = 0; i < n; i++)
        marks_drop(&list->has, list->rows[i].row);
    list->n -= n;
    memmove(list->rows, list->rows + n, list->n * sizeof *list->rows);
}
