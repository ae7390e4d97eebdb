/* sweeps.c - see sweeps.h. */
#include "server/service/sweeps.h"

#include "server/service/state.h"

/* Waiting requests go before pushes to a table that takes long, or they might wait for ever. */
static bool stops_push(const struct shard *shard, const struct table *table, bool was_parked)
{
    bool is_behind = shard->commit.n_long > 0 || (!was_parked && shard->hold.first != NULL);
    return table->is_swept || (table->is_long && is_behind);
}

static bool stops_pull(const struct table *table, const struct part *part)
{
    return table->is_late || (table->is_swept && table->schema.s.create_on == EMBD_CREATE_ON_PULL &&
                              !part->zero_missing);
}

static bool stops_opening(struct call *call)
{
    struct stream_opening opening;
    return embd__opening_read(&call->reader, false, &opening) == EMBD_OK &&
           op_is_unsure(&call->shard->engine, &opening.stream);
}

static bool stops_any(struct call *call, bool was_parked)
{
    struct shard *shard = call->shard;
    struct push_extra extra;
    if (call->reader.method == METHOD_STREAM_OPEN)
        return stops_opening(call);
    bool is_push = call->reader.method == METHOD_PUSH;
    int n = is_push ? embd__push_read(&call->reader, shard->parts, LIMIT_PARTS, &extra)
                    : embd__parts_read(&call->reader, shard->parts, LIMIT_PARTS, PARTS_PULL);
    if (is_push && n > 0 && extra.number.sequence > 0 &&
        op_is_unsure(&shard->engine, &extra.number))
        return true;
    for (int i = 0; i < n; i++) {
        const struct table *table = tables_by_id(&shard->engine.tables, shard->parts[i].table);
        if (table != NULL &&
            (is_push ? stops_push(shard, table, was_parked) : stops_pull(table, &shard->parts[i])))
            return true;
    }
    return false;
}

/* Its parts are long to read: while it is parked, once for each end of what it may wait for. */
bool sweeps_stop(struct call *call, bool was_parked)
{
    const struct shard *shard = call->shard;
    const struct engine *engine = &shard->engine;
    uint64_t n_ends =
        1 + engine->tables.n_sweeps + engine->n_were_unsure + shard->commit.n_were_long;
    if (was_parked && call->request->stopped_at == n_ends)
        return true;
    bool stops = stops_any(call, was_parked);
    call->request->stopped_at = stops && was_parked ? n_ends : 0;
    return stops;
}

bool sweeps_stop_push(const struct shard *shard, const struct op *push)
{
    for (uint32_t i = 0; i < push->n_parts; i++) {
        const struct table *table = tables_by_id(&shard->engine.tables, push->parts[i].in.table);
        if (table != NULL && stops_push(shard, table, true))
            return true;
    }
    return false;
}

bool shard_stands_behind_sweep(const struct shard *shard, const struct shard_session *session)
{
    return session->is_behind_sweep && sweeps_are_on(shard);
}
