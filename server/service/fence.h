/* fence.h - a shard answers nothing that another process might contradict which has taken its place
 * in etcd (server/follow/failover.h). Owner: the shard's thread. */
#ifndef EMBD_SERVICE_FENCE_H
#define EMBD_SERVICE_FENCE_H

#include "server/service/shard.h"

struct call;

/* EMBD_DRAINING, which clients meet by looking at the map of another server: the lease may have
 * lapsed. Else the answer is looked at again before it goes. `is_harmless`: it tells nothing of
 * tables. */
int fence_check(struct call *call, bool is_harmless);

#endif
