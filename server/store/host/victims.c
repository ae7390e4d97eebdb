/* victims.c - the lowest of many rows: see victims.h. */
#include "server/store/host/victims.h"

#include "server/store/host/memory.h"
#include "server/store/host/table.h"

/* ---- ranks ---- */

float *row_use_at(const struct store *store, uint32_t row)
{
    return host_state(store, rows_at(&store->rows, row)) + store->use_at;
}

struct row_use row_use_of(const struct store *store, uint32_t row)
{
    const float *use = row_use_at(store, row);
    return (struct row_use){use_count(use, &store->use_rule), embd__stamp_get(use)};
}

struct victim victim_of(const struct index_entry *entry, struct row_use use)
{
    return (struct victim){
        .hash = entry->hash,
        .stamp = use.stamp,
        .row = entry->ref - 1,
        .slot = entry->slot,
        .count = use.count,
    };
}

/* ---- the lowest of many rows ---- */

#define VICTIMS_SPARE 1024u /* there is memory for beyond twice those that are wanted */

/* Below 0: it goes before one of that rank; above 0: behind. Most ranks differ in what needs no
 * key. */
static int compare(const struct victim *a, const struct use_rank *b)
{
    if (a->count != b->count)
        return a->count < b->count ? -1 : 1;
    if (a->stamp != b->stamp)
        return a->stamp < b->stamp ? -1 : 1;
    struct use_rank rank = victim_rank(a);
    return use_goes_first(&rank, b) ? -1 : use_goes_first(b, &rank);
}

bool victims_open(struct victims *v, uint64_t most, uint64_t n_rows)
{
    *v = (struct victims){.most = most, .capacity = 2 * most + VICTIMS_SPARE};
    if (v->capacity > n_rows)
        v->capacity = n_rows;
    v->list = memory_new(v->capacity * sizeof *v->list);
    return v->list != NULL;
}

void victims_close(struct victims *v)
{
    memory_free(v->list, v->capacity * sizeof *v->list);
    *v = (struct victims){0};
}

static void swap(struct victim *a, struct victim *b)
{
    struct victim swapped = *a;
    *a = *b;
    *b = swapped;
}

/* Two parts: i and more are not below the pivot, j and fewer not above. */
static void part(struct victim *list, int64_t *i, int64_t *j, const struct use_rank *pivot)
{
    do {
        while (compare(&list[*i], pivot) < 0)
            ++*i;
        while (compare(&list[*j], pivot) > 0)
            --*j;
        if (*i > *j)
            return;
        swap(&list[(*i)++], &list[(*j)--]);
    } while (*i <= *j);
}

/* Hoare's selection. */
static void select_lowest(struct victim *list, uint64_t n, uint64_t most)
{
    int64_t low = 0, high = (int64_t)n - 1, wanted = (int64_t)most - 1;
    while (low < high) {
        int64_t i = low, j = high;
        struct use_rank pivot = victim_rank(&list[low + (high - low) / 2]);
        part(list, &i, &j, &pivot);
        if (wanted <= j)
            high = j;
        else if (wanted >= i)
            low = i;
        else
            break;
    }
}

uint64_t victims_select(struct victim *list, uint64_t n, uint64_t most)
{
    if (n > most) {
        select_lowest(list, n, most);
        return most;
    }
    for (uint64_t i = 0, last = n - 1; i + 1 < n; i++) {
        struct use_rank rank = victim_rank(&list[i]);
        if (compare(&list[last], &rank) < 0)
            swap(&list[i], &list[last]);
    }
    return n;
}

static void keep_lowest(struct victims *v)
{
    select_lowest(v->list, v->n, v->most);
    v->n = v->most;
    v->is_cut = true;
}

void victims_add(struct victims *v, const struct victim *new)
{
    if (v->is_cut) {
        struct use_rank last = victim_rank(&v->list[v->most - 1]);
        if (compare(new, &last) >= 0)
            return;
    }
    v->list[v->n++] = *new;
    if (v->n == v->capacity && v->n > v->most)
        keep_lowest(v);
}

void victims_finish(struct victims *v)
{
    if (v->n > v->most)
        keep_lowest(v);
    else
        victims_select(v->list, v->n, v->most);
}
