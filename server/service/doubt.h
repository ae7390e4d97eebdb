/* doubt.h - a replacement whose coordinator has left, or whose shard has started again, between the
 * moment it was prepared here and the moment it was made or given up: shard 0 knows which. */
#ifndef EMBD_SERVICE_DOUBT_H
#define EMBD_SERVICE_DOUBT_H

#include "server/identity/decision.h"
#include "server/service/state.h"

/* Shard 0's decision; called on shard 0. REFUSED is final: it can never be made from then on. */
enum decision staging_decide(struct shard *shard, uint64_t decision);

/* Whether the shard has prepared a replacement, and no coordinator goes on with it. */
static inline bool doubt_is_on(const struct shard *shard)
{
    return shard->engine.prepared.id != 0 &&
           !staging_is_checked(&shard->staging, shard->engine.prepared.id);
}

/* Whether doubt_look has something to do. */
static inline bool doubt_may_be(const struct shard *shard)
{
    return (shard->engine.prepared.id != 0 && shard->following == NULL) || shard->is_asked;
}

/* Asks shard 0, does what it says, or answers another shard of the process. Whether parked requests
 * may go on now. */
bool doubt_look(struct shard *shard);

#endif
