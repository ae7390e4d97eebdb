#include "server/service/fence.h"

#include "server/follow/failover.h"
#include "server/service/state.h"

/* Admins may look at a shard that is fenced, and followers have to ask it. Trainers are not even
 * greeted, so that they go elsewhere. Those that ask a connection of before where the shards are
 * lose it, since they would go on asking there. */
static bool is_exempt(const struct call *call, bool is_harmless)
{
    enum method method = (enum method)call->reader.method;
    if (call->request->listener == LISTENER_ADMIN)
        return is_harmless || method == METHOD_FOLLOW;
    return is_harmless && method != METHOD_HELLO;
}

int fence_check(struct call *call, bool is_harmless)
{
    const struct shard *shard = call->shard;
    bool is_trainer = call->request->listener != LISTENER_ADMIN;
    if (shard->following != NULL)
        return EMBD_OK;
    call->request->is_guarded = is_trainer && call->reader.method == METHOD_CLUSTER;
    if (is_exempt(call, is_harmless))
        return EMBD_OK;
    call->request->is_guarded = true;
    if (!failover_is_fenced(shard->config.failover))
        return EMBD_OK;
    return embd__error_set(&call->error, EMBD_DRAINING,
                           "shard %u has no lease in etcd now, or has not renewed it in time: "
                           "another process may serve in its place",
                           shard->config.index);
}
