/* rolled.c - what becomes of streams of numbered pushes when their tables go, or go back.
 *
 * A stream has one position for all tables it pushes to. Where all of these are replaced from a
 * snapshot, the position goes back to that of the snapshot: a trainer that resumes from there goes
 * on with the next number, and one that does not know has a gap. Where only some of them are
 * replaced, its pushes since are in the others and not in these. So it is forgotten: nothing is
 * applied twice to the others, and its trainer gets an error. */
#include "server/engine/pushers_inside.h"

void pushers_each(struct pushers *pushers, void (*fn)(struct pushers *, uint32_t, const void *),
                  const void *arg)
{
    for (uint32_t at = 1; at <= pushers->n_principals; at++) {
        const struct principal *p = &pushers->principals[at];
        uint32_t next, i = p->n > 0 ? p->oldest : 0;
        for (; i != 0; i = next) {
            next = pushers->streams[i].newer;
            fn(pushers, i, arg);
        }
    }
}

/* ---- a table goes ---- */

static void remove_table(struct pushers *pushers, uint32_t i, const void *number)
{
    table_set_remove(&pushers->sets[i], *(const uint32_t *)number);
}

void pushers_drop_table(struct pushers *pushers, uint32_t number)
{
    pushers_each(pushers, remove_table, &number);
}

/* ---- tables go back ---- */

int pushers_check_rollback(struct pushers *pushers, const struct rollback *back,
                           struct embd__error *e)
{
    if (!back->brings_unknown || back->n == 0)
        return EMBD_OK;
    if (pushers_open_memory(pushers, e) != EMBD_OK)
        return e->status;
    return pushers_check_room(pushers, back->list, back->n, e);
}

enum concern { CONCERNS_NOTHING, CONCERNS_SOME, CONCERNS_ALL };

/* Which of its tables are replaced. */
static enum concern concern_of(const struct table_set *set, const struct rolled_tables *tables)
{
    bool is_unknown = (set->may_have_others & TABLES_UNKNOWN) != 0;
    struct table_set own = is_unknown ? table_set_both(set, &tables->all) : *set;
    if (!table_set_meets(&own, &tables->replaced))
        return CONCERNS_NOTHING;
    return table_set_is_within(&own, &tables->replaced) ? CONCERNS_ALL : CONCERNS_SOME;
}

/* It has pushed to nothing that is there still. */
static bool has_no_table(const struct table_set *set)
{
    static const struct table_set none;
    return !set->may_have_others && table_set_is_within(set, &none);
}

/* An entry of the list. */
static void take(struct pushers *pushers, const struct rollback *back,
                 const struct rolled_tables *tables, const struct push_stream *entry,
                 uint64_t now_ns)
{
    const struct push_number id = pushers_number_of(entry);
    uint32_t i = pushers_find(pushers, &id);
    if (i == 0 ? back->brings_unknown : has_no_table(&pushers->sets[i]))
        i = pushers_put(pushers, entry, &tables->own, now_ns);
    if (i == 0 || concern_of(&pushers->sets[i], tables) != CONCERNS_ALL)
        return;
    pushers->streams[i].last = entry->last;
    pushers->streams[i].is_rolled = true;
}

static void forget_others(struct pushers *pushers, uint32_t i, const void *arg)
{
    const struct rolled_tables *tables = arg;
    struct pusher_stream *s = &pushers->streams[i];
    bool goes = !s->is_rolled && concern_of(&pushers->sets[i], tables) != CONCERNS_NOTHING;
    s->is_rolled = false;
    if (goes)
        pushers_forget(pushers, i);
}

void pushers_roll_back(struct pushers *pushers, const struct rollback *back,
                       const struct rolled_tables *tables, uint64_t now_ns)
{
    bool has_own = table_set_meets(&tables->own, &tables->own);
    for (uint32_t i = 0; i < back->n && has_own; i++)
        take(pushers, back, tables, &back->list[i], now_ns);
    pushers_each(pushers, forget_others, tables);
}
