/* succession.h - a server was promoted, and others had followed the same server before. Those that
 * have the records that it had at that moment go on with its own, without a base.
 *
 * Checksums of records are chained, and each journal has a chain of its own. The promoted shard
 * keeps both chains of the place where its journal became its own. Who asks from there by the chain
 * of the earlier server has the same records, and is answered with the chain of this one, once: a
 * follower of an earlier version does not understand that, asks the same again, and is told to
 * begin anew. Owner: the shard's thread. */
#ifndef EMBD_SERVICE_SUCCESSION_H
#define EMBD_SERVICE_SUCCESSION_H

#include "proto/follow.h"

#define SUCCESSION_MOST 8u

struct tail_place;

struct succession {
    uint64_t position; /* 0: there is none */
    uint64_t chain;    /* there, of the server that was followed */
    uint64_t own;      /* and of this journal */
    uint64_t told[SUCCESSION_MOST];
    uint32_t n_told;
};

/* The journal becomes this server's own. */
void succession_begin(struct succession *s, const struct tail_place *place, uint64_t position,
                      uint64_t chain);
/* Whether the question is answered with its place alone, which is in the question then. */
bool succession_take(struct succession *s, struct follow_ask *ask);

#endif
