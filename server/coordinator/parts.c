/* parts.c - see parts.h. */
#include "server/coordinator/parts.h"

#include <stdlib.h>
#include <string.h>

#include "server/log/log.h"
#include "server/peers/peers.h"

static int by_table(const void *a, const void *b)
{
    const struct written_part *x = *(const struct written_part *const *)a;
    const struct written_part *y = *(const struct written_part *const *)b;
    int order = strcmp(x->table, y->table);
    return order != 0 ? order : x->part.shard < y->part.shard ? -1 : x->part.shard > y->part.shard;
}

/* The parts from `at` on are those of a table, one a shard, ascending. */
static uint32_t count_alike(struct written_part *const *at, uint32_t n)
{
    uint32_t alike = 1;
    while (alike < n && strcmp(at[alike]->table, at[0]->table) == 0)
        alike++;
    return alike;
}

static int refuse(const char *table, const char *has, const char *lacks, struct embd__error *e)
{
    return e->status ? e->status
                     : embd__error_set(e, EMBD_INVALID,
                                       "%s has no table '%.63s', which %s has: a snapshot with it "
                                       "could not be loaded; create the table again, or drop it",
                                       lacks, table, has);
}

/* The parts at[0] .. at[n - 1] are all that there are of a table. */
static void leave_out(struct written_part *const *at, uint32_t n, const struct job *job,
                      struct embd__error *e)
{
    uint32_t without = 0;
    while (without < n && at[without]->part.shard == without)
        without++;
    const char *table = at[0]->table, *has = peers_name(job->peers, at[0]->part.shard),
               *lacks = peers_name(job->peers, without);
    for (uint32_t i = 0; i < n; i++)
        at[i]->is_left_out = true;
    if (!embd__scope_is_all(&job->order.scope))
        refuse(table, has, lacks, e);
    else
        log_event(LOG_WARN, "table_left_out", "name=%s table=%s has=%s lacks=%s", job->order.name,
                  table, has, lacks);
}

int parts_leave_out(struct written_part *parts, uint32_t n, const struct job *job,
                    struct embd__error *e)
{
    struct written_part **list = malloc(((size_t)n + 1) * sizeof *list);
    if (list == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory to compare the tables of shards");
    for (uint32_t i = 0; i < n; i++)
        list[i] = &parts[i];
    qsort(list, n, sizeof *list, by_table);
    for (uint32_t at = 0, alike; at < n; at += alike) {
        alike = count_alike(list + at, n - at);
        if (alike < job->n_shards)
            leave_out(list + at, alike, job, e);
    }
    free(list);
    return e->status;
}
