#include "victims.h"

#include "memory.h"

#define SPARE 1024u /* there is memory for beyond twice those that are wanted */

static bool goes_first(const struct victim *a, const struct victim *b)
{
    return use_goes_first(&a->rank, &b->rank);
}

bool victims_open(struct victims *v, uint64_t most, uint64_t n_rows)
{
    *v = (struct victims){.most = most, .capacity = 2 * most + SPARE};
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

/* Hoare's selection. */
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

void victims_add(struct victims *v, const struct victim *new)
{
    if (v->is_cut && !goes_first(new, &v->list[v->most - 1]))
        return;
    v->list[v->n++] = *new;
    if (v->n == v->capacity && v->n > v->most)
        keep_lowest(v);
}

void victims_finish(struct victims *v)
{
    if (v->n > v->most) {
        keep_lowest(v);
        return;
    }
    for (uint64_t i = 0; i + 1 < v->n; i++)
        if (goes_first(&v->list[v->n - 1], &v->list[i])) {
            struct victim swapped = v->list[i];
            v->list[i] = v->list[v->n - 1];
            v->list[v->n - 1] = swapped;
        }
}
