/* ahead.h - what is done for a push while its gradients are still arriving. */
#ifndef EMBD_SHARD_AHEAD_H
#define EMBD_SHARD_AHEAD_H

#include "server/shard/shard.h"
#include "server/engine/tables.h"

/* How many gradients of the request's only part are known to be finite. */
uint64_t ahead_n_finite(const struct request *request);

/* Whether the keys of the request's only part were found to be this shard's, as keys of this table.
 */
bool ahead_is_routed(const struct request *request, const struct table *table);

/* The store's number for the push that is made now, or 0. */
uint64_t ahead_take(struct request *request);

/* The push will not come, or has been made. */
void ahead_forget(struct shard *shard, struct request *request);

#endif
