/* staging.c - see staging.h.
 *
 * The happy path: a loader stages tables (handle_stage.c) and loads them; the coordinator's
 * connection holds changes on all shards, checks and applies (handle_replace.c). A loader that
 * leaves before the check ends its set, and so does a start. A coordinator that leaves behind the
 * check gives the set back to its loader. */
#include "server/service/staging.h"

#include <stdlib.h>
#include <string.h>

#include "server/engine/staged.h"
#include "server/log/log.h"
#include "server/service/state.h"

void staging_forget_streams(struct staging *staging)
{
    for (int kind = 0; kind < 2; kind++) {
        free(staging->streams[kind]);
        staging->streams[kind] = NULL;
        staging->n_streams[kind] = 0;
    }
}

void staging_fini(struct shard *shard)
{
    staging_forget_streams(&shard->staging);
    op_fini(&shard->staging.end);
}

static bool is_replacing(const struct staging *staging)
{
    return staging->replacer != NULL && staging->replacer->holds;
}

bool staging_stops_hold(const struct shard *shard, const struct shard_session *session)
{
    return is_replacing(&shard->staging) && shard->staging.replacer != session;
}

void staging_leave(struct shard *shard, const struct shard_session *session)
{
    struct staging *staging = &shard->staging;
    if (staging->loader == session)
        staging->loader = NULL;
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
static void end_set(struct shard *shard)
{
    struct staging *staging = &shard->staging;
    struct op *op = &staging->end;
    struct embd__error e = {.status = EMBD_OK};
    op_begin(op, &shard->engine, OP_UNSTAGE);
    op->as.unstaged = shard->engine.tables.staged.id;
    op->done = on_ended;
    staging_forget_streams(staging);
    staging->is_ending = true;
    if (engine_admit(op) != EMBD_OK || commit_submit(&shard->commit, op, NULL, &e) < EMBD_OK)
        staging->is_ending = false;
}

void staging_look(struct shard *shard)
{
    const struct staging *staging = &shard->staging;
    bool is_left = shard->engine.tables.staged.id != 0 && staging->loader == NULL &&
                   !is_replacing(staging) && !staging->is_ending;
    if (is_left && may_end(shard))
        end_set(shard);
}
