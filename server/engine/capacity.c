/* capacity.c - an operation is applied whole or not at all, also to several tables.
 *
 * One place decides about a key (hit, new, candidate, full) and about the rows that go for it: its
 * store. A store refuses a push or insert without room before it changes anything, so an operation
 * on a single table needs nothing here. With several tables each decides in advance
 * (store_ops.prepare), and nothing comes between that and the calls.
 *
 * A journaled push has its record written first, and a push that will be refused should have no
 * record. A look-up of its keys takes time, so a push of a single part is looked up only if the
 * table refused the push before. Otherwise the record is written, and the decision comes when the
 * push is applied and when it is replayed.
 *
 * A push holds tickets of its stores from before its record is written until it is applied: each
 * keeps memory for all keys of the part. */
#include "server/engine/capacity.h"

#include "server/engine/engine.h"

int capacity_prepare(struct op *op, uint32_t i, struct store_change *change, struct embd__error *e)
{
    struct embd__error why = {.status = EMBD_OK};
    struct table *table = op->parts[i].table;
    int status = op->engine->tables.ops->prepare(table->store, change, STORE_PREPARE_OUTCOME, &why);
    op->parts[i].ticket = change->ticket;
    if (status == EMBD_OK)
        return EMBD_OK;
    table->was_full = status == EMBD_FULL;
    if (op->n_parts == 1)
        return embd__error_set(e, status, "%s", why.text);
    return embd__error_set(e, status, "part %u: %.400s", i, why.text);
}

/* Whether its store gives now the answer that it will give in its turn, and the look-up is worth
 * its time. A table that fills up has no more room after the pushes in flight; one that evicts may
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

/* Asks without keeping the answer: other operations come before its turn. */
static int check_part(struct op *op, uint32_t i, struct embd__error *e)
{
    struct op_part *part = &op->parts[i];
    struct store_change push = {.ticket = part->ticket, .in = op_keys(&part->in)};
    capacity_prepare(op, i, &push, e);
    op->engine->tables.ops->cancel(part->table->store, &part->ticket);
    return e->status;
}

int capacity_check(struct op *op, struct embd__error *e)
{
    for (uint32_t i = 0; i < op->n_parts; i++)
        if (is_asked(op, &op->parts[i]) && check_part(op, i, e) != EMBD_OK)
            return e->status;
    return EMBD_OK;
}

/* ---- memory ---- */

int capacity_reserve(struct op *op, struct embd__error *e)
{
    for (uint32_t i = 0; i < op->n_parts && e->status == EMBD_OK; i++) {
        struct op_part *part = &op->parts[i];
        struct store_change push = {
            .ticket = part->ticket, .in = op_keys(&part->in), .statuses = part->statuses};
        op->engine->tables.ops->prepare(part->table->store, &push, STORE_PREPARE_MEMORY, e);
        part->ticket = push.ticket;
    }
    if (e->status != EMBD_OK)
        capacity_left(op);
    return e->status;
}

void capacity_left(struct op *op)
{
    for (uint32_t i = 0; i < op->n_parts; i++) {
        struct op_part *part = &op->parts[i];
        if (part->table != NULL && store_has_ticket(&part->ticket))
            op->engine->tables.ops->cancel(part->table->store, &part->ticket);
    }
}
