/* doubt.c - see doubt.h.
 *
 * The happy path: a coordinator prepares a replacement on all shards but shard 0, whose record
 * decides, and then applies it on each (coordinator/cluster_replace.c). A shard that has prepared
 * changes nothing by itself. If its coordinator's hold ends, it asks shard 0, again and again, and
 * makes the replacement or withdraws it. So all shards have the new tables, or all the old ones.
 * A map of keys to shards takes the place of another one in the same way (moving.h).
 *
 * A coordinator prepares after shard 0's `check`, and nobody but that connection can apply there,
 * under its hold. So what shard 0 neither has, nor may still come to, will never be: it is refused.
 * The last decision is enough to remember: the next one is made after all shards were checked, and
 * none of them was in doubt. Of a follower a shard may be further behind than that: the decision of
 * the map is remembered too, and shards do not go by different ones (server/follow/maps.h). */
#include "server/service/doubt.h"

#include "server/journal/journal.h"
#include "server/log/log.h"
#include "server/service/recovery.h"

#define AGAIN_NS 100000000u

/* ---- shard 0 ---- */

/* Its record is being written, or its coordinator may ask for it. */
static bool may_be_made(const struct shard *shard, uint64_t decision)
{
    const struct staging *staging = &shard->staging;
    if (staging->deciding == decision && shard->commit.is_alone)
        return true;
    return staging_is_checked(staging, staging->checked) && staging->decision == decision;
}

/* With failover the server that takes this one's place has it, too. */
static bool is_kept(struct shard *shard, uint64_t decision)
{
    struct staging *staging = &shard->staging;
    if (!shard->engine.replicates_maps)
        return true;
    if (staging->kept != decision)
        staging->kept_from = journal_position(shard->commit.journal);
    staging->kept = decision;
    return shard->replicated.applied >= staging->kept_from;
}

enum decision staging_decide(struct shard *shard, uint64_t decision)
{
    struct staging *staging = &shard->staging;
    if (shard->is_loading)
        return DECISION_OPEN;
    if (shard->engine.decided == decision || shard->engine.placed.decision == decision)
        return is_kept(shard, decision) ? DECISION_MADE : DECISION_OPEN;
    if (may_be_made(shard, decision))
        return DECISION_OPEN;
    if (staging->decision == decision)
        staging->replacer = NULL; /* it must check again, with another number */
    staging->refused = decision;
    return DECISION_REFUSED;
}

/* ---- a shard in doubt ---- */

static void not_settled(struct staging *staging, uint64_t now_ns)
{
    staging->is_settling = false;
    staging->settle_again_ns = now_ns + AGAIN_NS;
}

static void on_settled(struct op *op)
{
    struct shard *shard = op->engine->arg;
    struct staging *staging = &shard->staging;
    const struct op_replace *replace = &op->as.replace;
    struct staging_set *set = staging_find(staging, replace->id);
    bool is_made = op->kind == OP_REPLACE, is_place = replace->place != NULL;
    if (op->error.status != EMBD_OK) {
        not_settled(staging, shard->now_ns);
        return;
    }
    staging->is_settling = false;
    staging_lock(shard);
    staging->is_doubt_told = false;
    staging->done = is_made ? replace->id : staging->done;
    if (is_made && set != NULL)
        staging_forget(set);
    log_event(LOG_INFO, "replacement_settled", "shard=%u id=%016llx %s=%s", shard->config.index,
              (unsigned long long)replace->id, is_place ? "placement" : "tables",
              is_made ? "new" : "old");
}

/* A refusal for now (a half-sent answer, a disk that takes no record) is tried again. */
static void settle(struct shard *shard, bool is_made)
{
    const struct prepared *prepared = &shard->engine.prepared;
    struct op *op = &shard->staging.settle;
    struct embd__error e = {.status = EMBD_OK};
    op_begin(op, &shard->engine, is_made ? OP_REPLACE : OP_PREPARE);
    op->as.replace = (struct op_replace){.id = prepared->id,
                                         .decision = prepared->decision,
                                         .step = is_made ? REPLACE_DONE : REPLACE_WITHDRAWN,
                                         .back = {prepared->back[0], prepared->back[1]},
                                         .place = prepared->place};
    op->now_ns = shard->now_ns;
    op->done = on_settled;
    shard->staging.is_settling = true;
    if (engine_admit(op) != EMBD_OK || commit_submit(&shard->commit, op, NULL, &e) < EMBD_OK)
        not_settled(&shard->staging, shard->now_ns);
}

/* Nothing else is under way that it would have to wait for. */
static bool may_settle(const struct shard *shard)
{
    return (!shard->is_loading || recovery_is_read(shard)) && !shard->draining &&
           !shard->has_failed && shard_n_in_flight(shard) == 0 && !shard->staging.is_settling &&
           shard->now_ns >= shard->staging.settle_again_ns &&
           shard->compacting.state != COMPACTING_RESTS;
}

static void tell(struct shard *shard)
{
    if (shard->staging.is_doubt_told)
        return;
    shard->staging.is_doubt_told = true;
    bool is_place = shard->engine.prepared.place != NULL;
    log_event(LOG_WARN, "replacement_in_doubt",
              "shard=%u id=%016llx why=\"%s, and the coordinator has left, or this server was "
              "started again: %s until shard 0 says whether they do; if that lasts, start the "
              "server of shard 0\"",
              shard->config.index, (unsigned long long)shard->engine.prepared.id,
              is_place ? "keys are prepared to move"
                       : "tables are prepared to take the places of others",
              shard->is_loading ? "the shard is not ready"
              : is_place        ? "changes and pulls wait"
                                : "changes wait");
}

/* Without a data directory nobody can be asked, and nothing outlives a process. */
static enum decision ask(const struct shard *shard)
{
    struct identity *identity = shard->config.identity;
    return identity == NULL ? DECISION_REFUSED
                            : identity_ask_decision(identity, shard->engine.prepared.decision);
}

static bool look_at_own(struct shard *shard)
{
    if (!doubt_is_on(shard) || !may_settle(shard))
        return false;
    tell(shard);
    enum decision is = ask(shard);
    if (is == DECISION_OPEN)
        return false;
    settle(shard, is == DECISION_MADE);
    return true;
}

bool doubt_look(struct shard *shard)
{
    struct identity *identity = shard->config.identity;
    uint64_t asked = identity != NULL ? identity_asked_decision(identity) : 0;
    if (asked != 0 && shard->config.index == 0)
        identity_tell_decision(identity, asked, staging_decide(shard, asked));
    return shard->following == NULL && look_at_own(shard);
}
