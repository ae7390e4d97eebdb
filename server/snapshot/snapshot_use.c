/* snapshot_use.c - see snapshot_use.h. */
#include "server/snapshot/snapshot_use.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/access/access.h"
#include "server/snapshot/snapshot.h"

void snapshot_use_fini(struct snapshot_use *use)
{
    free(use->list);
    *use = (struct snapshot_use){.n = 0};
}

void snapshot_use_take(struct snapshot_use *use, const struct snapshot_list *all)
{
    snapshot_use_fini(use);
    use->list = calloc((size_t)all->n + 1, sizeof *use->list);
    if (use->list == NULL)
        return;
    use->is_known = true;
    for (uint32_t i = 0; i < all->n; i++) {
        if (all->list[i].scope.job[0] == '\0')
            continue;
        memcpy(use->list[use->n].job, all->list[i].scope.job, sizeof use->list->job);
        use->list[use->n++].bytes = all->list[i].bytes;
    }
}

void snapshot_use_add(struct snapshot_use *use, const char *job, uint64_t bytes)
{
    if (job[0] == '\0' || !use->is_known)
        return;
    void *grown = realloc(use->list, (use->n + 1u) * sizeof *use->list);
    if (grown == NULL) {
        snapshot_use_fini(use);
        return;
    }
    use->list = grown;
    snprintf(use->list[use->n].job, sizeof use->list->job, "%s", job);
    use->list[use->n++].bytes = bytes;
}

void snapshot_use_of(const struct snapshot_use *use, const struct grant *grant, uint64_t *n,
                     uint64_t *bytes)
{
    *n = *bytes = 0;
    for (uint32_t i = 0; i < use->n; i++)
        if (grant_covers(grant, use->list[i].job)) {
            ++*n;
            *bytes += use->list[i].bytes;
        }
}
