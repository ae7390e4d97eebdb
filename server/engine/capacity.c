/* capacity.c - an operation is applied whole or not at all, also when it concerns several tables.
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
#include "server/engine/capacity.h"

#include "server/engine/engine.h"

int capacity_prepare(const struct op *op, uint32_t i, struct store_plan *plan,
                     struct embd__error *e)
{
    struct embd__error why = {.status = EMBD_OK};
    struct table *table = op->parts[i].table;
    int status = op->engine->tables.ops->prepare(table->store, plan, &why);
    if (status == EMBD_OK)
        return EMBD_OK;
    table->was_full = status == EMBD_FULL;
    if (op->n_parts == 1)
        return embd__error_set(e, status, "%s", why.text);
    return embd__error_set(e, status, "part %u: %.400s", i, why.text);
}

/* Whether its store tells now what it will tell when its turn has come, and it is worth while. A
 * table that fills up has no more room behind the pushes that are on their way; one that evicts may
 * have. */
static bool is_asked(const struct op *op, const struct op_part *part)
{
    const struct table *table = part->table;
    const embd_schema *s = &table->schema.s;
    if (!table_is_journaled(table) || part->statuses != NULL || s->on_full == EMBD_ON_FULL_GROW)
        return false;
    if (s->on_full != EMBD_ON_FULL_ERROR && op->engine->n_recorded > 0)
        return false;
    return op->n_parts > 1 || table->was_full;
}

int capacity_check(const struct op *op, struct embd__error *e)
{
    for (uint32_t i = 0; i < op->n_parts; i++) {
        struct store_plan plan = {.in = op_keys(&op->parts[i].in)};
        if (is_asked(op, &op->parts[i]) && capacity_prepare(op, i, &plan, e) != EMBD_OK)
            return e->status;
    }
    return EMBD_OK;
}

/* ---- memory ---- */

/* Of the part and of what is coming. */
static int reserve_part(const struct op *op, const struct op_part *part, struct embd__error *e)
{
    const struct store_ops *ops = op->engine->tables.ops;
    struct store *store = part->table->store;
    struct embd__error uncounted = {.status = EMBD_OK};
    struct store_plan plan = {
        .in = op_keys(&part->in), .may_drop = part->statuses != NULL, .is_counted = true};
    uint64_t n = part->table->n_coming + part->in.n_keys;
    int status = ops->reserve(store, n, plan.may_drop, e);
    if (status != EMBD_NO_MEMORY || part->in.n_keys == 0 ||
        ops->prepare(store, &plan, &uncounted) != EMBD_OK)
        return status;
    e->status = EMBD_OK;
    return ops->reserve(store, part->table->n_coming + plan.n_inserted + plan.n_filtered,
                        plan.may_drop, e);
}

int capacity_reserve(const struct op *op, struct embd__error *e)
{
    for (uint32_t i = 0; i < op->n_parts; i++)
        if (reserve_part(op, &op->parts[i], e) != EMBD_OK)
            return e->status;
    return EMBD_OK;
}

void capacity_keep(struct op *op)
{
    for (uint32_t i = 0; i < op->n_parts; i++)
        op->parts[i].table->n_coming += op->parts[i].in.n_keys;
    op->is_coming = true;
}

void capacity_part_left(const struct op *op, const struct op_part *part)
{
    if (op->is_coming)
        part->table->n_coming -= part->in.n_keys;
}

void capacity_left(struct op *op)
{
    for (uint32_t i = 0; i < op->n_parts; i++)
        if (op->parts[i].table != NULL)
            capacity_part_left(op, &op->parts[i]);
    op->is_coming = false;
}
