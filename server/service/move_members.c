/* move_members.c - see move_members.h. */
#include "server/service/move_members.h"

#include "server/identity/identity.h"

static int refuse(struct call *call, int status, const char *why)
{
    return embd__error_set(&call->error, status, "move: %s", why);
}

int move_check_joining(struct call *call, const struct placement *next)
{
    const struct shard_config *config = &call->shard->config;
    if (next->version >= 2 && next->n_shards >= config->n_shards &&
        embd__placement_count(next, config->index) == 0)
        return EMBD_OK;
    return embd__error_set(&call->error, EMBD_INVALID,
                           "move: the placement is version %llu of %u shards, and shard %u becomes "
                           "a member without keys by one of %u shards or more",
                           (unsigned long long)next->version, next->n_shards, config->index,
                           config->n_shards);
}

/* A server leaves with all of its shards: its directory is of no cluster afterwards. */
static int check_whole(struct call *call, const struct placement *next)
{
    const struct shard_config *config = &call->shard->config;
    uint32_t first = config->own_first, end = first + config->own_n;
    if (next->n_shards <= first || next->n_shards >= end)
        return EMBD_OK;
    return embd__error_set(&call->error, EMBD_INVALID,
                           "move: shards %u to %u are of one server, which leaves with all of "
                           "them or with none: the placement has %u shards",
                           first, end - 1, next->n_shards);
}

int move_check_members(struct call *call, const struct placement *next)
{
    const struct shard_config *config = &call->shard->config;
    bool grows = next->n_shards > config->n_shards;
    if (config->identity == NULL)
        return refuse(call, EMBD_UNSUPPORTED,
                      grows ? "shards are added to clusters whose servers have a data_dir: one "
                              "without it would forget at its end who the members are"
                            : "shards leave clusters whose servers have a data_dir: one without it "
                              "would forget at its end who the members are");
    if (call->shard->following != NULL)
        return refuse(call, EMBD_UNSUPPORTED, "this server follows another one: ask that one");
    if (config->failover != NULL && config->replicas == 0)
        return refuse(call, EMBD_UNSUPPORTED,
                      "with failover more than one server needs replicas of 1 or more: a follower "
                      "that takes a place has to have the map that the others have");
    if (config->resize == NULL)
        return refuse(call, EMBD_UNSUPPORTED,
                      "this server is in another program, and its cluster has always one shard");
    if (embd__placement_moved(config->placement, next) > 0)
        return refuse(call, EMBD_INVALID,
                      grows ? "the placement adds shards, and moves keys"
                            : "the placement has fewer shards, and moves keys");
    return grows ? EMBD_OK : check_whole(call, next);
}

int move_note_members(struct call *call, const struct placement *next, const struct added *added)
{
    const struct shard_config *config = &call->shard->config;
    if (added->n == 0)
        return EMBD_OK;
    if (added->n >= next->n_shards ||
        (!shard_joins(call->shard) && next->n_shards - added->n != config->n_shards))
        return embd__error_set(&call->error, EMBD_INVALID,
                               "move field 'members' has %u shards of %u, and there are %u",
                               added->n, next->n_shards, config->n_shards);
    return identity_members_begin(config->identity, next->n_shards - added->n, added->list,
                                  added->n, &call->error);
}
