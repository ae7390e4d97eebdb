/* moving_sweep.c - rows of keys that are other shards' go, when no move is under way.
 *
 * The happy path: each table's keys are listed, some at a time, while it changes; those that are
 * not this shard's are erased (moving_erase.c). Where keys wait for admission, which are not
 * listed, and on GPUs, a cut of the table is read instead. When all tables were read, a record says
 * so, and the data directory's note goes. A shard that lost no key in the move reads nothing. What
 * can fail: there is no memory for a block, or the table is frozen for something else: it is tried
 * again. */
#include <stdlib.h>
#include <string.h>

#include "server/engine/block.h"
#include "server/identity/identity.h"
#include "server/log/log.h"
#include "server/service/moving.h"
#include "server/service/state.h"

#define BLOCK_BYTES (256u << 10) /* of a cut, at once */
#define LIST_NS     30000u       /* of keys that are listed, between two looks for requests */

/* ---- keys that are listed ---- */

static void begin_table(struct shard *shard, const struct table *table)
{
    struct moving *moving = &shard->moving;
    const struct store_ops *ops = shard->engine.tables.ops;
    struct store_stats stats;
    if (moving->listed == table->instance)
        return;
    ops->stats(table->store, &stats);
    moving->listed = table->instance;
    moving->cursor = 0;
    moving->scans = ops->caps.is_async || stats.candidates > 0;
}

/* More keys at one place than there is room for: the rows have to be read. */
static void list_some(struct shard *shard, struct table *table, struct moving_erase *erase)
{
    struct moving *moving = &shard->moving;
    struct embd__error e = {.status = EMBD_OK};
    bool has_slots = table->schema.s.partition == EMBD_PARTITION_SLOT;
    struct store_scan scan = {.keys = erase->keys + erase->n,
                              .slots = has_slots ? erase->slots + erase->n : NULL};
    moving->scans =
        shard->engine.tables.ops->list(table->store, &moving->cursor, MOVE_ERASE_KEYS - erase->n,
                                       &scan, &e) != EMBD_OK;
    if (moving->scans)
        return;
    moving->n_looked_at += scan.n_rows;
    moving_keep_foreign(shard, table, shard->config.placement, &scan);
    erase->n += scan.n_rows;
    moving->is_read = moving->cursor == UINT64_MAX;
}

static bool list_keys(struct shard *shard, struct table *table, struct moving_erase *erase)
{
    const struct moving *moving = &shard->moving;
    uint64_t until_ns = clock_ns() + LIST_NS;
    do
        list_some(shard, table, erase);
    while (!moving->is_read && !moving->scans && !moving_erase_is_full(erase) &&
           clock_ns() < until_ns);
    return true;
}

/* ---- rows of a cut ---- */

/* Rows and candidates are one list. */
static void add_keys(struct moving_erase *erase, const uint64_t *keys, const uint16_t *slots,
                     uint32_t n)
{
    memcpy(erase->keys + erase->n, keys, n * sizeof *keys);
    if (slots != NULL)
        memcpy(erase->slots + erase->n, slots, n * sizeof *slots);
    erase->n += n;
}

static uint32_t rows_for(const struct table *table, const struct moving_erase *erase)
{
    uint32_t n = block_rows_in(&table->schema.s, BLOCK_BYTES), room = MOVE_ERASE_KEYS - erase->n;
    return n == 0 ? 1 : n < room ? n : room;
}

static bool read_block(struct shard *shard, struct table *table, struct moving_erase *erase)
{
    struct moving *moving = &shard->moving;
    struct embd__error e = {.status = EMBD_OK};
    struct store_scan scan;
    uint32_t max_rows = rows_for(table, erase);
    struct subscriber *s = moving_subscriber(shard, &moving->own, table, &e);
    void *block = s != NULL ? block_new(&table->schema.s, max_rows, &scan) : NULL;
    bool is_read = block != NULL && moving_scan(shard, s, table, max_rows, &scan, &e);
    if (is_read) {
        moving->n_looked_at += scan.n_rows + scan.n_candidates;
        moving_keep_foreign(shard, table, shard->config.placement, &scan);
        add_keys(erase, scan.keys, scan.slots, scan.n_rows);
        add_keys(erase, scan.candidate_keys, scan.candidate_slots, scan.n_candidates);
    }
    free(block);
    if (is_read && moving->is_read)
        subscriber_end(shard, s);
    return is_read;
}

/* Whether there is more to do now. */
static bool read_some(struct shard *shard, struct table *table)
{
    struct moving_erase *erase = moving_erase_for(&shard->moving, table);
    if (erase == NULL)
        return false;
    begin_table(shard, table);
    return shard->moving.scans ? read_block(shard, table, erase) : list_keys(shard, table, erase);
}

/* ---- the end of it ---- */

static void end(struct shard *shard)
{
    struct moving *moving = &shard->moving;
    moving->has_foreign = moving->is_swept = shard->engine.placed.is_foreign = false;
    log_event(LOG_INFO, "moved_rows_removed", "shard=%u keys=%llu of=%llu", shard->config.index,
              (unsigned long long)moving->n_swept, (unsigned long long)moving->n_looked_at);
    moving->n_swept = moving->n_looked_at = 0;
    if (shard->config.identity != NULL)
        identity_move_ends(shard->config.identity);
}

static void on_told(struct op *op)
{
    struct shard *shard = op->engine->arg;
    shard->moving.is_telling = false;
    if (op->error.status == EMBD_OK)
        end(shard);
    else
        moving_erase_later(shard);
}

/* A record says that all rows are of the shard's own keys: followers heed it. */
static void submit_end(struct shard *shard)
{
    struct moving *moving = &shard->moving;
    struct op *op = &moving->told;
    struct embd__error e = {.status = EMBD_OK};
    op_begin(op, &shard->engine, OP_PREPARE);
    op->as.replace = (struct op_replace){.decision = shard->engine.placed.decision,
                                         .step = REPLACE_PLACED,
                                         .place = shard->config.placement};
    op->done = on_told;
    op->now_ns = shard->now_ns;
    moving->is_telling = true;
    if (engine_admit(op) == EMBD_OK && commit_submit(&shard->commit, op, NULL, &e) >= EMBD_OK)
        return;
    moving->is_telling = false;
    moving_erase_later(shard);
}

static bool tell(struct shard *shard, bool *rested_out)
{
    if (shard->commit.journal != NULL && !shard_joins(shard))
        return moving_at_rest(shard, rested_out, submit_end);
    *rested_out = moving_stop_resting(&shard->moving);
    end(shard);
    return false;
}

/* Which keys are others' is not decided before the move is. A follower's records remove them. */
static bool may_sweep(const struct shard *shard)
{
    const struct moving *moving = &shard->moving;
    return moving->has_foreign && moving->mover == NULL && !moving->is_telling &&
           shard->engine.prepared.id == 0 && shard->following == NULL && !shard->is_loading &&
           !shard->draining && shard->config.placement != NULL;
}

bool moving_collect(struct shard *shard, bool *rested_out)
{
    struct moving *moving = &shard->moving;
    if (!may_sweep(shard)) {
        *rested_out = moving_stop_resting(moving);
        return moving_read_go_on(shard);
    }
    moving_keep(shard);
    struct table *table = moving->is_swept ? NULL : moving_table(shard);
    moving->is_swept = table == NULL;
    if (table == NULL && !moving_erases(moving))
        return tell(shard, rested_out);
    bool reads = table != NULL && read_some(shard, table);
    /* Few keys of many tables: none is full, and none takes more. */
    bool is_stuck = table != NULL && moving_erase_for(moving, table) == NULL;
    return moving_erase_begin(shard, table == NULL || is_stuck, rested_out) || reads;
}

/* ---- the end ---- */

void moving_leave(struct shard *shard, const struct shard_session *session)
{
    struct moving *moving = &shard->moving;
    if (moving->mover != session)
        return;
    moving->mover = NULL;
    if (!moving->is_swept) /* it may have the map already, and nothing of others' */
        moving_read_anew(moving);
}

void moving_close(struct shard *shard)
{
    for (uint32_t i = 0; i < MOVE_ERASES; i++)
        op_fini(&shard->moving.erases[i].op);
    op_fini(&shard->moving.told);
}
