/* loads.c - see loads.h. */
#include "server/service/loads.h"

#include "server/access/access.h"
#include "server/service/state.h"

#define LOADS_MOST 8u /* on their way to the disk at once */
/* Memory that rows of one load's frame take at most, with their entries. */
#define LOAD_ROOM (4 * (uint64_t)LIMIT_FRAME_BYTES)

/* Loads on their way have no rows yet: row_memory and a token's share are exact only where there is
 * room for all of this connection's. */
static bool has_room(const struct shard *shard, const struct shard_session *session)
{
    const struct row_memory *memory = shard->engine.tables.memory;
    uint64_t room = LOAD_ROOM * (session->n_journaled + 1);
    bool is_bounded = session->access != NULL && session->grant->most_row_bytes != GRANT_UNLIMITED;
    return !is_bounded && (memory == NULL || row_memory_room(memory, 0) >= room);
}

/* No hold, and nobody who waits for what goes on. */
static bool is_free(const struct shard *shard)
{
    return !hold_is_on(&shard->hold) && shard->hold.first == NULL;
}

static bool goes_with_loads(const struct shard *shard, const struct shard_session *session)
{
    return shard->commit.is_load && shard->engine.n_recorded < LOADS_MOST &&
           shard_n_in_flight(shard) == shard->engine.n_recorded &&
           session->n_journaled == shard->engine.n_recorded && is_free(shard) &&
           has_room(shard, session);
}

/* A push that a table is stepped for in slices has all of it to itself. */
static bool goes_beside(const struct shard *shard, const struct shard_session *session)
{
    const struct engine *engine = &shard->engine;
    return is_free(shard) && !shard->commit.is_alone && !shard->commit.settles &&
           !engine->set.is_on && engine->n_in_flight == 0 && engine->tables.n_swept == 0 &&
           !engine->tables.ops->caps.is_async && session->n_journaled < LOADS_MOST &&
           !shard->moving.rests && shard->compacting.state != COMPACTING_RESTS &&
           shard->mark.state != MARK_RESTS && has_room(shard, session);
}

bool loads_go_on(const struct call *call)
{
    const struct shard *shard = call->shard;
    const struct shard_session *session = call->request->session;
    int method = call->error.status == EMBD_OK ? call->reader.method : -1;
    if (method != METHOD_LOAD && method != METHOD_MOVE_LOAD)
        return false;
    call->request->goes_beside = method == METHOD_MOVE_LOAD && goes_beside(shard, session);
    return call->request->goes_beside || goes_with_loads(shard, session);
}
