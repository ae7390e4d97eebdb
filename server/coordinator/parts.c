/* parts.c - see parts.h. */
#include "server/coordinator/parts.h"

#include <stdlib.h>
#include <string.h>

static int by_table(const void *a, const void *b)
{
    const struct written_part *x = *(const struct written_part *const *)a;
    const struct written_part *y = *(const struct written_part *const *)b;
    int order = strcmp(x->table, y->table);
    return order != 0 ? order : x->part.shard < y->part.shard ? -1 : x->part.shard > y->part.shard;
}

/* The parts from `at` on are those of a table, one a shard, ascending. */
static uint32_t count_alike(const struct written_part *const *at, uint32_t n)
{
    uint32_t alike = 1;
    while (alike < n && strcmp(at[alike]->table, at[0]->table) == 0)
        alike++;
    return alike;
}

static struct parts_gap gap_of(const struct written_part *const *at, uint32_t n)
{
    uint32_t without = 0;
    while (without < n && at[without]->part.shard == without)
        without++;
    return (struct parts_gap){at[0]->table, at[0]->part.shard, without};
}

int parts_find_gap(const struct written_part *parts, uint32_t n, uint32_t n_shards,
                   struct parts_gap *out, struct embd__error *e)
{
    const struct written_part **list = malloc(((size_t)n + 1) * sizeof *list);
    *out = (struct parts_gap){.table = NULL};
    if (list == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory to compare the tables of shards");
    for (uint32_t i = 0; i < n; i++)
        list[i] = &parts[i];
    qsort(list, n, sizeof *list, by_table);
    for (uint32_t at = 0, alike; at < n && out->table == NULL; at += alike) {
        alike = count_alike(list + at, n - at);
        if (alike < n_shards)
            *out = gap_of(list + at, alike);
    }
    free(list);
    return EMBD_OK;
}
