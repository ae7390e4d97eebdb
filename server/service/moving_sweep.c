/* moving_sweep.c - rows of keys that are other shards' go, when no move is under way.
 *
 * The happy path: each table is frozen and read, block by block; the keys that are not this shard's
 * are erased, by operations that the journal has like any other. For a moment changes wait for
 * that, as they do for a compaction to begin. When all tables were read, a record says so, and the
 * data directory's note goes. What can fail: there is no memory for a block, or the table is frozen
 * for something else: it is tried again. */
#include <stdlib.h>

#include "server/engine/block.h"
#include "server/identity/identity.h"
#include "server/log/log.h"
#include "server/service/moving.h"
#include "server/service/state.h"

#define SWEEP_BYTES (256u << 10) /* of a block */
#define SWEEP_ROWS  1024u        /* of a block: some 100 us of erasing */
#define AGAIN_NS    100000000u   /* after a record that the disk did not take */

/* Whether changes waited, which may go on. */
static bool stop_resting(struct moving *moving)
{
    bool rested = moving->rests;
    moving->rests = false;
    return rested;
}

/* ---- erasing ---- */

static void not_erasing(struct shard *shard)
{
    shard->moving.is_erasing = false;
    shard->moving.erase_again_ns = shard->now_ns + AGAIN_NS;
}

/* A record that the disk does not take is written again: the keys stay. */
static void on_erased(struct op *op)
{
    struct shard *shard = op->engine->arg;
    struct moving *moving = &shard->moving;
    if (op->error.status != EMBD_OK) {
        not_erasing(shard);
        return;
    }
    moving->is_erasing = false;
    moving->n_swept += moving->n_keys;
    moving_drop_keys(moving);
}

static void submit_erase(struct shard *shard)
{
    struct moving *moving = &shard->moving;
    struct op *op = &moving->erase;
    struct embd__error e = {.status = EMBD_OK};
    op_begin(op, &shard->engine, OP_ERASE);
    if (op_size_parts(op, 1, &e) != EMBD_OK) {
        not_erasing(shard);
        return;
    }
    op->parts[0].table = moving->swept;
    op->parts[0].in = (struct part){.table = moving->swept->id,
                                    .n_keys = moving->n_keys,
                                    .n_rows = moving->n_keys,
                                    .keys = moving->keys,
                                    .slots = moving->slots};
    op->done = on_erased;
    op->now_ns = shard->now_ns;
    moving->is_erasing = true;
    if (engine_admit(op) != EMBD_OK || commit_submit(&shard->commit, op, NULL, &e) < EMBD_OK)
        not_erasing(shard);
}

/* The table may have gone with its keys. */
static bool has_table(const struct shard *shard)
{
    const struct tables *tables = &shard->engine.tables;
    for (uint32_t i = 0; i < tables->n; i++)
        if (tables->by_name[i] == shard->moving.swept)
            return tables->by_name[i]->instance == shard->moving.swept_instance;
    return false;
}

/* Not under a hold, which lets pushes in that others have. */
static bool may_erase(const struct shard *shard)
{
    return !hold_is_on(&shard->hold) && shard->now_ns >= shard->moving.erase_again_ns;
}

/* Changes wait until those under way have ended. True: there is more to do now. */
static bool at_rest(struct shard *shard, bool *rested_out, void (*submit_it)(struct shard *shard))
{
    struct moving *moving = &shard->moving;
    bool may = may_erase(shard);
    if (may && shard_n_in_flight(shard) > 0) {
        moving->rests = true;
        return false;
    }
    *rested_out = stop_resting(moving);
    if (may)
        submit_it(shard);
    return may;
}

static bool erase(struct shard *shard, bool *rested_out)
{
    struct moving *moving = &shard->moving;
    if (has_table(shard))
        return at_rest(shard, rested_out, submit_erase);
    moving_drop_keys(moving);
    *rested_out = stop_resting(moving);
    return true;
}

/* ---- reading ---- */

/* Rows and candidates are one list. */
static void take_keys(struct moving *moving, const struct store_scan *scan)
{
    uint32_t n = scan->n_rows;
    for (uint32_t i = 0; i < scan->n_candidates; i++) {
        moving->keys[n + i] = scan->candidate_keys[i];
        if (moving->slots != NULL)
            moving->slots[n + i] = scan->candidate_slots[i];
    }
    moving->n_keys = n + scan->n_candidates;
}

static bool read_block(struct shard *shard, struct table *table)
{
    struct moving *moving = &shard->moving;
    struct embd__error e = {.status = EMBD_OK};
    struct store_scan scan;
    struct subscriber *s = moving_subscriber(shard, &moving->own, table, &e);
    uint32_t max_rows = block_rows_in(&table->schema.s, SWEEP_BYTES);
    max_rows = max_rows == 0 ? 1 : max_rows < SWEEP_ROWS ? max_rows : SWEEP_ROWS;
    moving->block = s != NULL ? block_new(&table->schema.s, max_rows, &scan) : NULL;
    if (moving->block == NULL || !moving_scan(shard, s, table, max_rows, &scan, &e)) {
        moving_drop_keys(moving);
        return false;
    }
    moving_keep_foreign(shard, table, shard->config.placement, &scan);
    moving->swept = table;
    moving->swept_instance = table->instance;
    moving->keys = scan.keys; /* it has room for as many as are read together */
    moving->slots = scan.slots;
    take_keys(moving, &scan);
    if (moving->n_keys == 0)
        moving_drop_keys(moving);
    if (moving->is_read)
        subscriber_end(shard, s);
    return true;
}

/* ---- the end of it ---- */

static void end(struct shard *shard)
{
    struct moving *moving = &shard->moving;
    moving->has_foreign = moving->is_swept = shard->engine.placed.is_foreign = false;
    log_event(LOG_INFO, "moved_rows_removed", "shard=%u keys=%llu", shard->config.index,
              (unsigned long long)moving->n_swept);
    moving->n_swept = 0;
    if (shard->config.identity != NULL)
        identity_move_ends(shard->config.identity);
}

static void on_told(struct op *op)
{
    struct shard *shard = op->engine->arg;
    if (op->error.status != EMBD_OK) {
        not_erasing(shard);
        return;
    }
    shard->moving.is_erasing = false;
    end(shard);
}

/* A record says that all rows are of the shard's own keys: followers heed it. */
static void submit_end(struct shard *shard)
{
    struct moving *moving = &shard->moving;
    struct op *op = &moving->erase;
    struct embd__error e = {.status = EMBD_OK};
    op_begin(op, &shard->engine, OP_PREPARE);
    op->as.replace = (struct op_replace){.decision = shard->engine.placed.decision,
                                         .step = REPLACE_PLACED,
                                         .place = shard->config.placement};
    op->done = on_told;
    op->now_ns = shard->now_ns;
    moving->is_erasing = true;
    if (engine_admit(op) != EMBD_OK || commit_submit(&shard->commit, op, NULL, &e) < EMBD_OK)
        not_erasing(shard);
}

/* Which keys are others' is not decided before the move is. A follower's records remove them. */
static bool may_sweep(const struct shard *shard)
{
    const struct moving *moving = &shard->moving;
    return moving->has_foreign && moving->mover == NULL && !moving->is_erasing &&
           shard->engine.prepared.id == 0 && shard->following == NULL && !shard->is_loading &&
           !shard->draining && shard->config.placement != NULL;
}

bool moving_collect(struct shard *shard, bool *rested_out)
{
    struct moving *moving = &shard->moving;
    if (!may_sweep(shard)) {
        *rested_out = stop_resting(moving);
        return false;
    }
    moving_keep(shard);
    if (moving->block != NULL)
        return erase(shard, rested_out);
    if (moving->is_swept)
        return at_rest(shard, rested_out, submit_end);
    *rested_out = stop_resting(moving);
    struct table *table = moving_table(shard);
    if (table != NULL)
        return read_block(shard, table);
    moving->is_swept = shard->commit.journal != NULL && !shard_joins(shard);
    if (!moving->is_swept)
        end(shard);
    return moving->is_swept;
}

/* ---- the end ---- */

void moving_leave(struct shard *shard, const struct shard_session *session)
{
    struct moving *moving = &shard->moving;
    if (moving->mover != session)
        return;
    moving->mover = NULL;
    moving_read_anew(moving);
}

void moving_close(struct shard *shard)
{
    moving_drop_keys(&shard->moving);
    op_fini(&shard->moving.erase);
}
