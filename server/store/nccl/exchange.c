/* exchange.c - moves items from homes to owners, and results back.
 *
 * With peer access one kernel of the home stores to, or loads from, the memory of every owner.
 * Without it, the home groups outgoing bytes in its own memory, unless they lie grouped, and
 * returning bytes arrive grouped; NCCL carries them. Bytes that stay on a device never go by NCCL:
 * the same kernels move them, and the lookup stores its rows in their places (pull.c). */
#include "server/store/nccl/group.h"

static uint32_t between(const struct starts *s, uint32_t device)
{
    return s->at[device + 1] - s->at[device];
}

static void set_got(struct route_counts *counts, uint32_t n)
{
    for (uint32_t owner = 0; owner < n; owner++) {
        counts->got[owner].at[0] = 0;
        for (uint32_t home = 0; home < n; home++)
            counts->got[owner].at[home + 1] =
                counts->got[owner].at[home] + between(&counts->sent[home], owner);
    }
}

void exchange_count(struct flow *flow)
{
    uint32_t n = flow->group->n;
    for (uint32_t d = 0; d < n; d++) {
        flow->items.sent[d] = flow->members[d].report->items;
        flow->keys.sent[d] = flow->members[d].report->keys;
    }
    set_got(&flow->items, n);
    set_got(&flow->keys, n);
}

void exchange_lay_out(struct flow *flow, uint32_t device, struct arena *arena)
{
    struct member *m = &flow->members[device];
    uint32_t n = flow->group->n;
    for (int i = 0; i < LANES; i++) {
        const struct lane_shape *lane = &flow->lanes[i];
        struct lane_ends *ends = &m->lanes[i];
        if (lane->bytes == 0)
            continue;
        ends->row = ends->home;
        if (!wire_is_peer() && ends->order != NULL)
            ends->row = arena_take(arena, (uint64_t)lane->counts->sent[device].at[n] * lane->bytes);
        if (i != LANE_ROWS || !flow_stores_at_home(flow))
            ends->owner =
                arena_take(arena, (uint64_t)lane->counts->got[device].at[n] * lane->bytes);
    }
    m->in = (struct keys_view){
        .n = flow->keys.got[device].at[n],
        .n_rows = flow->items.got[device].at[n],
        .keys = (const uint64_t *)(void *)m->lanes[LANE_KEYS].owner,
        .slots = (const uint16_t *)(void *)m->lanes[LANE_SLOTS].owner,
        .weights = (const float *)(void *)m->lanes[LANE_WEIGHTS].owner,
    };
    if (flow->lanes[LANE_STARTS].bytes) {
        m->offsets = arena_take(arena, (m->in.n_rows + 1ull) * sizeof *m->offsets);
        m->in.offsets = m->offsets;
    }
}

/* Where a home's kernels store or load what belongs to an owner: in the owner's memory, if they
 * reach it, else in the grouped copy at home. NULL: nothing to move, because the bytes lie or
 * arrive in place. */
static uint8_t *place_of(const struct flow *flow, enum lane lane, uint32_t home, uint32_t owner)
{
    const struct lane_shape *shape = &flow->lanes[lane];
    const struct lane_ends *ends = &flow->members[home].lanes[lane];
    if (wire_is_peer() || (owner == home && lane != LANE_ROWS))
        return flow->members[owner].lanes[lane].owner +
               (uint64_t)shape->counts->got[owner].at[home] * shape->bytes;
    if (owner == home || ends->order == NULL)
        return NULL;
    return ends->row + (uint64_t)shape->counts->sent[home].at[owner] * shape->bytes;
}

static struct device_places places_of(const struct flow *flow, enum lane lane, uint32_t home)
{
    struct device_places places = {
        .n = flow->group->n, .first = home, .starts = flow->lanes[lane].counts->sent[home]};
    for (uint32_t owner = 0; owner < places.n; owner++)
        places.at[owner] = place_of(flow, lane, home, owner);
    return places;
}

/* Moves lanes between the homes' order and grouped order, as far as kernels of the home reach. */
static int move_lanes(struct flow *flow, enum lane first, enum lane end, bool is_outward,
                      void *const streams[])
{
    int status = 0;
    uint32_t most_blocks = is_outward && wire_is_peer() ? PEER_BLOCKS : 0;
    for (uint32_t home = 0; home < flow->group->n && status == 0; home++) {
        struct moves moves = {.n = 0, .most_blocks = most_blocks};
        for (enum lane lane = first; lane < end; lane++) {
            const struct lane_ends *ends = &flow->members[home].lanes[lane];
            if (flow->lanes[lane].bytes == 0 || (lane == LANE_ROWS && ends->order == NULL))
                continue; /* partial sums stay in the order they come in */
            struct device_places places = places_of(flow, lane, home);
            moves_add(&moves, &places, ends->order, ends->home, flow->lanes[lane].bytes);
        }
        status = device_use(flow->group->tables[home]->device);
        if (status == 0)
            status = launch_move(&moves, is_outward, streams[home]);
    }
    return status;
}

static struct wire_lane wire_lane_of(const struct flow *flow, enum lane lane, bool is_outward)
{
    const struct lane_shape *shape = &flow->lanes[lane];
    struct wire_lane wire;
    for (uint32_t d = 0; d < flow->group->n; d++) {
        const struct lane_ends *ends = &flow->members[d].lanes[lane];
        const struct starts *from = is_outward ? &shape->counts->sent[d] : &shape->counts->got[d];
        for (uint32_t e = 0; e < flow->group->n; e++)
            wire.counts[d][e] = (uint64_t)between(from, e) * shape->bytes;
        wire.from[d] = is_outward ? ends->row : ends->owner;
        wire.to[d] = is_outward ? ends->owner : ends->row;
    }
    return wire;
}

static int all_to_all(struct flow *flow, enum lane first, enum lane end, bool is_outward,
                      void *const streams[])
{
    struct wire_lane lanes[LANES];
    uint32_t n = 0;
    for (enum lane lane = first; lane < end; lane++)
        if (flow->lanes[lane].bytes)
            lanes[n++] = wire_lane_of(flow, lane, is_outward);
    return wire_all_to_all(is_outward ? WIRE_OUT : WIRE_HOME, streams, lanes, n);
}

int exchange_back(struct flow *flow, enum lane first)
{
    struct group *group = flow->group;
    void *const *owners = wire_is_peer() ? group->table_streams : group->return_streams;
    int status = 0;
    flow->ends_on = ON_FINISH_STREAMS;
    if (!wire_is_peer())
        status = group_meet(flow, group->table_streams, group->return_streams, false);
    if (status == 0 && !wire_is_peer())
        status = all_to_all(flow, first, LANES, false, group->return_streams);
    if (status == 0)
        status = group_meet(flow, owners, group->finish_streams, wire_is_peer());
    return status ? status : move_lanes(flow, first, LANES, false, group->finish_streams);
}

/* Sets an owner's offsets, from where the keys of each item begin at home, and the row of each key.
 */
static int rebase(const struct flow *flow, uint32_t owner)
{
    const struct member *m = &flow->members[owner];
    void *front = flow->group->route_streams[owner];
    struct rebase_view r = {.n_pieces = flow->group->n,
                            .starts = flow->items.got[owner],
                            .end = m->in.n,
                            .from = (const uint32_t *)(void *)m->lanes[LANE_STARTS].owner,
                            .out = m->offsets};
    for (uint32_t home = 0; home < r.n_pieces; home++)
        r.shift[home] = flow->keys.got[owner].at[home] - flow->keys.sent[home].at[owner];
    int status = launch_rebase(r, front);
    return status || m->in.row_of == NULL
               ? status
               : launch_spread(m->offsets, m->in.n_rows, m->in.row_of, front);
}

int exchange_out(struct flow *flow)
{
    struct group *group = flow->group;
    void *const *route_streams = group->route_streams;
    int status = move_lanes(flow, LANE_KEYS, LANES_OUT, true, route_streams);
    if (status == 0 && !wire_is_peer())
        status = all_to_all(flow, LANE_KEYS, LANES_OUT, true, route_streams);
    if (status == 0 && wire_is_peer())
        status = group_meet(flow, route_streams, route_streams, true);
    for (uint32_t d = 0; d < group->n && status == 0 && flow->lanes[LANE_STARTS].bytes; d++) {
        status = device_use(group->tables[d]->device);
        if (status == 0)
            status = rebase(flow, d);
    }
    return status ? status : group_meet(flow, route_streams, group->table_streams, false);
}
