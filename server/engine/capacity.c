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
 * A push holds tickets of its stores from when its record is to be written until it is applied:
 * each keeps memory for all of the part's keys. */
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
