#include "server/follow/promotion.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/log/monotonic.h"

#define VOTES_NS 10000000000u /* a shard that is busy for so long refuses */

struct promotion {
    uint32_t n_shards;
    void (*wake)(void *arg);
    void *arg;
    atomic_int state; /* enum promotion_state; changed with the mutex held */
    atomic_uint_fast64_t attempt, max_behind;
    pthread_mutex_t mutex;
    /* Guarded. */
    uint32_t n_votes, n_done;
    uint64_t epoch, asked_ns, ended_ns;
    char why[300];
};

struct promotion *promotion_new(uint32_t n_shards, void (*wake)(void *arg), void *arg)
{
    struct promotion *p = calloc(1, sizeof *p);
    if (p == NULL)
        return NULL;
    p->n_shards = n_shards;
    p->wake = wake;
    p->arg = arg;
    pthread_mutex_init(&p->mutex, NULL);
    return p;
}

int promotion_set_shards(struct promotion *p, uint32_t n_shards, struct embd__error *e)
{
    pthread_mutex_lock(&p->mutex);
    enum promotion_state state = promotion_state(p);
    if (state != PROMOTION_NOT && state != PROMOTION_REFUSED)
        embd__error_set(e, EMBD_BUSY, "a promotion is under way");
    else
        p->n_shards = n_shards;
    pthread_mutex_unlock(&p->mutex);
    return e->status;
}

void promotion_free(struct promotion *p)
{
    if (p == NULL)
        return;
    pthread_mutex_destroy(&p->mutex);
    free(p);
}

enum promotion_state promotion_state(const struct promotion *p)
{
    return (enum promotion_state)atomic_load(&p->state);
}

uint64_t promotion_attempt(const struct promotion *p)
{
    return atomic_load(&p->attempt);
}

uint64_t promotion_max_behind(const struct promotion *p)
{
    return atomic_load(&p->max_behind);
}

/* With the mutex held. */
static void enter(struct promotion *p, enum promotion_state state)
{
    atomic_store(&p->state, (int)state);
    if (state == PROMOTION_DONE || state == PROMOTION_REFUSED)
        p->ended_ns = monotonic_ns();
    p->wake(p->arg);
}

static int begin(struct promotion *p, uint64_t max_behind, struct embd__error *e)
{
    enum promotion_state state = promotion_state(p);
    if (state == PROMOTION_ASKED || state == PROMOTION_GOES)
        return embd__error_set(e, EMBD_BUSY, "promote: a promotion is under way");
    if (state == PROMOTION_DONE)
        return embd__error_set(e, EMBD_EXISTS, "promote: this server was promoted");
    p->n_votes = 0;
    p->why[0] = '\0';
    p->asked_ns = monotonic_ns();
    atomic_store(&p->max_behind, max_behind);
    atomic_fetch_add(&p->attempt, 1);
    enter(p, PROMOTION_ASKED);
    return EMBD_OK;
}

int promotion_ask(struct promotion *p, uint64_t max_behind, struct embd__error *e)
{
    pthread_mutex_lock(&p->mutex);
    begin(p, max_behind, e);
    pthread_mutex_unlock(&p->mutex);
    return e->status;
}

/* With the mutex held. */
static void refuse(struct promotion *p, const char *why)
{
    snprintf(p->why, sizeof p->why, "%s", why);
    enter(p, PROMOTION_REFUSED);
}

/* Nobody may look any more at what somebody asked for: a shard that is ready later finds that it is
 * refused. With the mutex held. */
static void end_late(struct promotion *p)
{
    if (promotion_state(p) == PROMOTION_ASKED && monotonic_ns() - p->asked_ns > VOTES_NS)
        refuse(p, "a shard is loading or busy, and was not ready within 10 s");
}

bool promotion_is_under_way(struct promotion *p)
{
    if (promotion_state(p) == PROMOTION_ASKED) {
        pthread_mutex_lock(&p->mutex);
        end_late(p);
        pthread_mutex_unlock(&p->mutex);
    }
    enum promotion_state state = promotion_state(p);
    return state == PROMOTION_ASKED || state == PROMOTION_GOES;
}

void promotion_vote(struct promotion *p, uint64_t attempt, const char *why_not)
{
    pthread_mutex_lock(&p->mutex);
    end_late(p);
    if (promotion_state(p) == PROMOTION_ASKED && attempt == atomic_load(&p->attempt)) {
        if (why_not[0] != '\0')
            refuse(p, why_not);
        else if (++p->n_votes == p->n_shards)
            enter(p, PROMOTION_GOES);
    }
    pthread_mutex_unlock(&p->mutex);
}

void promotion_count_done(struct promotion *p, uint64_t epoch)
{
    pthread_mutex_lock(&p->mutex);
    p->epoch = epoch > p->epoch ? epoch : p->epoch;
    if (++p->n_done == p->n_shards)
        enter(p, PROMOTION_DONE);
    pthread_mutex_unlock(&p->mutex);
}

void promotion_look(struct promotion *p, struct promotion_report *out)
{
    pthread_mutex_lock(&p->mutex);
    end_late(p);
    uint64_t at_ns = monotonic_ns();
    *out = (struct promotion_report){.state = promotion_state(p), .epoch = p->epoch};
    memcpy(out->why, p->why, sizeof out->why);
    bool is_over = out->state == PROMOTION_DONE || out->state == PROMOTION_REFUSED;
    out->us = p->asked_ns == 0 ? 0 : ((is_over ? p->ended_ns : at_ns) - p->asked_ns) / 1000;
    pthread_mutex_unlock(&p->mutex);
}
