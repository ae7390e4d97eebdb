/* promotion.h - the shards of a process that follows are promoted while it runs: all of them, or
 * none.
 *
 *     NOT, REFUSED -> ASKED -> GOES -> DONE
 *                       `---> REFUSED
 *
 * Somebody asks. Each shard stops asking the other server, takes the records that have come, and
 * votes. The last vote decides. Then each shard notes on its own that its journal is this server's,
 * and serves. A process that ends between the first note and the last one finishes at its next
 * start (deposing.h). Any thread. */
#ifndef EMBD_FOLLOW_PROMOTION_H
#define EMBD_FOLLOW_PROMOTION_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/errors.h"

enum promotion_state {
    PROMOTION_NOT,
    PROMOTION_ASKED,
    PROMOTION_GOES,
    PROMOTION_DONE,
    PROMOTION_REFUSED,
};

#define PROMOTION_ANY UINT64_MAX

struct promotion;

/* `wake` has every shard look at the state. NULL: no memory. */
struct promotion *promotion_new(uint32_t n_shards, void (*wake)(void *arg), void *arg);
/* So many vote from now on. EMBD_BUSY: while some do. */
int promotion_set_shards(struct promotion *promotion, uint32_t n_shards, struct embd__error *e);
void promotion_free(struct promotion *promotion); /* NULL is allowed */

enum promotion_state promotion_state(const struct promotion *promotion);
/* One number for each time that somebody asked; shards know by it that they have voted. */
uint64_t promotion_attempt(const struct promotion *promotion);

/* `max_behind`: records that a shard may lack of those that the other server had when it answered
 * last; PROMOTION_ANY: it does not matter. EMBD_BUSY: one is under way; EMBD_EXISTS: it is done. */
int promotion_ask(struct promotion *promotion, uint64_t max_behind, struct embd__error *e);
uint64_t promotion_max_behind(const struct promotion *promotion);

/* Whether shards have to vote, or to go on. One that has waited for a vote for 10 s is refused. */
bool promotion_is_under_way(struct promotion *promotion);

/* A shard's vote. `why_not` "": it is ready, and stays as it is until the decision. */
void promotion_vote(struct promotion *promotion, uint64_t attempt, const char *why_not);
/* After GOES: the shard serves, in that epoch. */
void promotion_count_done(struct promotion *promotion, uint64_t epoch);

struct promotion_report {
    enum promotion_state state;
    char why[300]; /* REFUSED */
    uint64_t epoch;
    uint64_t us; /* since somebody asked, or from there to the decision */
};
void promotion_look(struct promotion *promotion, struct promotion_report *out);

#endif
