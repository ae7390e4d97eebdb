/* push.c - a push or insert, once its keys are grouped: keys and gradients go to their owners,
 * which plan what they create. With all plans, the host takes room and memory on every device; only
 * then does any device change. */
#include "server/store/candidates.h"
#include "server/store/cuda/insert_plan.h"
#include "server/store/cuda/push.h"
#include "server/store/nccl/group.h"

#include <stdlib.h>
#include <string.h>

/* Opens a call of the cuda store, with inputs from the exchange. */
static int open_call(struct flow *flow, struct member *m)
{
    struct call *call = call_new(m->table);
    if (call == NULL)
        return DEVICE_NO_MEMORY;
    m->call = call;
    call->kind = flow->kind;
    call->change = &m->push;
    call->may_drop = flow->may_drop;
    cuda_set_now(m->table, flow->change->seconds);
    call->in = m->in;
    call->statuses = flow->lanes[LANE_STATUSES].bytes ? m->lanes[LANE_STATUSES].owner : NULL;
    call->inputs[IN_OFFSETS].from = m->in.offsets;
    call->inputs[IN_VALUES].on_device = m->lanes[LANE_GRADS].owner;
    call->inputs[IN_SCORES].on_device = m->lanes[LANE_SCORES].owner;
    m->push.dtype = flow->kind == CALL_PUSH ? flow->change->dtype : EMBD_DTYPE_F32;
    m->push.lr = flow->kind == CALL_PUSH ? flow->change->lr : 0.0f;
    call->staging_bytes = sizeof *call->report;
    call->staging = buffer_new(call->staging_bytes);
    call->report = (struct plan_report *)(void *)call->staging;
    return call->staging ? 0 : DEVICE_NO_MEMORY;
}

static int take_memory(struct flow *flow, uint32_t device)
{
    struct member *m = &flow->members[device];
    struct arena arena = {.base = NULL};
    exchange_lay_out(flow, device, &arena);
    int status = device_use(m->table->device);
    if (status == 0)
        status = block_need(&m->owner, arena.bytes);
    if (status != 0)
        return status;
    arena = (struct arena){.base = m->owner.memory};
    exchange_lay_out(flow, device, &arena);
    status = open_call(flow, m);
    for (int turn = 0; turn < 2 && status == 0; turn++) {
        arena = (struct arena){.base = m->call->scratch};
        insert_plan_lay_out(m->call, &arena);
        if (turn == 0)
            status = device_new(&m->call->scratch, arena.bytes, m->table->stream);
    }
    return status;
}

static int plan_all(struct flow *flow)
{
    struct group *group = flow->group;
    uint64_t room = group_room(group);
    int status = 0;
    for (uint32_t d = 0; d < group->n && status == 0; d++) {
        group_set_room(group->tables[d], room);
        status = device_use(group->tables[d]->device);
        if (status == 0)
            status = insert_plan_start(flow->members[d].call);
    }
    return status;
}

/* The numbers of the table as a whole decide. */
static void decide_candidates(struct flow *flow)
{
    const struct group *group = flow->group;
    uint64_t n_rows = 0, n_candidates = 0;
    for (uint32_t d = 0; d < group->n; d++) {
        n_rows += group->tables[d]->n_rows;
        n_candidates += group->tables[d]->n_candidates;
    }
    bool forgets = flow->n_keys > 0 &&
                   candidates_are_forgotten(group->schema->s.admit_after, n_rows, n_candidates);
    for (uint32_t d = 0; d < group->n; d++)
        flow->members[d].call->forgets = forgets;
}

int push_plan(struct flow *flow)
{
    int status = 0;
    for (uint32_t d = 0; d < flow->group->n && status == 0; d++)
        status = take_memory(flow, d);
    if (status == 0)
        decide_candidates(flow);
    if (status == 0)
        status = exchange_out(flow);
    return status ? status : plan_all(flow);
}

/* ---- less room than keys that need it ---- */

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Copies the key orders of all homes, one behind the other: place among grouped keys to place in
 * the batch. */
static int copy_orders(const struct flow *flow, uint32_t *orders)
{
    int status = 0;
    for (uint32_t d = 0; d < flow->group->n && status == 0; d++) {
        const struct member *m = &flow->members[d];
        status = device_use(m->table->device);
        if (status == 0)
            status = device_copy(orders, m->route.key_order, m->batch.n_keys * sizeof *orders,
                                 m->table->stream);
        if (status == 0)
            status = device_stream_wait(m->table->stream);
        orders += m->batch.n_keys;
    }
    return status;
}

/* Finds the places in the request, rising, of all keys that need a row of this owner. `at`: scratch
 * for as many. */
static int find_places(const struct flow *flow, uint32_t owner, const uint32_t *orders,
                       uint32_t *at, uint64_t *places)
{
    const struct member *m = &flow->members[owner];
    const struct starts *got = &flow->keys.got[owner];
    uint32_t n = m->call->report->n_leaders;
    uint64_t first = 0; /* first key of the home in the request */
    int status = device_use(m->table->device);
    if (status == 0)
        status = device_copy(at, m->call->plan.leaders, n * sizeof *at, m->table->stream);
    if (status == 0)
        status = device_stream_wait(m->table->stream);
    for (uint32_t i = 0, home = 0; i < n && status == 0; i++) {
        while (got->at[home + 1] <= at[i])
            first += flow->members[home++].batch.n_keys;
        places[i] = first + orders[first + flow->keys.sent[home].at[owner] + at[i] - got->at[home]];
    }
    return status;
}

/* Gives a member `room` rows. The device counts again how many of the leaders with room have an
 * entry. */
static int share_out(const struct member *m, uint64_t room)
{
    struct call *call = m->call;
    void *stream = m->table->stream;
    uint32_t *n_promoted = &call->plan.report->n_promoted;
    group_set_room(m->table, room);
    int status = device_use(m->table->device);
    if (status == 0)
        status = device_fill(n_promoted, 0, sizeof *n_promoted, stream);
    if (status == 0 && call->in.n)
        status = launch_count(call->in, call->plan, room, stream);
    if (status == 0)
        status = device_copy(&call->report->n_promoted, n_promoted, sizeof *n_promoted, stream);
    return status ? status : device_stream_wait(stream);
}

/* The first keys of the request get the room: each owner gets those before the first key without
 * room. */
static int ration_among(struct flow *flow, const uint64_t *places, uint64_t end)
{
    int status = 0;
    for (uint32_t d = 0; d < flow->group->n && status == 0; d++) {
        uint32_t n = flow->members[d].call->report->n_leaders, n_fit = 0;
        while (n_fit < n && places[n_fit] < end)
            n_fit++;
        places += n;
        status = share_out(&flow->members[d], n_fit);
    }
    return status;
}

static int ration(struct flow *flow, uint64_t room, uint64_t n_leaders)
{
    uint64_t *places = calloc(2 * n_leaders, sizeof *places), *sorted = places + n_leaders, at = 0;
    uint32_t *orders = calloc(flow->n_keys + n_leaders, sizeof *orders);
    int status = places && orders ? copy_orders(flow, orders) : DEVICE_NO_MEMORY;
    for (uint32_t d = 0; d < flow->group->n && status == 0; d++) {
        status = find_places(flow, d, orders, orders + flow->n_keys, places + at);
        at += flow->members[d].call->report->n_leaders;
    }
    if (status == 0) {
        memcpy(sorted, places, n_leaders * sizeof *sorted);
        qsort(sorted, n_leaders, sizeof *sorted, compare);
        status = ration_among(flow, places, sorted[room]);
    }
    free(places);
    free(orders);
    return status;
}

/* ---- commit ---- */

static int take_room(struct flow *flow, bool *again, struct embd__error *e)
{
    struct group *group = flow->group;
    uint64_t room = group_room(group), n_leaders = 0;
    for (uint32_t d = 0; d < group->n; d++)
        n_leaders += flow->members[d].call->report->n_leaders;
    if (n_leaders <= room)
        return EMBD_OK;
    if (group_evict(flow, n_leaders, room, again, e) != EMBD_OK)
        return e->status;
    if (!*again && !flow->may_drop)
        return group_refuse(group, n_leaders, room, e);
    int status = *again ? plan_all(flow) : ration(flow, room, n_leaders);
    return status ? group_error(group, status, "counting keys without room", e) : EMBD_OK;
}

/* Turns a member's error, which already names the table, into the group's. */
static int adopt(struct group *group, const struct store *table, struct embd__error *e)
{
    if (table->failed)
        return group_error(group, WIRE_LOST, "changing rows", e);
    return e->status;
}

static int commit(struct flow *flow, struct embd__error *e)
{
    struct group *group = flow->group;
    for (uint32_t d = 0; d < group->n; d++)
        if (device_use(group->tables[d]->device) != 0 ||
            push_reserve(flow->members[d].call, e) != EMBD_OK)
            return adopt(group, group->tables[d], e);
    for (uint32_t d = 0; d < group->n; d++) {
        struct call *call = flow->members[d].call;
        int status = device_use(group->tables[d]->device);
        if (status != 0)
            return group_error(group, status, "changing rows", e);
        if (push_commit(call, e) != EMBD_OK) {
            group_error(group, WIRE_LOST, "changing rows", e);
            return e->status;
        }
        flow->n_inserted += call->n_inserted;
        flow->n_full += call->n_full;
        flow->n_filtered += call->report->n_filtered;
    }
    flow->step = flow->kind == CALL_PUSH ? group->tables[0]->step : 0;
    return EMBD_OK;
}

static int answer(struct flow *flow)
{
    int status = 0;
    if (flow->lanes[LANE_STATUSES].bytes == 0)
        return 0;
    status = exchange_back(flow, LANE_STATUSES);
    for (uint32_t d = 0; d < flow->group->n && status == 0; d++) {
        const struct member *m = &flow->members[d];
        status = device_use(m->table->device);
        if (status == 0)
            status = device_copy(m->batch.statuses, m->lanes[LANE_STATUSES].home, m->batch.n_keys,
                                 flow->group->finish_streams[d]);
    }
    return status;
}

/* Counts keys with room for the table as a whole: which ones get it does not matter here. */
int push_decide(struct flow *flow, struct embd__error *e)
{
    struct group *group = flow->group;
    uint64_t room = group_room(group), n_leaders = 0, n_filtered = 0;
    bool again = false;
    for (uint32_t d = 0; d < group->n; d++) {
        n_leaders += flow->members[d].call->report->n_leaders;
        n_filtered += flow->members[d].call->report->n_filtered;
    }
    if (n_leaders > room && group_evict(flow, n_leaders, room, &again, e) != EMBD_OK)
        return e->status;
    room += flow->n_evicted;
    if (n_leaders > room && !flow->may_drop)
        return group_refuse(group, n_leaders, room, e);
    for (uint32_t d = 0; d < group->n && n_leaders <= room && flow->n_evicted == 0; d++)
        if (device_use(group->tables[d]->device) != 0 ||
            push_reserve(flow->members[d].call, e) != EMBD_OK)
            return adopt(group, group->tables[d], e);
    flow->change->n_inserted = (uint32_t)(n_leaders < room ? n_leaders : room);
    flow->change->n_full = (uint32_t)n_leaders - flow->change->n_inserted;
    flow->change->n_filtered = (uint32_t)n_filtered;
    flow->change->n_evicted = flow->n_evicted;
    return EMBD_OK;
}

int push_run(struct flow *flow, bool *again, struct embd__error *e)
{
    if (take_room(flow, again, e) != EMBD_OK)
        return e->status;
    if (*again)
        return EMBD_OK;
    if (commit(flow, e) != EMBD_OK)
        return e->status;
    int status = answer(flow);
    return status ? group_error(flow->group, status, "answering a push", e) : EMBD_OK;
}
