/* passage.c - the way from homes to owners and back. With peer access one kernel of the home stores
 * to, or loads from, the memory of every owner. Without, what goes out is first put in a row in the
 * home's own memory, or lies there in a row when it came back, and NCCL does the rest. */
#include "group.h"

static uint32_t between(const struct starts *s, uint32_t device)
{
    return s->at[device + 1] - s->at[device];
}

static void set_got(struct space *space, uint32_t n)
{
    for (uint32_t owner = 0; owner < n; owner++) {
        space->got[owner].at[0] = 0;
        for (uint32_t home = 0; home < n; home++)
            space->got[owner].at[home + 1] =
                space->got[owner].at[home] + between(&space->sent[home], owner);
    }
}

void passage_count(struct flow *flow)
{
    uint32_t n = flow->group->n;
    for (uint32_t d = 0; d < n; d++) {
        flow->items.sent[d] = flow->members[d].report->items;
        flow->keys.sent[d] = flow->members[d].report->keys;
    }
    set_got(&flow->items, n);
    set_got(&flow->keys, n);
}

void passage_lay_out(struct flow *flow, uint32_t device, struct arena *arena)
{
    struct member *m = &flow->members[device];
    uint32_t n = flow->group->n;
    uint64_t row_bytes = 0;
    for (int i = 0; i < LANES; i++) {
        const struct lane_shape *lane = &flow->lanes[i];
        if (lane->bytes == 0 || (i == LANE_ROWS && flow->is_delivered))
            continue;
        uint64_t sent = (uint64_t)lane->space->sent[device].at[n] * lane->bytes;
        m->lanes[i].owner =
            arena_take(arena, (uint64_t)lane->space->got[device].at[n] * lane->bytes);
        row_bytes = sent > row_bytes ? sent : row_bytes;
    }
    m->row = arena_take(arena, wire_is_peer() ? 0 : row_bytes);
    m->in = (struct keys_view){
        .n = flow->keys.got[device].at[n],
        .n_rows = flow->items.got[device].at[n],
        .keys = (const uint64_t *)(void *)m->lanes[LANE_KEYS].owner,
        .slots = (const uint16_t *)(void *)m->lanes[LANE_SLOTS].owner,
        .weights = (const float *)(void *)m->lanes[LANE_WEIGHTS].owner,
    };
    if (flow->lanes[LANE_LENGTHS].bytes) {
        m->offsets = arena_take(arena, (m->in.n_rows + 1ull) * sizeof *m->offsets);
        m->temp = arena_take(arena, sum_bytes(m->in.n_rows));
        m->in.offsets = m->offsets;
    }
}

/* Where the things of a home lie with their owners. */
static struct parcels parcels_of(const struct flow *flow, enum lane lane, uint32_t home)
{
    const struct lane_shape *shape = &flow->lanes[lane];
    struct parcels parcels = {
        .n = flow->group->n, .first = home, .starts = shape->space->sent[home]};
    for (uint32_t owner = 0; owner < parcels.n; owner++)
        parcels.at[owner] = flow->members[owner].lanes[lane].owner +
                            (uint64_t)shape->space->got[owner].at[home] * shape->bytes;
    return parcels;
}

/* In a row, in the home's own memory. */
static struct parcels parcels_in_row(const struct flow *flow, enum lane lane, uint32_t home)
{
    struct parcels parcels = {.n = 1, .at = {flow->members[home].row}};
    parcels.starts.at[1] = flow->lanes[lane].space->sent[home].at[flow->group->n];
    return parcels;
}

static int move_lane(struct flow *flow, enum lane lane, bool is_outward)
{
    struct group *group = flow->group;
    int status = 0;
    for (uint32_t home = 0; home < group->n && status == 0; home++) {
        const struct lane_ends *ends = &flow->members[home].lanes[lane];
        struct parcels parcels =
            wire_is_peer() ? parcels_of(flow, lane, home) : parcels_in_row(flow, lane, home);
        status = device_use(group->tables[home]->device);
        if (status == 0)
            status = launch_move(parcels, ends->order, ends->home, flow->lanes[lane].bytes,
                                 is_outward, group->tables[home]->stream);
    }
    return status;
}

static int exchange(struct flow *flow, enum lane lane, bool is_outward)
{
    const struct lane_shape *shape = &flow->lanes[lane];
    uint32_t n = flow->group->n;
    uint64_t counts[WIRE_MAX][WIRE_MAX];
    uint8_t *rows[WIRE_MAX], *owners[WIRE_MAX];
    void *streams[WIRE_MAX];
    for (uint32_t d = 0; d < n; d++) {
        const struct starts *from = is_outward ? &shape->space->sent[d] : &shape->space->got[d];
        for (uint32_t e = 0; e < n; e++)
            counts[d][e] = (uint64_t)between(from, e) * shape->bytes;
        rows[d] = flow->members[d].row;
        owners[d] = flow->members[d].lanes[lane].owner;
        streams[d] = flow->group->tables[d]->stream;
    }
    return is_outward ? wire_all_to_all(streams, rows, owners, counts)
                      : wire_all_to_all(streams, owners, rows, counts);
}

static int lane_out(struct flow *flow, enum lane lane)
{
    int status = move_lane(flow, lane, true);
    return status || wire_is_peer() ? status : exchange(flow, lane, true);
}

int passage_back(struct flow *flow, enum lane lane)
{
    int status = wire_is_peer() ? group_meet(flow) : exchange(flow, lane, false);
    return status ? status : move_lane(flow, lane, false);
}

static int sum_lengths(struct flow *flow)
{
    int status = 0;
    for (uint32_t d = 0; d < flow->group->n && status == 0; d++) {
        struct member *m = &flow->members[d];
        status = device_use(m->table->device);
        if (status == 0)
            status = launch_sums(m->temp, sum_bytes(m->in.n_rows),
                                 (const uint32_t *)(void *)m->lanes[LANE_LENGTHS].owner,
                                 m->offsets, m->in.n_rows, m->table->stream);
    }
    return status;
}

int passage_out(struct flow *flow)
{
    int status = 0;
    for (int lane = 0; lane < LANES_OUT && status == 0; lane++)
        if (flow->lanes[lane].bytes)
            status = lane_out(flow, (enum lane)lane);
    if (status == 0 && wire_is_peer())
        status = group_meet(flow);
    return status || flow->lanes[LANE_LENGTHS].bytes == 0 ? status : sum_lengths(flow);
}
