/* prefetch.h - what is done for a push while its gradients are still arriving. */
#ifndef EMBD_SERVICE_PREFETCH_H
#define EMBD_SERVICE_PREFETCH_H

#include "server/engine/tables.h"
#include "server/service/shard.h"

/* How many gradients of the request's only part are known to be finite. */
static inline uint64_t prefetch_n_finite(const struct request *request)
{
    return request->prefetch.n_finite;
}

/* Whether the keys of the request's only part were found to be this shard's, as keys of this table:
 * meanwhile another one may have come under its name. */
static inline bool prefetch_is_routed(const struct request *request, const struct table *table)
{
    return request->prefetch.is_on && request->prefetch.partition == table->schema.s.partition;
}

/* The push will not come, or has been made. */
void prefetch_forget(struct shard *shard, struct request *request);

#endif
