/* deposing.c - see deposing.h. */
#include "server/service/deposing.h"

#include <stdio.h>
#include <stdlib.h>

#include "server/follow/follower.h"
#include "server/follow/note.h"
#include "server/log/log.h"
#include "server/service/state.h"

int deposing_promote(struct shard *shard, struct note *note, struct embd__error *e)
{
    if (note->state == NOTE_PROMOTED)
        return EMBD_OK;
    if (note->state != NOTE_FOLLOWS)
        return embd__error_set(e, EMBD_INVALID,
                               "promote: data_dir '%s' is no follower's that has a base",
                               shard->config.data_dir);
    note->state = NOTE_PROMOTED;
    note->epoch++;
    if (note_write(shard->data_dir, shard->config.index, note, e) != EMBD_OK)
        return e->status;
    log_event(LOG_WARN, "promoted", "shard=%u epoch=%llu", shard->config.index,
              (unsigned long long)note->epoch);
    return EMBD_OK;
}

/* ---- telling the other server ---- */

static void tell(struct shard *shard)
{
    struct follow_ask ask = {.epoch = shard->epoch};
    snprintf(ask.name, sizeof ask.name, "%s", shard->config.addresses[shard->config.index]);
    snprintf(ask.cluster, sizeof ask.cluster, "%s", shard->config.cluster_name);
    follower_ask(shard->teller, &ask);
}

int deposing_begin(struct shard *shard, struct embd__error *e)
{
    struct follower_config config = *shard->config.follow;
    config.shard = shard->config.index;
    config.n_shards = shard->config.n_shards;
    config.wake = shard->config.wake;
    config.wake_arg = shard->config.wake_arg;
    if (follower_open(&config, &shard->teller, e) == EMBD_OK)
        tell(shard);
    return e->status;
}

/* One that has heard refuses the question. */
void deposing_look(struct shard *shard)
{
    struct follower_answer answer;
    if (!follower_take(shard->teller, &answer))
        return;
    free(answer.bytes);
    if (answer.error.status != EMBD_INVALID) {
        tell(shard);
        return;
    }
    log_event(LOG_INFO, "deposed_other", "shard=%u server=%s said=\"%.200s\"", shard->config.index,
              shard->config.follow->address, answer.error.text);
    deposing_close(shard);
}

void deposing_close(struct shard *shard)
{
    follower_close(shard->teller);
    shard->teller = NULL;
}

/* ---- being told ---- */

int deposing_heed(struct shard *shard, const struct follow_ask *ask, struct embd__error *e)
{
    struct embd__error own = {.status = EMBD_OK};
    const struct note note = {.state = NOTE_DEPOSED, .epoch = ask->epoch};
    shard->is_deposed = shard->is_loading = true;
    shard->epoch = ask->epoch;
    if (note_write(shard->data_dir, shard->config.index, &note, &own) != EMBD_OK)
        log_event(LOG_ERROR, "deposed_not_noted", "shard=%u why=\"%s\"", shard->config.index,
                  own.text);
    log_event(LOG_ERROR, "deposed",
              "shard=%u epoch=%llu by=%s why=\"that server was promoted in the place of this one, "
              "which serves nothing any more\"",
              shard->config.index, (unsigned long long)ask->epoch, ask->name);
    return embd__error_set(e, EMBD_INVALID,
                           "follow epoch: %llu is greater than this server's: it serves no more",
                           (unsigned long long)ask->epoch);
}
