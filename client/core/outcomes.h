/* outcomes.h - what became of a change on each of the shards that it went to, and the error of one
 * that failed. */
#ifndef EMBD_CORE_OUTCOMES_H
#define EMBD_CORE_OUTCOMES_H

#include "client/io/exchange.h"

enum outcome { APPLIED, APPLIED_IN_PART, REFUSED, NOT_SENT, UNKNOWN, OUTCOMES };

struct shard_outcome {
    uint32_t shard;
    enum outcome outcome;
    int status; /* EMBD_OK unless it was refused or not sent */
};

/* Of a shard's exchange, which has ended. */
struct shard_outcome embd__outcome_of(uint32_t shard, const struct exchange *x);

/* Lists [n] have the shards in their order, each once. */

/* Whether it stays applied in part: one shard has it, or may have it, and another one has refused
 * it for its map. */
bool embd__outcomes_are_parted(const struct shard_outcome *list, uint32_t n);
/* Whether one shard has it, or may have it. */
bool embd__outcomes_are_taken(const struct shard_outcome *list, uint32_t n);

/* Why a push stays applied in part: the end of its text. */
#define PARTED_MOVED                                                                               \
    "; keys have moved since, and it stays applied in part: do not push it again, go back to a "   \
    "checkpoint with a new client"
#define PARTED_UNSUPPORTED                                                                         \
    "; it stays applied in part: do not push it again, go back to a checkpoint"

/* The error of a change. `first` is that of the first shard, by number, that did not do it. Returns
 * its status, or EMBD_MOVED where the change stays applied in part. `parted`: why; NULL: it does
 * not. */
int embd__outcomes_say(struct embd__error *e, const struct embd__error *first,
                       const struct shard_outcome *list, uint32_t n, const char *parted);

#endif
