/* foreign.c - see foreign.h. */
#include "server/engine/foreign.h"

#include "server/engine/joining.h"
#include "server/engine/pushers_inside.h"

static bool has_changed_kind(const struct op *op)
{
    bool has = op->kind == OP_PUT && joining_was_set(op->as.put.table);
    for (uint32_t i = 0; i < op->n_parts && !has; i++)
        has = joining_was_set(op->parts[i].table);
    return has;
}

bool foreign_find(struct op *op)
{
    if (!has_changed_kind(op))
        return false;
    op->is_foreign = true;
    op->is_foreign = pushers_know(op_pushers(op), &op->number);
    return op->is_foreign;
}

/* The stream is of journaled tables then. */
bool foreign_is_number_alone(const struct op *op)
{
    return op->is_foreign && op_pushers(op) == &op->engine->journaled_pushers;
}

void foreign_check_owner(struct op *op)
{
    if (op->is_number_alone && !op->engine->is_replaying)
        embd__error_set(&op->error, EMBD_CLOSED,
                        "the peer has gone, and the push was not applied: its gradients went too");
}

/* ---- replaying ---- */

static bool is_of_others(const struct op *op)
{
    return op->is_foreign && op_pushers(op) == &op->engine->pushers;
}

/* Its pushes that are not in the journal come between. */
int foreign_follow(struct op *op, struct embd__error *e)
{
    struct pushers *pushers = op_pushers(op);
    if (!op->engine->is_replaying || !is_of_others(op))
        return EMBD_OK;
    if (!pushers_know(pushers, &op->number) &&
        pushers_begin_old(pushers, &op->number, e) != EMBD_OK)
        return e->status;
    uint32_t i = pushers_find(pushers, &op->number);
    if (op->number.sequence > pushers->streams[i].last + 1) {
        pushers->streams[i].last = op->number.sequence - 1;
        pushers->sets[i].may_have_others |= TABLES_BEYOND;
    }
    return EMBD_OK;
}

void foreign_note(const struct op *op)
{
    struct pushers *pushers = op_pushers(op);
    bool is_alone = op->engine->is_replaying ? op->n_parts == 0 && op->is_number_alone
                                             : foreign_is_number_alone(op);
    uint32_t i = is_alone ? pushers_find(pushers, &op->number) : 0;
    if (i != 0)
        pushers->sets[i].may_have_others |= TABLES_BEYOND;
}

/* ---- the end of a replay ---- */

static void forget_beyond(struct pushers *pushers, uint32_t i, const void *mask)
{
    if ((pushers->sets[i].may_have_others & *(const uint64_t *)mask) != 0)
        pushers_forget(pushers, i);
}

void foreign_end_replay(struct engine *engine)
{
    const uint64_t mask = TABLES_BEYOND;
    pushers_each(&engine->journaled_pushers, forget_beyond, &mask);
}

bool foreign_takes(const struct engine *engine, const struct push_stream *entry)
{
    const struct push_number id = pushers_number_of(entry);
    return pushers_last(&engine->pushers, &id) <= entry->last;
}

void foreign_forget(struct engine *engine)
{
    const uint64_t mask = TABLES_BEYOND | TABLES_UNKNOWN;
    pushers_each(&engine->pushers, forget_beyond, &mask);
}
