/* leaving.c - what is told by a shard that has left the cluster. */
#include "server/service/state.h"

int shard_refuse_left(struct call *call)
{
    return embd__error_set(&call->error, EMBD_MOVED,
                           "shard %u has left the cluster, which has %u shards: ask cluster for "
                           "them",
                           call->shard->config.index, call->shard->config.n_shards);
}
