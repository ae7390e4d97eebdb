/* erase.c - removes keys: the host groups them by owner, and every member removes its own. */
#include "server/store/nccl/grouped.h"

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
    if (!grouped_new(&g, group, &erase->in))
        return embd__error_set(e, EMBD_NO_MEMORY, "table %s: no memory to erase keys",
                               group->schema->s.name);
    int status = erase_all(group, &g, erase, e);
    grouped_free(&g);
    return status;
}
