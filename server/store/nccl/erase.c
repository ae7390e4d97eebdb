/* erase.c - removes keys: the host groups them by owner, and every member removes its own. */
#include "server/store/nccl/group.h"

#include <stdlib.h>

/* The keys of a request, grouped by owner; stable. */
struct grouped {
    uint64_t *keys;
    uint16_t *slots;  /* [n] slot of each key */
    uint32_t *places; /* [n] place of each key in the request */
    uint8_t *statuses;
    uint32_t begin[WIRE_MAX + 1];
};

static bool grouped_new(struct grouped *g, uint32_t n)
{
    *g = (struct grouped){
        .keys = malloc((n + 1ull) * sizeof *g->keys),
        .slots = malloc((n + 1ull) * sizeof *g->slots),
        .places = malloc((n + 1ull) * sizeof *g->places),
        .statuses = malloc(n + 1ull),
    };
    return g->keys && g->slots && g->places && g->statuses;
}

static void grouped_free(struct grouped *g)
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

/* If a member runs out of memory after others removed keys, half the request is done: the group
 * fails for good. */
static int erase_all(struct group *group, const struct grouped *g, struct store_erase *erase,
                     struct embd__error *e)
{
    for (uint32_t d = 0; d < group->n; d++) {
        uint32_t at = g->begin[d], n = g->begin[d + 1] - at;
        struct store_erase part = {
            .in = {n, n, g->keys + at, NULL, erase->in.slots ? g->slots + at : NULL, NULL},
            .statuses = g->statuses + at};
        int status = device_use(group->tables[d]->device);
        if (status != 0)
            return group_error(group, status, "erasing keys", e);
        if (cuda_erase(group->tables[d], &part, e) != EMBD_OK) {
            struct embd__error cause = *e;
            if (d > 0 || group->tables[d]->failed)
                group_error(group, WIRE_LOST, "erasing keys", e);
            *e = cause;
            return e->status;
        }
        erase->n_erased += part.n_erased;
        for (uint32_t i = at; i < at + n && erase->statuses; i++)
            erase->statuses[g->places[i]] = g->statuses[i];
    }
    return EMBD_OK;
}

int group_erase(struct group *group, struct store_erase *erase, struct embd__error *e)
{
    struct grouped g;
    erase->n_erased = 0;
    e->status = EMBD_OK;
    flow_wait_all(group);
    if (group->failed)
        return embd__error_set(e, EMBD_INTERNAL, "%s", group->why);
    if (!grouped_new(&g, erase->in.n_keys)) {
        grouped_free(&g);
        return embd__error_set(e, EMBD_NO_MEMORY, "table %s: no memory to erase keys",
                               group->schema->s.name);
    }
    count(group, &erase->in, &g);
    place(group, &erase->in, &g);
    int status = erase_all(group, &g, erase, e);
    grouped_free(&g);
    return status;
}
