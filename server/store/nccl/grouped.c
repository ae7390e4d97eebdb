/* grouped.c - see grouped.h. */
#include "server/store/nccl/grouped.h"

#include <stdlib.h>

static bool take_memory(struct grouped *g, uint32_t n)
{
    *g = (struct grouped){
        .keys = malloc((n + 1ull) * sizeof *g->keys),
        .slots = malloc((n + 1ull) * sizeof *g->slots),
        .places = malloc((n + 1ull) * sizeof *g->places),
        .statuses = malloc(n + 1ull),
    };
    return g->keys && g->slots && g->places && g->statuses;
}

void grouped_free(struct grouped *g)
{
    free(g->keys);
    free(g->slots);
    free(g->places);
    free(g->statuses);
}

static uint32_t row_end(const struct store_keys *in, uint32_t row)
{
    return in->offsets ? in->offsets[row + 1] : row + 1;
}

static void count(const struct group *group, const struct store_keys *in, struct grouped *g)
{
    uint32_t k = 0;
    for (uint32_t row = 0; row < in->n_rows; row++)
        for (uint32_t slot = in->slots ? in->slots[row] : 0; k < row_end(in, row); k++)
            g->begin[owner_of(group->schema->s.partition, group->n, in->keys[k], slot) + 1]++;
    for (uint32_t d = 0; d < group->n; d++)
        g->begin[d + 1] += g->begin[d];
}

static void place(const struct group *group, const struct store_keys *in, struct grouped *g)
{
    uint32_t next[WIRE_MAX], k = 0;
    for (uint32_t d = 0; d < group->n; d++)
        next[d] = g->begin[d];
    for (uint32_t row = 0; row < in->n_rows; row++)
        for (uint32_t slot = in->slots ? in->slots[row] : 0; k < row_end(in, row); k++) {
            uint32_t to = next[owner_of(group->schema->s.partition, group->n, in->keys[k], slot)]++;
            g->keys[to] = in->keys[k];
            g->slots[to] = (uint16_t)slot;
            g->places[to] = k;
        }
}

bool grouped_new(struct grouped *g, const struct group *group, const struct store_keys *in)
{
    if (!take_memory(g, in->n_keys)) {
        grouped_free(g);
        return false;
    }
    count(group, in, g);
    place(group, in, g);
    return true;
}
