/* moving_erase.c - keys that are other shards' are erased, some at a time.
 *
 * The happy path: keys of one table gather until they are enough; an operation that the journal has
 * like any other erases them. No request names such keys, so pushes go on beside it, and its record
 * waits for no sync of its own: what a crash loses of it is found again, since the data directory
 * notes that there may be some until all have gone. What can fail: the record is not written, and
 * the keys are erased later. Where the calls of a store end later than they begin, and where
 * something waits for the shard to be at rest, changes wait for a moment, as they do for a
 * compaction to begin. */
#include <stddef.h>

#include "server/service/moving.h"
#include "server/service/state.h"

#define FULL_KEYS (MOVE_ERASE_KEYS * 3 / 4) /* so many are enough */
#define AGAIN_NS  100000000u                /* after a record that the disk did not take */

/* ---- keys that gather ---- */

bool moving_erase_is_full(const struct moving_erase *erase)
{
    return erase->n >= FULL_KEYS;
}

struct moving_erase *moving_erase_for(struct moving *moving, struct table *table)
{
    struct moving_erase *unused = NULL;
    for (uint32_t i = 0; i < MOVE_ERASES; i++) {
        struct moving_erase *erase = &moving->erases[i];
        if (erase->n == 0)
            unused = erase;
        else if (!erase->is_on && !moving_erase_is_full(erase) && erase->table == table &&
                 erase->instance == table->instance)
            return erase;
    }
    if (unused != NULL) {
        unused->table = table;
        unused->instance = table->instance;
    }
    return unused;
}

bool moving_erases(const struct moving *moving)
{
    for (uint32_t i = 0; i < MOVE_ERASES; i++)
        if (moving->erases[i].n > 0)
            return true;
    return false;
}

/* ---- at rest ---- */

bool moving_stop_resting(struct moving *moving)
{
    bool rested = moving->rests;
    moving->rests = false;
    return rested;
}

void moving_erase_later(struct shard *shard)
{
    shard->moving.erase_again_ns = shard->now_ns + AGAIN_NS;
}

/* Not under a hold, which lets pushes in that others have. */
static bool may_erase(const struct shard *shard)
{
    return !hold_is_on(&shard->hold) && shard->now_ns >= shard->moving.erase_again_ns;
}

bool moving_at_rest(struct shard *shard, bool *rested_out, void (*submit_it)(struct shard *shard))
{
    struct moving *moving = &shard->moving;
    bool may = may_erase(shard);
    if (may && shard_n_in_flight(shard) > 0) {
        moving->rests = true;
        return false;
    }
    *rested_out = moving_stop_resting(moving);
    if (may)
        submit_it(shard);
    return may;
}

/* Nothing waits for the shard to be at rest. */
static bool goes_beside(const struct shard *shard)
{
    return !shard->engine.tables.ops->caps.is_async && !shard->moving.rests &&
           shard->hold.first == NULL && !shard->commit.is_alone && !shard->commit.settles &&
           !shard->engine.set.is_on && shard->engine.n_in_flight == 0 &&
           shard->compacting.state != COMPACTING_RESTS && shard->mark.state != MARK_RESTS;
}

/* ---- erasing ---- */

static struct moving_erase *erase_of(struct op *op)
{
    return (struct moving_erase *)(void *)((char *)op - offsetof(struct moving_erase, op));
}

/* A record that the disk does not take is written again: the keys stay. */
static void on_erased(struct op *op)
{
    struct shard *shard = op->engine->arg;
    struct moving_erase *erase = erase_of(op);
    erase->is_on = false;
    if (op->error.status != EMBD_OK) {
        moving_erase_later(shard);
        return;
    }
    shard->moving.n_swept += erase->n;
    erase->n = 0;
}

static void begin_erase(struct shard *shard, struct moving_erase *erase)
{
    struct op *op = &erase->op;
    struct embd__error e = {.status = EMBD_OK};
    op_begin(op, &shard->engine, OP_ERASE);
    if (op_size_parts(op, 1, &e) != EMBD_OK) {
        moving_erase_later(shard);
        return;
    }
    bool has_slots = erase->table->schema.s.partition == EMBD_PARTITION_SLOT;
    op->parts[0].table = erase->table;
    op->parts[0].in = (struct part){.table = erase->table->id,
                                    .n_keys = erase->n,
                                    .n_rows = erase->n,
                                    .keys = erase->keys,
                                    .slots = has_slots ? erase->slots : NULL};
    op->is_unnamed = !shard->engine.tables.ops->caps.is_async;
    op->done = on_erased;
    op->now_ns = shard->now_ns;
    erase->is_on = true;
    if (engine_admit(op) == EMBD_OK && commit_submit(&shard->commit, op, NULL, &e) >= EMBD_OK)
        return;
    erase->is_on = false;
    moving_erase_later(shard);
}

/* The table may have gone with its keys. */
static bool has_table(const struct shard *shard, const struct moving_erase *erase)
{
    const struct tables *tables = &shard->engine.tables;
    for (uint32_t i = 0; i < tables->n; i++)
        if (tables->by_name[i] == erase->table)
            return tables->by_name[i]->instance == erase->instance;
    return false;
}

static struct moving_erase *find_next(struct shard *shard, bool all)
{
    for (uint32_t i = 0; i < MOVE_ERASES; i++) {
        struct moving_erase *erase = &shard->moving.erases[i];
        if (erase->n > 0 && !erase->is_on && !has_table(shard, erase))
            erase->n = 0;
        if (erase->n > 0 && !erase->is_on && (all || moving_erase_is_full(erase)))
            return erase;
    }
    return NULL;
}

static void submit_any(struct shard *shard)
{
    struct moving_erase *erase = find_next(shard, true);
    if (erase != NULL)
        begin_erase(shard, erase);
}

bool moving_erase_begin(struct shard *shard, bool all, bool *rested_out)
{
    struct moving_erase *erase = find_next(shard, all);
    if (erase == NULL) {
        *rested_out = moving_stop_resting(&shard->moving);
        return all && !moving_erases(&shard->moving);
    }
    if (!goes_beside(shard))
        return moving_at_rest(shard, rested_out, submit_any);
    if (may_erase(shard))
        begin_erase(shard, erase);
    return may_erase(shard);
}
