/* dispatch.c - from a received request to its answer.
 *
 * The happy path is: read the header, look the method up, have its handler check, do and answer. A
 * request parks instead when it must wait: for an earlier one of its connection, for a hold to end,
 * for the store. When its turn comes, a parked request is read again from its bytes, so that no
 * decision depends on an earlier state.
 *
 * Every failure is answered to the peer, and changes nothing. Notifications have no effect and no
 * answer. */
#include "server/snapshot/cut.h"
#include "server/snapshot/disk_phase.h"
#include "server/snapshot/snapshot_fetch.h"

#include "proto/assert.h"
#include "server/engine/capacity.h"
#include "server/engine/staged.h"
#include "server/log/log.h"
#include "server/service/authorize.h"
#include "server/service/behind.h"
#include "server/service/deposing.h"
#include "server/service/doubt.h"
#include "server/service/following.h"
#include "server/service/fence.h"
#include "server/service/gates.h"
#include "server/service/recovery.h"
#include "server/service/handle_round.h"
#include "server/service/loads.h"
#include "server/service/prefetch.h"
#include "server/service/state.h"
#include "server/service/sweeps.h"

#include <stdatomic.h>

static const struct method_entry {
    int (*handle)(struct call *call);
    enum touch touch; /* a pull that creates rows counts as TOUCH_CHANGES */
    bool while_draining, while_loading;
} methods[METHOD_COUNT] = {
    [METHOD_HELLO] = {handle_hello, TOUCH_NOTHING, false, true},
    [METHOD_SHARE] = {handle_share, TOUCH_NOTHING, false, true},
    [METHOD_RING] = {handle_ring, TOUCH_NOTHING, false, true},
    [METHOD_TRUNK] = {handle_trunk, TOUCH_NOTHING, false, true},
    [METHOD_PING] = {handle_ping, TOUCH_NOTHING, true, true},
    [METHOD_CLUSTER] = {handle_cluster, TOUCH_NOTHING, false, true},
    [METHOD_TABLES] = {handle_tables, TOUCH_NOTHING, false, false},
    [METHOD_TABLE_CREATE] = {handle_table_create, TOUCH_STRUCTURE, false, false},
    [METHOD_TABLE_DROP] = {handle_table_drop, TOUCH_STRUCTURE, false, false},
    [METHOD_TABLE_DESCRIBE] = {handle_table_describe, TOUCH_READS, false, false},
    [METHOD_PULL] = {handle_pull, TOUCH_READS, false, false},
    [METHOD_PUSH] = {handle_push, TOUCH_CHANGES, false, false},
    [METHOD_ERASE] = {handle_erase, TOUCH_STRUCTURE, false, false},
    [METHOD_STATS] = {handle_stats, TOUCH_NOTHING, true, true},
    [METHOD_HOLD] = {handle_hold, TOUCH_HOLD, false, false},
    [METHOD_RELEASE] = {handle_release, TOUCH_NOTHING, true, true},
    [METHOD_SNAPSHOT] = {handle_snapshot, TOUCH_READS, false, false},
    [METHOD_SCAN] = {handle_scan, TOUCH_READS, false, false},
    [METHOD_LOAD] = {handle_load, TOUCH_STRUCTURE, false, false},
    [METHOD_GET] = {handle_get, TOUCH_READS, false, false},
    [METHOD_KEYS] = {handle_keys, TOUCH_READS, false, false},
    [METHOD_PUT] = {handle_put, TOUCH_STRUCTURE, false, false},
    [METHOD_DRAIN] = {handle_drain, TOUCH_NOTHING, false, true},
    [METHOD_HOT] = {handle_hot, TOUCH_NOTHING, true, false},
    [METHOD_TRACE] = {handle_trace, TOUCH_NOTHING, true, true},
    [METHOD_TICK] = {handle_tick, TOUCH_NOTHING, false, false},
    [METHOD_WRITER] = {handle_writer, TOUCH_READS, false, false},
    [METHOD_WRITERS] = {handle_writers, TOUCH_STRUCTURE, false, false},
    [METHOD_STREAM_OPEN] = {handle_stream_open, TOUCH_CHANGES, false, false},
    [METHOD_IDENTITY] = {handle_identity, TOUCH_NOTHING, true, true},
    [METHOD_TABLE_SET] = {handle_table_set, TOUCH_STRUCTURE, false, false},
    [METHOD_TABLE_STAGE] = {handle_table_stage, TOUCH_STRUCTURE, false, false},
    [METHOD_TABLE_REPLACE] = {handle_table_replace, TOUCH_HOLD, false, false},
    [METHOD_DEVICE_OPEN] = {handle_device_open, TOUCH_NOTHING, false, false},
    [METHOD_DEVICE_CLOSE] = {handle_device_close, TOUCH_STRUCTURE, false, false},
    [METHOD_DEVICE_PULL] = {handle_device_pull, TOUCH_READS, false, false},
    [METHOD_DEVICE_PUSH] = {handle_device_push, TOUCH_CHANGES, false, false},
    [METHOD_FOLLOW] = {handle_follow, TOUCH_NOTHING, true, false},
    [METHOD_PROMOTE] = {handle_promote, TOUCH_NOTHING, false, true},
    [METHOD_CHANGES] = {handle_changes, TOUCH_READS, false, false},
    [METHOD_MOVE] = {handle_move, TOUCH_READS, false, false},
    [METHOD_MOVE_LOAD] = {handle_move_load, TOUCH_HOLD, false, false},
};

/* ---- handling ---- */

static int refuse_loading(struct call *call)
{
    bool is_read = call->reader.method == METHOD_PULL || call->reader.method == METHOD_GET ||
                   call->reader.method == METHOD_KEYS;
    if (following_is_served(call->shard) || (call->shard->narrow != NULL && !is_read))
        return following_refuse_method(call);
    char text[RECOVERY_TEXT_BYTES];
    recovery_tell(call, text);
    return embd__error_set(&call->error, EMBD_LOADING, "%s", text);
}

/* Clients leave the server, and look where their shard is. */
static int refuse_deposed(struct call *call)
{
    char text[RECOVERY_TEXT_BYTES];
    recovery_tell(call, text);
    return embd__error_set(&call->error, EMBD_DRAINING, "%s", text);
}

/* What one may still ask of a shard that has left: where the others are, and what its coordinator
 * has begun with it. Pulls, pushes and erases are refused by their map, and a push that was applied
 * before is answered so. */
static bool is_for_left(int method)
{
    switch (method) {
    case METHOD_PULL:
    case METHOD_PUSH:
    case METHOD_ERASE:
    case METHOD_TABLE_REPLACE:
    case METHOD_MOVE:
        return true;
    default:
        return methods[method].touch == TOUCH_NOTHING && method != METHOD_TICK &&
               method != METHOD_FOLLOW && method != METHOD_PROMOTE && method != METHOD_DEVICE_OPEN;
    }
}

static int check_method(struct call *call)
{
    const struct reader *r = &call->reader;
    struct counters *counters = &call->shard->counters;
    if (r->method < 0 ||
        !(embd__method_listener((enum method)r->method) & call->request->listener)) {
        counters->unknown_methods++;
        return embd__error_set(&call->error, EMBD_UNKNOWN_METHOD,
                               "no method '%s' on the %s listener", r->method_name,
                               call->request->listener == LISTENER_ADMIN ? "admin" : "data");
    }
    const struct method_entry *entry = &methods[r->method];
    if (call->shard->access != NULL && authorize_method(call) != EMBD_OK)
        return call->error.status;
    if (call->shard->is_deposed && !entry->while_draining &&
        call->request->listener == LISTENER_DATA)
        return refuse_deposed(call);
    if (call->shard->draining && !entry->while_draining)
        return embd__error_set(&call->error, EMBD_DRAINING,
                               "shard %u is shutting down and takes no %s",
                               call->shard->config.index, r->method_name);
    if (shard_has_left(call->shard) && !is_for_left(r->method))
        return shard_refuse_left(call);
    if (call->shard->config.failover != NULL && fence_check(call, entry->while_loading) != EMBD_OK)
        return call->error.status;
    if (call->shard->narrow != NULL && (r->method == METHOD_FOLLOW || r->method == METHOD_PROMOTE))
        return following_refuse_method(call);
    if (call->shard->is_loading && !entry->while_loading &&
        !following_serves(call->shard, (enum method)r->method) &&
        !deposing_hears(call->shard, (enum method)r->method))
        return refuse_loading(call);
    if (call->request->session->holds &&
        (entry->touch == TOUCH_CHANGES || entry->touch == TOUCH_STRUCTURE))
        return embd__error_set(&call->error, EMBD_INVALID,
                               "%s changes tables, which this connection holds: release first",
                               r->method_name);
    return EMBD_OK;
}

static int read_request(struct call *call)
{
    int status =
        embd__reader_init(&call->reader, call->request->frame, &call->shard->zone, &call->error);
    return status != EMBD_OK ? status : check_method(call);
}

static enum touch touch_of(struct call *call)
{
    if (call->error.status != EMBD_OK)
        return TOUCH_NOTHING;
    if (call->reader.method == METHOD_PULL && hold_is_on(&call->shard->hold) &&
        call->shard->engine.tables.n_creating > 0) {
        bool creates = pull_creates(call);
        read_request(call); /* again: the bins were consumed */
        return creates ? TOUCH_CHANGES : TOUCH_READS;
    }
    if (call->reader.method == METHOD_MOVE_LOAD && !call->request->session->holds)
        return TOUCH_STRUCTURE;
    if (call->reader.method == METHOD_DEVICE_PULL && call->shard->engine.tables.n_creating > 0)
        return TOUCH_CHANGES; /* its table is not known yet */
    return methods[call->reader.method].touch;
}

static void run(struct call *call, uint64_t began_ns)
{
    struct shard *shard = call->shard;
    call->work = work_new(shard, call->request);
    if (call->work == NULL)
        embd__error_set(&call->error, EMBD_NO_MEMORY, "no memory to handle the request");
    else
        call->work->began_ns = began_ns;
    if (call->error.status == EMBD_OK)
        call_reserve_answer(call, 0);
    if (call->error.status == EMBD_OK) {
        shard->counters.requests[call->reader.method]++;
        call->request->is_push = push_progress_counts(&call->reader);
        if (methods[call->reader.method].handle(call) == CALL_LATER)
            return;
    }
    if (call->error.status == EMBD_OK)
        embd__msg_end(call->answer);
    call_answer(shard, call->request, &call->error);
}

static void park(struct shard *shard, struct request *request, bool for_hold)
{
    shard->counters.parked++;
    if (for_hold && shard->hold.waiting_since_ns == 0)
        shard->hold.waiting_since_ns = request->received_ns;
    hold_park(&shard->hold, request);
}

static void count_wait(struct shard *shard, const struct call *call)
{
    if (call->error.status == EMBD_OK && call->reader.method == METHOD_PUSH)
        shard->counters.pushes_held_us += (shard->now_ns - call->request->received_ns) / 1000;
}

/* When its handling began; 0 if that is not measured. */
static uint64_t begin_stages(const struct call *call)
{
    struct request *request = call->request;
    int method = call->error.status == EMBD_OK ? call->reader.method : -1;
    uint64_t bytes = request->frame->frame_bytes;
    if (!stages_begin(&call->shard->stages, &request->times, method, bytes))
        return 0;
    uint64_t now_ns = clock_ns();
    stages_split(&request->times, bytes, request->received_ns, now_ns);
    return now_ns;
}

/* Requests that are recorded, and take effect in the order of the records. */
static bool is_recorded_in_turn(const struct call *call)
{
    return call->error.status == EMBD_OK &&
           (call->reader.method == METHOD_PUSH || call->reader.method == METHOD_STREAM_OPEN);
}

/* An erase, load, create or drop is being written: until it is applied nothing may change tables,
 * or freeze them; what reads waits only while store calls under way end. */
static bool waits_for_alone(const struct call *call, enum touch touch)
{
    if (call->error.status == EMBD_OK &&
        (call->reader.method == METHOD_SNAPSHOT || call->reader.method == METHOD_CHANGES ||
         call->reader.method == METHOD_MOVE))
        return true;
    return touch == TOUCH_CHANGES || (touch == TOUCH_READS && call->shard->commit.rests);
}

/* Behind a push of its connection whose record is being written, all but pushes wait; and pushes
 * let those go first that wait already, or nothing else would ever find the shard at rest. */
static bool waits_for_record(const struct call *call, enum touch touch, bool was_parked)
{
    const struct shard *shard = call->shard;
    if (shard->engine.n_recorded == 0)
        return false;
    if (shard->commit.is_alone && waits_for_alone(call, touch))
        return true;
    if (is_recorded_in_turn(call))
        return !was_parked && shard->hold.first != NULL;
    return call->request->session->n_journaled > 0;
}

/* For the end of what an earlier push left to do. */
static bool waits_for_sweep(struct call *call, enum touch touch, bool was_parked)
{
    int method = call->error.status == EMBD_OK ? call->reader.method : -1;
    if (touch == TOUCH_STRUCTURE)
        return call->shard->engine.tables.n_swept > 0;
    const struct tables *tables = &call->shard->engine.tables;
    if (method == METHOD_STREAM_OPEN && call->shard->engine.unsure == NULL)
        return false;
    if (method != METHOD_PUSH && method != METHOD_PULL && method != METHOD_STREAM_OPEN)
        return touch == TOUCH_READS && tables->n_late > 0;
    if (method == METHOD_PULL && tables->n_creating + tables->n_late == 0)
        return false;
    bool waits = sweeps_stop(call, was_parked);
    read_request(call); /* again: the bins were consumed */
    return waits;
}

/* The shard comes to rest, so that its journal can be compacted, or its tables are marked. */
static bool rests(const struct shard *shard)
{
    return shard->compacting.state == COMPACTING_RESTS || shard->mark.state == MARK_RESTS ||
           shard->moving.rests;
}

/* Its keys, or gradients, are not written yet. */
static bool waits_at_gate(struct call *call)
{
    int method = call->error.status == EMBD_OK ? call->reader.method : -1;
    if (method != METHOD_DEVICE_PULL && method != METHOD_DEVICE_PUSH)
        return false;
    bool waits = !gate_is_open(call);
    call->error = (struct embd__error){0};
    read_request(call); /* again: the fields were consumed */
    return waits;
}

/* False: it must wait. */
static bool try(struct shard *shard, struct request *request)
{
    struct hold *hold = &shard->hold;
    if (request->session->in_round != NULL || request->session->gated != NULL) {
        if (request->state == REQUEST_PARKED)
            hold_unpark(hold, request);
        else
            shard->counters.parked++;
        behind_park(request->session, request);
        return true;
    }
    struct call call = {.shard = shard, .request = request, .answer = &request->answer};
    read_request(&call);
    push_progress_place(request, &call.reader);
    enum touch touch = touch_of(&call);
    bool was_parked = request->state == REQUEST_PARKED;
    bool is_let_in = hold_is_on(hold) && hold_lets_in(hold, request);
    bool waits = sweeps_may_stop(shard) && waits_for_sweep(&call, touch, was_parked);
    bool stops =
        (!loads_go_on(&call) && (hold_stops(hold, touch, is_let_in, shard_n_in_flight(shard)) ||
                                 waits_for_record(&call, touch, was_parked))) ||
        (touch == TOUCH_HOLD && staging_stops_hold(shard, request->session)) ||
        (rests(shard) && compacting_stops(shard, touch)) || waits;
    if (was_parked && stops)
        return false;
    if (!was_parked && (stops || request->session->n_parked > 0)) {
        request->session->is_behind_sweep |= waits;
        park(shard, request,
             hold_is_on(hold) && (touch == TOUCH_CHANGES || touch == TOUCH_STRUCTURE));
        return true;
    }
    if (was_parked) {
        hold_unpark(hold, request);
        count_wait(shard, &call);
    }
    if (waits_at_gate(&call)) {
        gate_park(shard, request);
        return true;
    }
    if (request->gate.number != 0)
        gate_enter(request);
    run(&call, begin_stages(&call));
    return true;
}

/* Unparks the requests that the hold lets in, and the holder's own, wherever they are in the list,
 * but in the order of their connection. */
static bool try_let_in(struct shard *shard)
{
    struct hold *hold = &shard->hold;
    for (struct request *r = hold_is_on(hold) ? hold->first : NULL; r != NULL; r = r->next)
        if ((r->session->holds || hold_lets_in(hold, r)) && hold_is_first(hold, r) && try(shard, r))
            return true;
    return false;
}

void dispatch_parked(struct shard *shard)
{
    struct hold *hold = &shard->hold;
    if (hold->resuming)
        return;
    hold->resuming = true;
    do
        while (hold->first != NULL && try(shard, hold->first))
            ;
    while (try_let_in(shard) || (shard->engine.rounds.n_waiting > 0 && round_make(shard)));
    hold->resuming = false;
}

void shard_handle(struct shard *shard, struct request *request)
{
    EMBD_ASSERT(request->session != NULL && request->on_answer != NULL);
    request->state = REQUEST_RECEIVED;
    request->has_answer = true;
    request->is_push = request->is_guarded = request->goes_beside = request->is_partial = false;
    request->place_kind = PLACE_UNKNOWN;
    request->stopped_at = 0;
    request->gate.number = 0;
    request->work = NULL;
    request->next = NULL;
    request->times.method = -1;
    request->times.weight = 0;
    shard_tick(shard, request->received_ns);
    if (request->frame->type == 0)
        try(shard, request);
    else
        call_ignore(shard, request);
    dispatch_parked(shard);
}

/* A base would end what is read. */
static bool puts_off_base(const struct shard *shard)
{
    return cut_is_on(shard) || (shard->moving.mover != NULL && moving_reads_all(shard));
}

#define MEMORY_NS 100000000u

static const char *why_memory_is_low(const struct shard *shard)
{
    if (shard->following != NULL || shard->narrow != NULL)
        return "rows of the server that is followed take nine tenths of row_memory here; a "
               "follower refuses none of them, and goes beyond row_memory: give it as much memory "
               "as that server has";
    return "rows take nine tenths of row_memory, or need more than is left; pushes without room "
           "for new rows are refused: erase rows, drop a table, bound tables by capacity, or give "
           "the server more memory";
}

/* Changes other than pushes are counted here; the log reports them before pushes do. */
static void look_at_memory(struct shard *shard)
{
    struct tables *tables = &shard->engine.tables;
    tables_count_all(tables);
    if (!row_memory_is_low(tables->memory))
        return;
    log_event(LOG_WARN, "row_memory_low", "shard=%u used=%llu limit=%llu why=\"%s\"",
              shard->config.index, (unsigned long long)atomic_load(&tables->memory->used),
              (unsigned long long)row_memory_limit(tables->memory), why_memory_is_low(shard));
}

/* Features that depend on the time. Each one that is not in use costs a comparison. True: parked
 * requests may go on. */
static bool look(struct shard *shard, uint64_t now_ns)
{
    struct engine *engine = &shard->engine;
    bool goes_on = false;
    if (engine->tables.memory != NULL && now_ns >= shard->memory_due_ns) {
        shard->memory_due_ns = now_ns + MEMORY_NS;
        look_at_memory(shard);
    }
    if (shard->subscribers.n > 0 && now_ns >= shard->subscribers.due_ns) {
        shard->subscribers.due_ns = now_ns + MEMORY_NS;
        subscribers_look(shard, cut_is_on(shard));
    }
    if (shard->mark.state != MARK_NOT)
        mark_look(shard, now_ns);
    if (stages_is_due(&shard->stages, now_ns))
        stages_tick(&shard->stages, now_ns);
    if (shard->commit.journal != NULL)
        goes_on = compacting_look(shard, puts_off_base(shard));
    if (shard->snapshot.name[0] != '\0')
        snapshot_remove_orphan(shard);
    if (staged_is_any(&engine->tables) && shard->following == NULL && shard->narrow == NULL)
        staging_look(shard);
    if (jobs_is_due(&engine->jobs, shard->now_ns))
        goes_on =
            (jobs_look(&engine->jobs, shard->now_ns) && engine->rounds.n_waiting > 0) || goes_on;
    return goes_on;
}

void shard_tick(struct shard *shard, uint64_t now_ns)
{
    if (now_ns > shard->now_ns)
        shard->now_ns = now_ns;
    if (!look(shard, now_ns) && !hold_is_on(&shard->hold))
        return;
    hold_expire(&shard->hold, now_ns, shard->config.index);
    dispatch_parked(shard);
}

/* The parked may go on where operations have ended, or the shard has come to rest. */
static bool collect_journal(struct shard *shard)
{
    bool ended = false, rested = false, has_more = false;
    if (shard->engine.n_recorded > 0)
        has_more = commit_collect(&shard->commit, &ended);
    if (ended) {
        if (shard->engine.prepared.id != 0 || shard->hold.is_locked)
            staging_lock(shard);
        dispatch_parked(shard);
    }
    if (shard->cut != NULL)
        has_more = cut_collect(shard) || has_more;
    if (shard->disk_phase != NULL)
        disk_phase_collect(shard);
    if (shard->fetch != NULL)
        snapshot_fetch_collect(shard);
    if (shard->compacting.state != COMPACTING_NOT)
        has_more = compacting_collect(shard, puts_off_base(shard), &rested) || has_more;
    if (shard->mark.state != MARK_NOT)
        has_more = mark_collect(shard, &rested) || has_more;
    if (shard->moving.has_foreign && !rested)
        has_more = moving_collect(shard, &rested) || has_more;
    has_more = has_more || shard->moving.read.request != NULL;
    if (rested)
        dispatch_parked(shard);
    return has_more;
}

/* Makes a slice of what pushes left to do. Whether there are more. */
static bool sweep(struct shard *shard)
{
    struct tables *tables = &shard->engine.tables;
    if (tables->n_swept > 0 && tables_sweep(tables))
        dispatch_parked(shard);
    return tables->n_swept > 0;
}

/* Its threads have news. While the shard loads it looks each time: what is refused then stops it
 * behind the loading. */
static void heed_identity(struct shard *shard)
{
    uint64_t news = atomic_load_explicit(shard->config.identity_news, memory_order_acquire);
    if (news == shard->identity_heeded)
        return;
    shard->identity_heeded = shard->is_loading ? 0 : news;
    shard->is_asked = identity_asked_decision(shard->config.identity) != 0;
    recovery_heed_identity(shard);
}

/* The parked go on behind all stores: what they do may drop a table. */
static void collect_stores(struct shard *shard)
{
    struct engine *engine = &shard->engine;
    shard->is_collecting = true;
    for (uint32_t i = 0; i < engine->tables.n && engine->n_in_flight > 0; i++)
        engine->tables.ops->collect(engine->tables.by_name[i]->store);
    shard->is_collecting = false;
    if (!shard->has_returned)
        return;
    shard->has_returned = false;
    dispatch_parked(shard);
}

bool shard_collect(struct shard *shard)
{
    struct engine *engine = &shard->engine;
    if (shard->config.identity != NULL)
        heed_identity(shard);
    if (doubt_may_be(shard) && doubt_look(shard))
        dispatch_parked(shard);
    bool loads = shard->is_loading && recovery_go_on(shard);
    collect_stores(shard);
    bool has_more = sweep(shard);
    has_more = collect_journal(shard) || has_more;
    if (shard->gated != NULL && gates_look(shard))
        dispatch_parked(shard);
    has_more = has_more || shard->gated != NULL;
    if (shard->teller != NULL)
        deposing_look(shard);
    if (shard->feeding.n > 0)
        has_more = feeding_look(shard) || has_more;
    else if (shard->feeding.times != NULL)
        feeding_note_times(shard);
    if (shard->feeding.n == 0 && replicated_waits(&shard->replicated))
        replicated_look(shard);
    return loads || has_more || engine->n_in_flight > 0;
}

/* ---- ends of requests ---- */

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
    if (shard->moving.read.request == request)
        moving_read_forget(shard, request);
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
    if (request->work->is_streaming)
        pull_end_streaming(request->work);
    work_free(request->work);
}
