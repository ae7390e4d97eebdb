/* shard.c - opening and closing a shard, and what it keeps for requests that are over. */
#include "server/service/shard.h"

#include "proto/assert.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/engine/capacity.h"
#include "server/service/behind.h"
#include "server/service/gates.h"
#include "server/service/prefetch.h"
#include "server/service/compacting.h"
#include "server/snapshot/cut.h"
#include "server/service/deposing.h"
#include "server/service/following.h"
#include "server/service/recovery.h"
#include "server/service/handle_round.h"
#include "server/service/materialize.h"
#include "server/snapshot/cut_read.h"
#include "server/snapshot/disk_phase.h"
#include "server/snapshot/snapshot_fetch.h"
#include "server/snapshot/snapshot_watch.h"
#include "server/service/state.h"
#include "server/access/access.h"

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

/* The engine is about to change a table: answers on their way still need what it has. */
/* A follower refuses no change for a cut, as servers do: the cut ends. */
static void end_cuts(struct shard *shard, const struct table *table)
{
    if (shard->following == NULL)
        return;
    cut_read_drop(shard, table);
    cut_drop(shard, table);
}

static int before_change(void *arg, const void *origin, const struct table *table,
                         enum change change, struct embd__error *e)
{
    if (change == CHANGE_DROP) {
        compacting_give_up(arg);
        subscribers_drop(arg, table);
        mark_drop(arg, table);
        end_cuts(arg, table);
    }
    return materialize(arg, origin, table, change, e);
}

/* The journal's operations end before their session does, or are read from their records. */
static void on_spent(const void *origin, uint64_t ns)
{
    struct shard_session *session = (struct shard_session *)(uintptr_t)origin;
    session->spent_ns += ns;
}

static void on_returned(void *arg)
{
    dispatch_parked(arg);
}

static void open_engine(struct shard *shard)
{
    engine_init(&shard->engine, shard->config.store);
    shard->engine.before_change = before_change;
    shard->engine.on_returned = on_returned;
    shard->engine.on_placed = moving_adopt;
    shard->engine.arg = shard;
    commit_init(&shard->commit, &shard->engine);
    shard->commit.shard = shard->config.index;
    shard->commit.spent = on_spent;
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
    moving_close(shard);
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

void shard_request_sent(struct shard *shard, struct request *request, uint64_t now_ns)
{
    stages_sent(&shard->stages, &request->times, request->received_ns, now_ns);
}

static void unpark(struct shard *shard, struct request *request)
{
    switch (request->waits) {
    case WAITS_HOLD:
        hold_unpark(&shard->hold, request);
        return;
    case WAITS_ROUND:
        round_drop(shard, request);
        return;
    case WAITS_GATE:
        gate_drop(shard, request);
        return;
    case WAITS_FOLLOWERS:
        replicated_forget(shard, request);
        return;
    case WAITS_BEHIND:
        behind_unpark(request->session, request);
        return;
    }
}

void shard_request_fini(struct shard *shard, struct request *request)
{
    if (request->state == REQUEST_PARKED)
        unpark(shard, request);
    if (request->gate.number != 0)
        gate_leave(request);
    if (shard->cut != NULL)
        cut_forget(shard, request);
    if (shard->disk_phase != NULL)
        disk_phase_forget(shard, request);
    if (shard->fetch != NULL)
        snapshot_fetch_forget(shard, request);
    if (shard->feeding.n > 0)
        feeding_forget(shard, request);
    if (request->prefetch.is_tried)
        prefetch_forget(shard, request);
    if (request->work == NULL)
        return;
    struct op *op = &request->work->op;
    if (op->record.is_waiting) {
        request->session->n_journaled--;
        commit_forget(op);
    }
    op_forget(op); /* a store call in flight reads the request's bins: it returns first */
    if (op->kind == OP_PUSH)
        capacity_left(op);
    materialize_forget(request->work);
    work_free(request->work);
}
