/* staging.c - see staging.h.
 *
 * The happy path: a loader stages tables (handle_stage.c) and loads them; the coordinator's
 * connection holds changes on all shards, checks and applies (handle_replace.c). A loader that
 * leaves before the check ends its set, and so does a start. A coordinator that leaves behind the
 * check gives the set back to its loader; where the shard has prepared, shard 0 decides (doubt.c).
 */
#include "server/service/staging.h"

#include <stdlib.h>
#include <string.h>

#include "server/engine/staged.h"
#include "server/log/log.h"
#include "server/service/state.h"

struct staging_set *staging_find(struct staging *staging, uint64_t id)
{
    for (uint32_t i = 0; i < STAGED_SETS; i++)
        if (staging->sets[i].id == id)
            return &staging->sets[i];
    return NULL;
}

uint32_t staging_of_trainers(const struct staging *staging)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < STAGED_SETS; i++)
        n += staging->sets[i].id != 0 && staging->sets[i].principal != 0;
    return n;
}

void staging_forget(struct staging_set *set)
{
    free(set->streams[0]);
    free(set->streams[1]);
    *set = (struct staging_set){.id = 0};
}

void staging_fini(struct shard *shard)
{
    for (uint32_t i = 0; i < STAGED_SETS; i++)
        staging_forget(&shard->staging.sets[i]);
    op_fini(&shard->staging.end);
    op_fini(&shard->staging.settle);
}

static bool is_replacing(const struct staging *staging)
{
    return staging->replacer != NULL && staging->replacer->holds;
}

bool staging_is_checked(const struct staging *staging, uint64_t id)
{
    return is_replacing(staging) && staging->checked == id;
}

bool staging_stops_hold(const struct shard *shard, const struct shard_session *session)
{
    bool is_taken = is_replacing(&shard->staging) || shard->engine.prepared.id != 0;
    return is_taken && shard->staging.replacer != session;
}

void staging_lock(struct shard *shard)
{
    struct hold *hold = &shard->hold;
    hold->is_locked = shard->engine.prepared.id != 0;
    hold->stops_reads = shard->engine.prepared.place != NULL;
    if (!hold_is_on(hold))
        hold->waiting_since_ns = 0;
}

/* A set whose first table was refused is none. */
static void lose_loader(struct shard *shard, struct staging_set *set)
{
    set->loader = NULL;
    if (staged_set(&shard->engine.tables, set->id) == NULL)
        staging_forget(set);
}

void staging_forget_gone(struct shard *shard)
{
    for (uint32_t i = 0; i < STAGED_SETS; i++) {
        struct staging_set *set = &shard->staging.sets[i];
        if (set->id != 0 && set->loader == NULL)
            lose_loader(shard, set);
    }
}

void staging_leave(struct shard *shard, const struct shard_session *session)
{
    struct staging *staging = &shard->staging;
    for (uint32_t i = 0; i < STAGED_SETS; i++)
        if (staging->sets[i].loader == session)
            lose_loader(shard, &staging->sets[i]);
    if (staging->replacer == session)
        staging->replacer = NULL;
}

/* ---- a loader has left ---- */

static void on_ended(struct op *op)
{
    struct shard *shard = op->engine->arg;
    shard->staging.is_ending = false;
    if (op->error.status == EMBD_OK)
        log_event(LOG_WARN, "staged_tables_dropped",
                  "shard=%u id=%016llx why=\"their loader has left before they took their places\"",
                  shard->config.index, (unsigned long long)op->as.unstaged);
}

/* Nothing else is under way that it would have to wait for. */
static bool may_end(const struct shard *shard)
{
    return !shard->is_loading && !shard->draining && !hold_is_on(&shard->hold) &&
           shard_n_in_flight(shard) == 0 && shard->compacting.state != COMPACTING_RESTS;
}

/* A disk that takes no record is asked again at the next look. */
static void end_set(struct shard *shard, uint64_t id)
{
    struct staging *staging = &shard->staging;
    struct staging_set *set = staging_find(staging, id);
    struct op *op = &staging->end;
    struct embd__error e = {.status = EMBD_OK};
    op_begin(op, &shard->engine, OP_UNSTAGE);
    op->as.unstaged = id;
    op->done = on_ended;
    if (set != NULL)
        staging_forget(set);
    staging->is_ending = true;
    if (engine_admit(op) != EMBD_OK || commit_submit(&shard->commit, op, NULL, &e) < EMBD_OK)
        staging->is_ending = false;
}

/* Staged tables that a start found have no loader. */
static bool is_left(struct staging *staging, uint64_t id)
{
    const struct staging_set *set = staging_find(staging, id);
    return (set == NULL || set->loader == NULL) && !staging_is_checked(staging, id);
}

void staging_look(struct shard *shard)
{
    struct staging *staging = &shard->staging;
    const struct tables *tables = &shard->engine.tables;
    for (uint32_t i = 0; i < STAGED_SETS && !staging->is_ending && may_end(shard); i++)
        if (tables->staged[i] != NULL && is_left(staging, tables->staged[i]->id))
            end_set(shard, tables->staged[i]->id);
}
