/* queue.c - the calls of a group, in the order made.
 *
 * A call's items are grouped on the devices at once, because that does not need the table. The rest
 * of a call follows when all calls before it are enqueued. flow_collect moves calls on, and calls
 * the done of those that have ended, in their order.
 *
 * What can fail: memory, which fails the call and changes nothing; and the devices. A device's
 * error, an error of the wire, or a call that takes longer than group_patience_ms fails the group
 * for good: the wire is aborted, every call is answered, and nothing waits for the devices any
 * more. */
#include "server/store/nccl/group.h"

#include <string.h>

#include "proto/assert.h"

/* ---- from new to ended ---- */

/* The states that may follow each state, as bits. */
static const unsigned allowed[FLOW_STATES] = {
    [FLOW_NEW] = 1u << FLOW_ROUTED | 1u << FLOW_ENDED,
    [FLOW_ROUTED] = 1u << FLOW_PLANNED | 1u << FLOW_ENQUEUED | 1u << FLOW_ENDED,
    [FLOW_PLANNED] = 1u << FLOW_REPLANNED | 1u << FLOW_ENQUEUED | 1u << FLOW_ENDED,
    [FLOW_REPLANNED] = 1u << FLOW_ENQUEUED | 1u << FLOW_ENDED,
    [FLOW_ENQUEUED] = 1u << FLOW_ENDED,
    [FLOW_ENDED] = 0,
};

static void move_to(struct flow *flow, enum flow_state state)
{
    EMBD_ASSERT(allowed[flow->state] & 1u << state);
    flow->state = state;
}

static void end(struct flow *flow, int status)
{
    flow->status = status;
    move_to(flow, FLOW_ENDED);
}

static void fail(struct flow *flow, int status, const char *what)
{
    end(flow, group_error(flow->group, status, what, &flow->done->error));
}

/* The devices are done with the call: hands its results over. */
static void finish(struct flow *flow)
{
    if (flow->statuses_out && flow->n_keys)
        memcpy(flow->statuses_out, flow->statuses, flow->n_keys);
    if (flow->values_out && flow->values_bytes)
        memcpy(flow->values_out, flow->values, flow->values_bytes);
    if (flow->kind != CALL_PULL) {
        flow->change->n_inserted = flow->n_inserted;
        flow->change->n_full = flow->n_full;
        flow->change->n_filtered = flow->n_filtered;
        flow->change->n_evicted = flow->n_evicted;
    }
    end(flow, EMBD_OK);
}

static void *const *streams_of(const struct flow *flow)
{
    const struct group *group = flow->group;
    if (flow->ends_on == ON_ROUTE_STREAMS)
        return group->route_streams;
    return flow->ends_on == ON_TABLE_STREAMS ? group->table_streams : group->finish_streams;
}

/* Records an event behind the last work of the call, and moves it to `state`. */
static void record(struct flow *flow, enum flow_state state)
{
    struct group *group = flow->group;
    void *const *last = streams_of(flow);
    int status = 0;
    for (uint32_t d = 0; d < group->n && status == 0; d++) {
        status = device_use(flow->members[d].table->device);
        if (status == 0)
            status = device_event_record(flow->members[d].event, last[d]);
    }
    move_to(flow, state);
    flow->deadline_ms = wire_now_ms() + group_patience_ms;
    if (status != 0)
        fail(flow, status, "recording an event");
}

static void run_planned(struct flow *flow)
{
    bool again = false;
    if (flow->is_only_planned)
        end(flow, push_decide(flow, &flow->done->error));
    else if (push_run(flow, &again, &flow->done->error) == EMBD_OK)
        record(flow, again ? FLOW_REPLANNED : FLOW_ENQUEUED);
    else
        end(flow, flow->done->error.status);
}

static void run(struct flow *flow)
{
    int status;
    if (flow->state != FLOW_ROUTED) {
        run_planned(flow);
        return;
    }
    flow->ends_on = ON_TABLE_STREAMS;
    exchange_count(flow);
    status = flow->kind == CALL_PULL ? pull_run(flow) : push_plan(flow);
    if (status != 0)
        fail(flow, status, "running a call");
    else
        record(flow, flow->kind == CALL_PULL ? FLOW_ENQUEUED : FLOW_PLANNED);
}

/* Whether all devices have reached the recorded events. */
static bool is_there(struct flow *flow)
{
    for (uint32_t d = 0; d < flow->group->n; d++) {
        int error = 0, state = device_event_query(flow->members[d].event, &error);
        if (error != 0) {
            fail(flow, error, "running a call");
            return true;
        }
        if (state == DEVICE_PENDING)
            return false;
    }
    return true;
}

static void check_patience(struct flow *flow)
{
    struct group *group = flow->group;
    if (wire_check() != 0) {
        fail(flow, WIRE_LOST, "running a call");
    } else if (wire_now_ms() > flow->deadline_ms) {
        group_lose_patience(group);
        end(flow, embd__error_set(&flow->done->error, EMBD_INTERNAL, "%s", group->why));
    }
}

/* Moves a call on. All calls before it are enqueued. False: the next call cannot follow yet. */
static bool advance(struct flow *flow)
{
    while (flow->state != FLOW_ENDED) {
        if (flow->group->failed) {
            end(flow, embd__error_set(&flow->done->error, EMBD_INTERNAL, "%s", flow->group->why));
        } else if (!is_there(flow)) {
            check_patience(flow);
            if (flow->state != FLOW_ENDED)
                return flow->state == FLOW_ENQUEUED;
        } else if (flow->state == FLOW_ENQUEUED) {
            finish(flow);
        } else if (flow->state != FLOW_ENDED) { /* is_there may have ended it */
            run(flow);
        }
    }
    return true;
}

static void advance_all(struct group *group)
{
    for (struct flow *flow = group->first; flow != NULL && advance(flow); flow = flow->next)
        ;
}

static struct store_ticket *ticket_of(const struct flow *flow)
{
    return flow->kind == CALL_PULL ? &flow->pull->ticket : &flow->change->ticket;
}

static void use_up(struct group *group, struct store_ticket *ticket)
{
    group->n_promised -= ticket->n_keys;
    *ticket = (struct store_ticket){0};
}

static void unlink_flow(struct group *group, struct flow *flow)
{
    struct flow **at = &group->first, *before = NULL;
    while (*at != flow) {
        before = *at;
        at = &before->next;
    }
    *at = flow->next;
    if (group->last == flow)
        group->last = before;
    if (flow->step > group->step)
        group->step = flow->step;
    use_up(group, ticket_of(flow));
}

/* Removes an ended call and calls its done, which may make new calls. */
static void call_done(struct flow *flow)
{
    struct store_done *done = flow->done;
    int status = flow->status;
    unlink_flow(flow->group, flow);
    flow_free(flow);
    done->fn(done, status);
}

bool flow_collect(struct group *group)
{
    advance_all(group);
    while (group->first != NULL && group->first->state == FLOW_ENDED)
        call_done(group->first);
    return group->first != NULL;
}

void flow_wait_all(struct group *group)
{
    for (struct flow *flow = group->first; flow != NULL; flow = flow->next)
        while (flow->state != FLOW_ENDED)
            advance(flow);
}

int flow_cancel(struct group *group, struct store_ticket *ticket)
{
    struct flow *flow = group->first;
    while (flow != NULL && ticket_of(flow) != ticket)
        flow = flow->next;
    if (flow == NULL) {
        use_up(group, ticket);
        return EMBD_OK;
    }
    flow_wait_all(group);
    int status = flow->status;
    unlink_flow(group, flow);
    flow_free(flow);
    return status;
}

/* ---- submit ---- */

/* Whether items go in parts. It changes the order in which a pull adds; a push gives the same bits,
 * and takes whichever is fewer. */
static bool goes_in_parts(const struct flow *flow)
{
    const struct group *group = flow->group;
    uint64_t n_rows = 0, n_keys = 0;
    for (uint32_t d = 0; d < group->n; d++) {
        n_rows += flow->members[d].batch.n_rows;
        n_keys += flow->members[d].batch.n_keys;
    }
    if (flow->item == ITEM_ROW || !flow->has_offsets)
        return false;
    return flow->kind == CALL_PULL ? group->has_parts
                                   : flow->kind == CALL_PUSH && n_rows * group->n < n_keys;
}

static uint32_t answer_bytes(const struct flow *flow)
{
    const struct table_view *t = &flow->group->tables[0]->view;
    if (flow->item == ITEM_ROW)
        return t->dim * element_bytes(flow->pull->dtype);
    return flow->item == ITEM_PART ? t->dim * (uint32_t)sizeof(float) : t->stride;
}

/* Sets the lanes of this call. */
static void set_lanes(struct flow *flow)
{
    const struct group *group = flow->group;
    const struct device_batch *b = &flow->members[0].batch;
    const struct table_view *t = &group->tables[0]->view;
    bool is_pull = flow->kind == CALL_PULL;
    flow->has_offsets = b->offsets != NULL;
    if (goes_in_parts(flow))
        flow->item = ITEM_PART;
    const struct route_counts *items = &flow->items, *keys = &flow->keys;
    struct lane_shape *lanes = flow->lanes;
    lanes[LANE_KEYS] = (struct lane_shape){keys, sizeof(uint64_t)};
    if (flow->item == ITEM_ROW)
        lanes[LANE_SLOTS] = (struct lane_shape){items, sizeof(uint16_t)};
    if (flow->item == ITEM_PART || (flow->item == ITEM_ROW && flow->has_offsets))
        lanes[LANE_STARTS] = (struct lane_shape){items, sizeof(uint32_t)};
    if (b->weights && (flow->item != ITEM_KEY || !is_pull))
        lanes[LANE_WEIGHTS] = (struct lane_shape){keys, sizeof(float)};
    if (b->scores)
        lanes[LANE_SCORES] = (struct lane_shape){keys, sizeof(float)};
    if (flow->kind == CALL_PUSH)
        lanes[LANE_GRADS] = (struct lane_shape){items, t->dim * element_bytes(flow->change->dtype)};
    if (is_pull)
        lanes[LANE_ROWS] = (struct lane_shape){items, answer_bytes(flow)};
    if (flow_stores_at_home(flow) && flow->item != ITEM_PART)
        lanes[LANE_PLACES] = (struct lane_shape){items, sizeof(uint32_t)};
    if (b->statuses)
        lanes[LANE_STATUSES] = (struct lane_shape){keys, 1};
}

/* After a failed start: waits for work that some devices got, because it uses memory that is
 * reused. */
static void wait_for_devices(const struct group *group)
{
    for (uint32_t d = 0; d < group->n && !group->failed; d++)
        if (device_use(group->tables[d]->device) == 0)
            device_stream_wait(group->route_streams[d]);
}

static void start(struct flow *flow, bool is_there_already)
{
    struct group *group = flow->group;
    int status = is_there_already ? 0 : batch_cut(flow);
    if (status == 0) {
        set_lanes(flow);
        status = batch_route(flow, is_there_already);
    }
    if (status != 0) {
        fail(flow, status, "starting a call");
        wait_for_devices(group);
    } else {
        record(flow, FLOW_ROUTED);
    }
}

static struct flow *submit(struct group *group, enum call_kind kind, struct store_done *done)
{
    done->error.status = EMBD_OK;
    if (group->failed) {
        done->fn(done, embd__error_set(&done->error, EMBD_INTERNAL, "%s", group->why));
        return NULL;
    }
    struct flow *flow = flow_new(group);
    if (flow == NULL) {
        done->fn(done, group_error(group, DEVICE_NO_MEMORY, "for a call", &done->error));
        return NULL;
    }
    flow->kind = kind;
    flow->done = done;
    flow->item = group->schema->s.partition == EMBD_PARTITION_SLOT ? ITEM_ROW : ITEM_KEY;
    if (group->last)
        group->last->next = flow;
    else
        group->first = flow;
    group->last = flow;
    return flow;
}

void flow_submit(struct group *group, enum call_kind kind, void *request, struct store_done *done)
{
    struct flow *flow = submit(group, kind, done);
    if (flow == NULL) {
        if (kind != CALL_PULL)
            use_up(group, &((struct store_change *)request)->ticket);
        return;
    }
    if (kind == CALL_PULL)
        flow->pull = request;
    else
        flow->change = request;
    flow->may_drop = kind != CALL_PULL && store_may_drop(flow->change);
    start(flow, false);
    advance_all(group);
}

void flow_plan(struct group *group, struct store_change *insert, bool may_drop,
               struct store_done *done)
{
    struct flow *flow = submit(group, CALL_INSERT, done);
    if (flow == NULL)
        return;
    flow->change = insert;
    flow->is_only_planned = true;
    flow->may_drop = may_drop;
    start(flow, false);
    flow_wait_all(group);
    call_done(flow);
}

uint64_t flow_most_coming(const struct group *group)
{
    uint64_t n = 0;
    for (const struct flow *flow = group->first; flow != NULL; flow = flow->next)
        n += flow->state != FLOW_ENDED && flow->kind != CALL_PULL ? flow->n_keys : 0;
    return n;
}

void flow_submit_batches(struct group *group, struct store_pull *pull,
                         const struct device_batch batches[], struct store_done *done)
{
    struct flow *flow = submit(group, CALL_PULL, done);
    struct arena arena = {.base = NULL};
    if (flow == NULL)
        return;
    flow->pull = pull;
    flow->pinned_bytes = group->n * sizeof(struct route_report) + WIRE_MAX * 256;
    flow->pinned = buffer_new(flow->pinned_bytes);
    if (flow->pinned == NULL) {
        fail(flow, DEVICE_NO_MEMORY, "for a call");
        return;
    }
    arena.base = flow->pinned;
    for (uint32_t d = 0; d < group->n; d++) {
        flow->members[d].batch = batches[d];
        flow->members[d].report = arena_take(&arena, sizeof(struct route_report));
    }
    start(flow, true);
    advance_all(group);
}
