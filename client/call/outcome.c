/* outcome.c - what became of a call, by its messages (client/core/outcomes.h). Openings of a
 * pusher's stream, which come first, are not listed: if one was refused, so is the push behind
 * it. */
#include "client/call/call.h"
#include "client/core/outcomes.h"

/* For the shard whose messages begin at number *at, which moves behind them. */
static struct shard_outcome next_outcome(const struct embd_call *call, uint32_t *at)
{
    uint32_t shard = call->messages[*at]->shard;
    struct shard_outcome all = embd__outcome_of(shard, &call->messages[(*at)++]->x);
    for (; *at < call->n_messages && call->messages[*at]->shard == shard; ++*at) {
        struct shard_outcome one = embd__outcome_of(shard, &call->messages[*at]->x);
        bool in_part = (one.outcome == APPLIED) != (all.outcome == APPLIED);
        if (all.outcome == UNKNOWN || one.outcome == UNKNOWN)
            all = (struct shard_outcome){shard, UNKNOWN, EMBD_OK};
        else if (in_part)
            all = (struct shard_outcome){shard, APPLIED_IN_PART, EMBD_OK};
    }
    return all;
}

/* list [LIMIT_SHARDS]. */
static uint32_t list_outcomes(const struct embd_call *call, struct shard_outcome *list)
{
    uint32_t n = 0;
    for (uint32_t at = call->n_openings; at < call->n_messages;)
        list[n++] = next_outcome(call, &at);
    return n;
}

bool embd__call_is_moved(const struct embd_call *call)
{
    for (uint32_t i = 0; i < call->n_messages; i++)
        if (call->messages[i]->x.error.status == EMBD_MOVED)
            return true;
    return false;
}

bool embd__call_is_parted(const struct embd_call *call)
{
    bool is_moved = false, is_taken = false;
    for (uint32_t i = call->n_openings; i < call->n_messages; i++) {
        struct shard_outcome one = embd__outcome_of(0, &call->messages[i]->x);
        is_moved = is_moved || (one.outcome == REFUSED && one.status == EMBD_MOVED);
        is_taken = is_taken || one.outcome == APPLIED || one.outcome == UNKNOWN;
    }
    return call->kind == PARTS_PUSH && is_moved && is_taken;
}

int embd__call_outcome(struct embd_call *call)
{
    struct embd__error *e = &call->client->error;
    const struct embd__error *first = NULL;
    struct shard_outcome list[LIMIT_SHARDS];
    for (uint32_t i = 0; i < call->n_messages && first == NULL; i++)
        if (call->messages[i]->x.error.status != EMBD_OK)
            first = &call->messages[i]->x.error;
    if (first == NULL)
        return EMBD_OK;
    if (call->kind == PARTS_PULL)
        return embd__error_set(e, first->status, "%s", first->text);
    return embd__outcomes_say(e, first, list, list_outcomes(call, list),
                              embd__call_is_parted(call) ? PARTED_MOVED : NULL);
}
