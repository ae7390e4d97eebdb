/* deposing.c - see deposing.h. */
#include "server/service/deposing.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/follow/follower.h"
#include "server/follow/note.h"
#include "server/log/log.h"
#include "server/service/state.h"

#define HEARD "follow epoch:" /* the answer of a server that has heard has this */

static int check_shard(const char *data_dir, int dir, uint32_t shard, struct embd__error *e)
{
    struct note note;
    if (note_read(dir, shard, &note, e) != EMBD_OK || note.state == NOTE_FOLLOWS ||
        note.state == NOTE_PROMOTED)
        return e->status;
    return embd__error_set(e, EMBD_INVALID,
                           "promote: shard %u of data_dir '%s' is no follower's that has a base; "
                           "nothing was promoted",
                           shard, data_dir);
}

int deposing_check(const char *data_dir, uint32_t n_shards, struct embd__error *e)
{
    int dir = open(data_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return embd__error_set(e, EMBD_IO, "promote: data_dir '%s': %s", data_dir, strerror(errno));
    for (uint32_t i = 0; i < n_shards && e->status == EMBD_OK; i++)
        check_shard(data_dir, dir, i, e);
    close(dir);
    return e->status;
}

int deposing_promote(struct shard *shard, struct note *note, struct embd__error *e)
{
    if (note->state == NOTE_PROMOTED)
        return EMBD_OK;
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

/* One that has heard refuses the question; what else is wrong with it may be so of another server
 * at that address. */
static bool has_heard(const struct embd__error *e)
{
    return e->status == EMBD_INVALID && strstr(e->text, HEARD) != NULL;
}

void deposing_look(struct shard *shard)
{
    struct follower_answer answer;
    if (!follower_take(shard->teller, &answer))
        return;
    free(answer.bytes);
    if (!has_heard(&answer.error)) {
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
    note_write(shard->data_dir, shard->config.index, &note, &own);
    log_event(LOG_ERROR, "deposed",
              "shard=%u epoch=%llu by=%s why=\"that server was promoted in the place of this one, "
              "which serves nothing any more\"",
              shard->config.index, (unsigned long long)ask->epoch, ask->name);
    if (own.status != EMBD_OK) { /* it is to be told after its next start, too */
        log_event(LOG_ERROR, "deposed_not_noted", "shard=%u why=\"%s\"", shard->config.index,
                  own.text);
        return embd__error_set(e, own.status, "%s", own.text);
    }
    return embd__error_set(e, EMBD_INVALID,
                           HEARD " %llu is greater than this server's: it serves no more",
                           (unsigned long long)ask->epoch);
}
