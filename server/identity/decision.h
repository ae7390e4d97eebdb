/* decision.h - what shard 0 has decided about a replacement that a shard of this process has
 * prepared (server/service/doubt.h). The thread that asks other servers (asking.c) asks the one of
 * shard 0; in the process of shard 0, that shard answers.
 *
 * What is made or refused stays so: a decision's number is never used again. Any thread. */
#ifndef EMBD_IDENTITY_DECISION_H
#define EMBD_IDENTITY_DECISION_H

#include "server/identity/identity.h"

enum decision {
    DECISION_OPEN,    /* nobody knows yet */
    DECISION_MADE,    /* shard 0 has the new tables */
    DECISION_REFUSED, /* it will never have them by this decision */
    DECISIONS,
};
extern const char *const decision_names[DECISIONS]; /* of `identity` */

/* What is known; asks from now on, if it is open. REFUSED where servers cannot ask each other. */
enum decision identity_ask_decision(struct identity *identity, uint64_t decision);

/* For shard 0: the number that another shard of the process asks about; 0: none does. */
uint64_t identity_asked_decision(const struct identity *identity);
void identity_tell_decision(struct identity *identity, uint64_t decision, enum decision is);

#endif
