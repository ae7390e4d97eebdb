/* deposing.c - see deposing.h. */
#include "server/service/deposing.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/follow/failover.h"
#include "server/follow/follower.h"
#include "server/follow/note.h"
#include "server/identity/identity.h"
#include "server/log/log.h"
#include "server/service/gates.h"
#include "server/service/handle_round.h"
#include "server/service/state.h"

#define HEARD "follow epoch:" /* the answer of a server that has heard has this, */
#define TAKEN "follow who:"   /* and this, where another one was promoted before */

static int check_shard(const char *data_dir, int dir, uint32_t shard, struct embd__error *e)
{
    struct note note;
    if (note_read(dir, shard, &note, e) != EMBD_OK || note.state == NOTE_FOLLOWS ||
        note.state == NOTE_PROMOTED)
        return e->status;
    return embd__error_set(e, EMBD_INVALID,
                           "promote: shard %u of data_dir '%s' is not a follower that has a base; "
                           "nothing was promoted",
                           shard, data_dir);
}

static bool has_none(int dir, uint32_t shard)
{
    struct note note;
    struct embd__error ignored = {.status = EMBD_OK};
    return note_read(dir, shard, &note, &ignored) == EMBD_OK &&
           (note.state == NOTE_NONE || note.state == NOTE_BEGINS);
}

int deposing_check(const char *data_dir, uint32_t first, uint32_t n_shards, struct embd__error *e)
{
    int dir = open(data_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return embd__error_set(e, EMBD_IO, "promote: data_dir '%s': %s", data_dir, strerror(errno));
    uint32_t n = n_shards; /* those behind the last that has a base may be spare */
    while (n > 1 && has_none(dir, first + n - 1))
        n--;
    for (uint32_t i = 0; i < n && e->status == EMBD_OK; i++)
        check_shard(data_dir, dir, first + i, e);
    close(dir);
    return e->status;
}

bool deposing_is_half(const char *data_dir, uint32_t first, uint32_t n_shards)
{
    struct embd__error e = {.status = EMBD_OK};
    bool follows = false, is_promoted = false;
    int dir = open(data_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (uint32_t i = 0; i < n_shards && dir >= 0; i++) {
        struct note note;
        bool is_read = note_read(dir, first + i, &note, &e) == EMBD_OK;
        follows = follows || (is_read && note.state == NOTE_FOLLOWS);
        is_promoted = is_promoted || (is_read && note.state == NOTE_PROMOTED);
    }
    if (dir >= 0)
        close(dir);
    return follows && is_promoted;
}

/* Where there is failover etcd says which. */
static uint64_t next_epoch(const struct shard *shard, uint64_t epoch)
{
    const struct failover *failover = shard->config.failover;
    uint64_t next = failover != NULL ? atomic_load(&failover->epoch) : 0;
    return next > epoch ? next : epoch + 1;
}

int deposing_promote(struct shard *shard, struct note *note, struct embd__error *e)
{
    if (note->state == NOTE_PROMOTED)
        return EMBD_OK;
    note->state = NOTE_PROMOTED;
    note->epoch = next_epoch(shard, note->epoch);
    note->who = shard->config.start;
    if (note_write(shard->data_dir, shard->config.index, note, e) != EMBD_OK)
        return e->status;
    log_event(LOG_WARN, "promoted", "shard=%u epoch=%llu", shard->config.index,
              (unsigned long long)note->epoch);
    return EMBD_OK;
}

/* ---- telling the other server ---- */

static void tell(struct shard *shard)
{
    struct follow_ask ask = {
        .epoch = shard->epoch, .lineage = shard->lineage, .who = shard->epoch_who};
    snprintf(ask.name, sizeof ask.name, "%s", shard->config.addresses[shard->config.index]);
    snprintf(ask.cluster, sizeof ask.cluster, "%s", shard->config.cluster_name);
    follower_ask(shard->teller, &ask);
}

int deposing_begin(struct shard *shard, struct follower *before, struct embd__error *e)
{
    if (shard->config.failover != NULL) /* it hears of that from etcd */
        return EMBD_OK;
    struct follower_config config = *shard->config.follow;
    config.before = before;
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

/* Nothing that is acknowledged from now on would be with the server that serves in its place. */
static void serve_no_more(struct shard *shard)
{
    static const char why[] = "another server was promoted in the place of this one";
    shard->is_deposed = shard->is_loading = true;
    round_refuse_all(shard, why);
    while (shard->gated != NULL)
        gate_refuse(shard, shard->gated, EMBD_DRAINING, why);
    replicated_look(shard);
}

/* What it says is of the cluster, and not of a shard that the cluster has. */
static bool is_spare(const struct shard *shard)
{
    return shard->config.index >= shard->config.n_shards;
}

/* Two were promoted: it is the other one whose records are the cluster's. */
static void yield(struct shard *shard, const char *why)
{
    struct embd__error own = {.status = EMBD_OK};
    const struct note note = {.state = NOTE_DEPOSED, .epoch = shard->epoch, .who = 0};
    shard->epoch_who = 0;
    if (note_write(shard->data_dir, shard->config.index, &note, &own) != EMBD_OK)
        log_event(LOG_ERROR, "deposed_not_noted", "shard=%u why=\"%s\"", shard->config.index,
                  own.text);
    log_event(LOG_ERROR, "deposed",
              "shard=%u epoch=%llu why=\"two followers were promoted, and this one serves nothing "
              "any more: %.200s\"",
              shard->config.index, (unsigned long long)shard->epoch, why);
    serve_no_more(shard);
    deposing_close(shard);
}

void deposing_look(struct shard *shard)
{
    struct follower_answer answer;
    if (!follower_take(shard->teller, &answer))
        return;
    free(answer.bytes);
    bool is_taken = answer.error.status == EMBD_INVALID && strstr(answer.error.text, TAKEN) != NULL;
    if (is_taken && !is_spare(shard)) {
        yield(shard, answer.error.text);
        return;
    }
    if (!is_taken && !has_heard(&answer.error)) {
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

uint64_t deposing_lineage(const struct shard *shard)
{
    if (shard->lineage != 0 || shard->config.identity == NULL)
        return shard->lineage;
    return identity_cluster_number(shard->config.identity);
}

bool deposing_hears(const struct shard *shard, enum method method)
{
    return shard->is_deposed && method == METHOD_FOLLOW;
}

static int say_heard(const struct shard *shard, struct embd__error *e)
{
    return embd__error_set(e, EMBD_INVALID,
                           HEARD " this server serves no more: another one was promoted in its "
                                 "place, in epoch %llu; follow that one",
                           (unsigned long long)shard->epoch);
}

static int depose(struct shard *shard, const struct follow_ask *ask, struct embd__error *e)
{
    struct embd__error own = {.status = EMBD_OK};
    const struct note note = {.state = NOTE_DEPOSED,
                              .epoch = ask->epoch,
                              .lineage = deposing_lineage(shard),
                              .who = ask->who};
    shard->epoch = ask->epoch;
    shard->epoch_who = ask->who;
    note_write(shard->data_dir, shard->config.index, &note, &own);
    log_event(LOG_ERROR, "deposed",
              "shard=%u epoch=%llu by=%s why=\"that server was promoted in the place of this one, "
              "which serves nothing any more\"",
              shard->config.index, (unsigned long long)ask->epoch, ask->name);
    serve_no_more(shard);
    if (own.status == EMBD_OK)
        return say_heard(shard, e); /* else it is to be told after its next start, too */
    log_event(LOG_ERROR, "deposed_not_noted", "shard=%u why=\"%s\"", shard->config.index, own.text);
    return embd__error_set(e, own.status, "%s", own.text);
}

/* The one that tells was promoted after, or beside, another one. */
static int refuse_second(const struct shard *shard, const struct follow_ask *ask,
                         struct embd__error *e)
{
    return embd__error_set(e, EMBD_INVALID,
                           TAKEN " %llu was promoted in epoch %llu, and another server, %llu, in "
                                 "epoch %llu, which this one has heard of first",
                           (unsigned long long)ask->who, (unsigned long long)ask->epoch,
                           (unsigned long long)shard->epoch_who, (unsigned long long)shard->epoch);
}

int deposing_heed(struct shard *shard, const struct follow_ask *ask, struct embd__error *e)
{
    uint64_t own = deposing_lineage(shard);
    if (ask->lineage != 0 && own != 0 && ask->lineage != own)
        return embd__error_set(
            e, EMBD_INVALID,
            "follow lineage: %llu is that of another cluster with the name '%s'; "
            "this one's is %llu: to follow it, begin with an empty data_dir",
            (unsigned long long)ask->lineage, shard->config.cluster_name, (unsigned long long)own);
    if (ask->epoch > shard->epoch)
        return depose(shard, ask, e);
    if (ask->who == 0 || (ask->epoch == shard->epoch && shard->epoch_who == 0))
        return shard->is_deposed ? say_heard(shard, e) : EMBD_OK;
    if (ask->epoch == shard->epoch && ask->who == shard->epoch_who)
        return say_heard(shard, e);
    return refuse_second(shard, ask, e);
}
