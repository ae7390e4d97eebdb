/* following_map.c - the map of keys of a shard that follows (server/follow/maps.h).
 *
 * The happy path: records of a move come; the shard applies them up to the one that brings the
 * later map, which waits until the other shards are prepared, or shard 0 has it. What can fail is
 * that their records do not come, since their server is gone: then the move has not been made here,
 * and a promotion goes on without it. */
#include <stdio.h>

#include "server/follow/maps.h"
#include "server/journal/operation.h"
#include "server/service/following_inside.h"

static bool has_tables(const struct shard *shard)
{
    return shard->following->state == FOLLOWING_RECORDS && shard->commit.journal != NULL;
}

static uint64_t own_version(const struct shard *shard)
{
    return moving_version(shard);
}

void following_note_map(struct shard *shard, bool is_settled)
{
    const struct engine *engine = &shard->engine;
    if (shard->config.maps == NULL)
        return;
    const struct follow_map map = {
        .version = has_tables(shard) ? own_version(shard) : 0,
        .n_shards = shard->config.n_shards,
        .decision = engine->placed.decision,
        .prepared = engine->prepared.place != NULL ? engine->prepared.decision : 0,
        .is_settled = is_settled,
        .is_connected = !shard->following->is_lost && shard->following->answered_ns != 0,
    };
    follow_maps_note(shard->config.maps, shard->config.index, &map);
}

bool following_holds(const struct shard *shard, const struct record *record)
{
    const struct following *f = shard->following;
    struct frame_scanner frame;
    struct operation_map map;
    if (shard->config.maps == NULL)
        return false;
    record_frame(f->bytes + f->used, record, &frame);
    if (!operation_moves(&frame, &map))
        return false;
    const struct follow_map next = {
        .version = map.version, .n_shards = map.n_shards, .decision = map.decision};
    return !follow_maps_may_move(shard->config.maps, shard->config.index, &next);
}

void following_rest_spare(struct shard *shard, uint32_t n_shards)
{
    if (shard->following->state == FOLLOWING_BASE && shard->config.n_shards != n_shards)
        moving_forget_with(shard, n_shards);
}

bool following_joins_other(const struct shard *shard, const struct embd__error *e)
{
    return shard_has_left(shard) && has_tables(shard) && e->status == EMBD_INVALID;
}

/* One that takes the records of a server that is to become a member, or has become one, has no map
 * yet: it is none that has left. */
bool following_has_left(const struct shard *shard)
{
    const struct engine_placed *placed = &shard->engine.placed;
    uint64_t version = 0;
    if (shard->config.maps == NULL || !has_tables(shard) || following_changes(shard))
        return false;
    if (placed->is_set && shard_has_left(shard))
        return true;
    uint32_t n = follow_maps_shards(shard->config.maps, &version);
    bool is_none = n > 0 && n <= shard->config.index && version > own_version(shard);
    return is_none && (placed->is_set || shard->following->is_spare);
}

/* Once it has all records: its server is of an earlier version, whose bases do not say it. */
bool following_lacks_map(const struct shard *shard)
{
    return own_version(shard) < shard->following->told_map && !shard_has_left(shard) &&
           shard->engine.prepared.place == NULL;
}

bool following_find_map(const struct shard *shard, char *why, size_t why_bytes)
{
    bool has_all = shard->commit.applied.position >= shard->following->end;
    if (has_all && following_lacks_map(shard)) {
        snprintf(why, why_bytes,
                 "shard %u has version %llu of the placement, and its server said version %llu, "
                 "which its records do not bring: it is of an earlier version; upgrade and "
                 "restart it",
                 shard->config.index, (unsigned long long)own_version(shard),
                 (unsigned long long)shard->following->told_map);
        return false;
    }
    return shard->config.maps == NULL || follow_maps_agree(shard->config.maps, why, why_bytes);
}

bool following_is_placed(const struct shard *shard)
{
    char ignored[300];
    return following_find_map(shard, ignored, sizeof ignored);
}
