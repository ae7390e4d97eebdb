/* shard.c - opening and closing a shard; the ends of its connections; its last requests. */
#include "server/service/shard.h"

#include "proto/assert.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/service/gates.h"
#include "server/snapshot/cut.h"
#include "server/service/deposing.h"
#include "server/service/following.h"
#include "server/service/recovery.h"
#include "server/service/handle_round.h"
#include "server/service/materialize.h"
#include "server/service/moving.h"
#include "server/service/narrow.h"
#include "server/snapshot/cut_read.h"
#include "server/snapshot/disk_phase.h"
#include "server/snapshot/snapshot_fetch.h"
#include "server/snapshot/snapshot_watch.h"
#include "server/service/state.h"
#include "server/service/devices.h"
#include "server/service/authorize.h"
#include "server/journal/recent.h"
#include "server/log/log.h"
#include "server/coordinator/coordinator.h"

#define MATERIALIZE_LEAST_BYTES ((uint64_t)4 * LIMIT_FRAME_BYTES)

static uint64_t default_materialize_bytes(uint32_t n_shards)
{
    uint64_t ram = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t share = ram / 4 / n_shards;
    return share > MATERIALIZE_LEAST_BYTES ? share : MATERIALIZE_LEAST_BYTES;
}

static int open_data_dir(struct shard *shard, struct embd__error *e)
{
    const char *path = shard->config.data_dir;
    if (path == NULL)
        return EMBD_OK;
    shard->data_dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    shard->commit.data_dir = shard->data_dir;
    if (shard->data_dir < 0)
        return embd__error_set(e, EMBD_IO, "data directory '%s' cannot be opened: %s", path,
                               strerror(errno));
    return EMBD_OK;
}

/* A follower refuses no change for a cut, as servers do: the cut ends. */
static void end_cuts(struct shard *shard, const struct table *table)
{
    if (shard->following == NULL)
        return;
    cut_read_drop(shard, table);
    cut_drop(shard, table);
}

/* Readers of the table let go of it. */
static void before_drop(void *arg, const struct table *table)
{
    compacting_give_up(arg);
    subscribers_drop(arg, table);
    mark_drop(arg, table);
    end_cuts(arg, table);
}

/* From inside a store's collect the parked wait for its end: they may drop its table. */
static void on_returned(void *arg)
{
    struct shard *shard = arg;
    if (shard->is_collecting)
        shard->has_returned = true;
    else
        dispatch_parked(shard);
}

static void open_engine(struct shard *shard)
{
    engine_init(&shard->engine, shard->config.store);
    shard->engine.before_drop = before_drop;
    shard->engine.before_change = materialize; /* answers on their way need what the table has */
    shard->engine.on_returned = on_returned;
    shard->engine.on_placed = moving_adopt;
    shard->engine.on_loaded = moving_note_loaded;
    shard->engine.arg = shard;
    commit_init(&shard->commit, &shard->engine);
    shard->commit.shard = shard->config.index;
    shard->commit.is_deferred = shard->config.wake != NULL;
}

int shard_open(const struct shard_config *config, struct shard **out, struct embd__error *e)
{
    struct shard *shard = calloc(1, sizeof *shard);
    if (shard == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for shard %u", config->index);
    shard->config = *config;
    shard->access = config->access != NULL ? access_share(config->access) : NULL;
    shard->data_dir = -1;
    shard->opened_ns = clock_ns();
    shard->materialize_limit = config->materialize_bytes
                                   ? config->materialize_bytes
                                   : default_materialize_bytes(config->n_shards);
    open_engine(shard);
    moving_begin(shard);
    if (!msgpack_zone_init(&shard->zone, MSGPACK_ZONE_CHUNK_SIZE)) {
        access_drop(shard->access);
        free(shard);
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for shard %u", config->index);
    }
    shard->feeding.recent = recent_new();
    if (open_data_dir(shard, e) != EMBD_OK || recovery_begin(shard, e) != EMBD_OK) {
        shard_close(shard);
        return e->status;
    }
    round_open(shard);
    if (!shard->is_loading)
        replicated_begin(shard);
    snapshot_watch_begin(shard);
    *out = shard;
    return EMBD_OK;
}

void shard_close(struct shard *shard)
{
    if (shard == NULL)
        return;
    following_close(shard);
    narrow_close(shard);
    deposing_close(shard);
    disk_phase_close(shard);
    snapshot_fetch_close(shard);
    feeding_close(shard);
    cut_close(shard);
    cut_read_end(shard);
    mark_end(shard);
    subscribers_end_all(shard);
    compacting_close(shard);
    recovery_give_up(shard);
    commit_fini(&shard->commit);
    recent_free(shard->feeding.recent);
    moving_close(shard);
    push_progress_fini(&shard->push_progress);
    while (shard->engine.set.is_on)
        tables_sweep(&shard->engine.tables);
    round_close(&shard->engine);
    EMBD_ASSERT(shard->hold.first == NULL && shard->streaming == NULL &&
                shard_n_in_flight(shard) == 0);
    snapshot_forget(&shard->snapshot);
    snapshot_use_fini(&shard->snapshot_use);
    staging_fini(shard);
    free(shard->hold.let_in);
    engine_fini(&shard->engine);
    work_pool_fini(&shard->works);
    msgpack_zone_destroy(&shard->zone);
    if (shard->data_dir >= 0)
        close(shard->data_dir);
    access_drop(shard->access);
    free(shard->map);
    free(shard);
}

/* ---- ends of connections ---- */

void shard_session_half_end(struct shard *shard, struct shard_session *session)
{
    if (session->has_ended)
        return;
    session->has_ended = true;
    round_end_session(shard, session);
    if (session->gated != NULL)
        gate_refuse_ended(shard, session->gated);
    dispatch_parked(shard);
}

void shard_session_end(struct shard *shard, struct shard_session *session)
{
    if (session->holds)
        log_event(LOG_WARN, "hold_lost", "shard=%u why=\"the holder's connection ended\"",
                  shard->config.index);
    hold_end(&shard->hold, session);
    push_progress_name(&shard->push_progress, session, 0);
    authorize_leave(shard, session);
    staging_leave(shard, session);
    cut_leave(shard, session);
    cut_read_leave(shard, session);
    disk_phase_leave(shard, session);
    snapshot_leave(shard, session);
    feeding_leave(shard, session);
    subscribers_leave(shard, session);
    moving_leave(shard, session);
    if (session->asked_job != 0)
        coordinator_leave(shard->config.coordinator, session->asked_job);
    devices_leave(shard, session);
    access_drop(session->access);
    session->access = NULL;
    session->grant = session->server = NULL;
    dispatch_parked(shard);
}

/* A request that waits for a hold or for other workers has not started: it is refused at once, so
 * that it cannot keep a process from ending. */
void shard_drain(struct shard *shard)
{
    shard->draining = true;
    round_refuse_all(shard, "the server is shutting down");
    while (shard->gated != NULL)
        gate_refuse(shard, shard->gated, EMBD_DRAINING, "the server is shutting down");
    compacting_stop(shard);
    feeding_drain(shard);
    cut_end(shard, EMBD_DRAINING, "the server shuts down");
    cut_read_end(shard);
    mark_end(shard);
    subscribers_give_way(shard);
    dispatch_parked(shard);
}

bool shard_finish(struct shard *shard, bool is_late)
{
    return feeding_finish(shard, is_late);
}
