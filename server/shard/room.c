/* room.c - a shard applies a request whole or not at all, also when it concerns several tables.
 *
 * What becomes of a key (hit, new, candidate, full) and which rows go for it is decided in one
 * place, its store. A store refuses a push or insert without room before it changes anything, so
 * one of a single table needs nothing here. Of several tables each decides beforehand
 * (store_ops.prepare), and nothing comes between that and the calls.
 *
 * A journaled push has its record written first, and one that is to be refused should have none. To
 * look its keys up costs time, so a push of a single part is asked for only where the table refused
 * the push before; of the others the record is written, and its turn decides, when it is applied
 * and when it is replayed.
 *
 * Memory is reserved as if no key had a row, which is one comparison; only where there is not so
 * much of it, the store counts those that need some. */
#include "server/shard/room.h"

#include "server/shard/commit.h"
#include "server/shard/pull.h"
#include "server/shard/state.h"

int room_prepare(const struct shard_work *work, uint32_t i, struct store_plan *plan,
                 struct embd__error *e)
{
    struct embd__error why = {.status = EMBD_OK};
    struct table *table = work->parts[i].table;
    int status = work->shard->tables.ops->prepare(table->store, plan, &why);
    if (status == EMBD_OK)
        return EMBD_OK;
    table->was_full = status == EMBD_FULL;
    if (work->n_parts == 1)
        return embd__error_set(e, status, "%s", why.text);
    return embd__error_set(e, status, "part %u: %.400s", i, why.text);
}

/* Whether its store tells now what it will tell when its turn has come, and it is worth while. A
 * table that fills up has no more room behind the pushes that are on their way; one that evicts may
 * have. */
static bool is_asked(const struct shard_work *work, const struct work_part *part)
{
    const struct table *table = part->table;
    const embd_schema *s = &table->schema.s;
    if (!commit_is_kept(table) || part->statuses != NULL || s->on_full == EMBD_ON_FULL_GROW)
        return false;
    if (s->on_full != EMBD_ON_FULL_ERROR && work->shard->n_journaled > 0)
        return false;
    return work->n_parts > 1 || table->was_full;
}

int room_check(struct shard_work *work, struct embd__error *e)
{
    for (uint32_t i = 0; i < work->n_parts && !work->shard->is_replaying; i++) {
        struct store_plan plan = {.in = pull_keys(&work->parts[i].in)};
        if (is_asked(work, &work->parts[i]) && room_prepare(work, i, &plan, e) != EMBD_OK)
            return e->status;
    }
    return EMBD_OK;
}

/* ---- memory ---- */

/* Of the part and of what is coming. */
static int reserve(const struct shard_work *work, const struct work_part *part,
                   struct embd__error *e)
{
    const struct store_ops *ops = work->shard->tables.ops;
    struct store *store = part->table->store;
    struct embd__error uncounted = {.status = EMBD_OK};
    struct store_plan plan = {
        .in = pull_keys(&part->in), .may_drop = part->statuses != NULL, .is_counted = true};
    uint64_t n = part->table->n_coming + part->in.n_keys;
    int status = ops->reserve(store, n, plan.may_drop, e);
    if (status != EMBD_NO_MEMORY || part->in.n_keys == 0 ||
        ops->prepare(store, &plan, &uncounted) != EMBD_OK)
        return status;
    e->status = EMBD_OK;
    return ops->reserve(store, part->table->n_coming + plan.n_inserted + plan.n_filtered,
                        plan.may_drop, e);
}

int room_reserve(struct shard_work *work, struct embd__error *e)
{
    for (uint32_t i = 0; i < work->n_parts; i++)
        if (reserve(work, &work->parts[i], e) != EMBD_OK)
            return e->status;
    return EMBD_OK;
}

void room_keep(struct shard_work *work)
{
    for (uint32_t i = 0; i < work->n_parts; i++)
        work->parts[i].table->n_coming += work->parts[i].in.n_keys;
    work->is_coming = true;
}

void room_part_left(const struct shard_work *work, const struct work_part *part)
{
    if (work->is_coming)
        part->table->n_coming -= part->in.n_keys;
}

void room_left(struct shard_work *work)
{
    for (uint32_t i = 0; i < work->n_parts; i++)
        if (work->parts[i].table != NULL)
            room_part_left(work, &work->parts[i]);
    work->is_coming = false;
}
