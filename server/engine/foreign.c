/* foreign.c - see foreign.h. */
#include "server/engine/foreign.h"

#include <stdlib.h>

#include "server/engine/joining.h"
#include "server/engine/pushers_inside.h"
#include "proto/assert.h"

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
void foreign_check_owner(struct op *op)
{
    if (!op->engine->is_replaying)
        embd__error_set(&op->error, EMBD_CLOSED,
                        "the peer has gone, and the push was not applied: its gradients went too");
}

void foreign_mark(struct table_set *set, const struct table_set *journaled, bool has_left)
{
    bool may_have_left = has_left && (set->may_have_others & TABLES_UNKNOWN) != 0;
    set->may_have_others &= ~(uint64_t)TABLES_BEYOND;
    if (may_have_left || !table_set_is_within(set, journaled))
        set->may_have_others |= TABLES_BEYOND;
}

/* ---- replaying ---- */

static void note_lost(struct pushers *pushers, uint32_t i, uint64_t sequence)
{
    struct pusher_stream *s = &pushers->streams[i];
    pushers->sets[i].may_have_others |= TABLES_BEYOND;
    s->lost = sequence > s->lost ? sequence : s->lost;
}

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
        note_lost(pushers, i, op->number.sequence - 1);
    }
    return EMBD_OK;
}

void foreign_note(const struct op *op)
{
    EMBD_ASSERT(op->is_number_alone);
    struct pushers *pushers = op_pushers(op);
    uint32_t i = pushers_find(pushers, &op->number);
    if (i != 0)
        note_lost(pushers, i, op->number.sequence);
}

static void lose_table(struct pushers *pushers, uint32_t i, const void *number)
{
    const struct table_set *set = &pushers->sets[i];
    if (table_set_has(set, *(const uint32_t *)number) || (set->may_have_others & TABLES_UNKNOWN))
        note_lost(pushers, i, pushers->streams[i].last);
}

void foreign_lose_table(struct engine *engine, uint32_t number)
{
    pushers_each(&engine->pushers, lose_table, &number);
    pushers_each(&engine->journaled_pushers, lose_table, &number);
}

/* ---- what snapshots say ---- */

static void forget_beyond(struct pushers *pushers, uint32_t i, const void *mask)
{
    if ((pushers->sets[i].may_have_others & *(const uint64_t *)mask) != 0)
        pushers_forget(pushers, i);
}

static bool is_behind(struct engine *engine, const struct push_stream *entry)
{
    const struct push_number id = pushers_number_of(entry);
    uint64_t last = pushers_last(&engine->pushers, &id);
    if (last <= entry->last)
        return false;
    engine->behind[engine->n_behind] = *entry;
    engine->behind[engine->n_behind++].last = last;
    return true;
}

int foreign_take(struct engine *engine, struct push_stream *list, uint64_t *n,
                 struct embd__error *e)
{
    uint64_t n_taken = 0;
    engine->behind = malloc((*n + 1) * sizeof *list);
    if (engine->behind == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for the pushers of a snapshot");
    for (uint64_t i = 0; i < *n; i++)
        if (!is_behind(engine, &list[i]))
            list[n_taken++] = list[i];
    *n = n_taken;
    return EMBD_OK;
}

uint32_t foreign_list_behind(const struct engine *engine, uint32_t max, struct push_stream *out,
                             struct table_set *sets_out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < engine->n_behind && n < max; i++) {
        const struct push_number id = pushers_number_of(&engine->behind[i]);
        if (pushers_know(&engine->pushers, &id))
            continue;
        sets_out[n] = (struct table_set){.may_have_others = TABLES_BEYOND};
        out[n++] = engine->behind[i];
    }
    return n;
}

void foreign_meet(struct engine *engine, const struct push_stream *entry)
{
    struct pushers *pushers = &engine->journaled_pushers;
    const struct push_number id = pushers_number_of(entry);
    uint32_t i = pushers_find(pushers, &id);
    const struct pusher_stream *s = i != 0 ? &pushers->streams[i] : NULL;
    if (s != NULL && s->lost <= entry->last && entry->last <= s->last)
        pushers->sets[i].may_have_others &= ~(uint64_t)TABLES_BEYOND;
}

void foreign_forget(struct engine *engine)
{
    const uint64_t others = TABLES_BEYOND | TABLES_UNKNOWN, journaled = TABLES_BEYOND;
    pushers_each(&engine->pushers, forget_beyond, &others);
    pushers_each(&engine->journaled_pushers, forget_beyond, &journaled);
}
