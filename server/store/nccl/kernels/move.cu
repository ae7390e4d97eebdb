/* move.cu - moves keys, rows, gradients and statuses between their order at home and places on
 * several devices, in local memory or that of peers. */
#include "server/store/nccl/kernels/pieces.cuh"

#define BLOCK   256u
#define AT_ONCE 4u

/* A unit is the widest word that elements and places are aligned to. */
template <class Unit>
__device__ static inline void move_lane(const moved_lane &lane, uint32_t block, bool is_outward)
{
    const device_places &p = lane.places;
    piece of = piece_number(p, block);
    if (p.at[of.number] == nullptr)
        return;
    Unit *away = (Unit *)p.at[of.number], *home = (Unit *)lane.home;
    uint32_t units = lane.bytes / (uint32_t)sizeof(Unit);
    uint64_t n = (uint64_t)(of.end - of.begin) * units,
             step = (lane.end - lane.begin) / p.n * (uint64_t)BLOCK;
    for (uint64_t i = of.block * BLOCK + threadIdx.x; i < n; i += AT_ONCE * step) {
        Unit v[AT_ONCE], *to[AT_ONCE];
#pragma unroll
        for (uint32_t u = 0; u < AT_ONCE; u++) {
            uint64_t at = i + u * step;
            to[u] = nullptr;
            if (at >= n)
                continue;
            uint64_t thing = units == 1 ? at : at / units;
            uint32_t j = of.begin + (uint32_t)thing;
            Unit *here = home + (uint64_t)(lane.order ? lane.order[j] : j) * units +
                         (uint32_t)(at - thing * units);
            to[u] = is_outward ? away + at : here;
            v[u] = is_outward ? *here : away[at];
        }
#pragma unroll
        for (uint32_t u = 0; u < AT_ONCE; u++)
            if (to[u] != nullptr)
                *to[u] = v[u];
    }
}

static __global__ void __launch_bounds__(BLOCK) move(moves c, bool is_outward)
{
    uint32_t i = 0;
    while (blockIdx.x >= c.lanes[i].end)
        i++;
    const moved_lane &lane = c.lanes[i];
    uint32_t block = blockIdx.x - lane.begin;
    switch (lane.unit) {
    case 16:
        move_lane<uint4>(lane, block, is_outward);
        break;
    case 8:
        move_lane<uint64_t>(lane, block, is_outward);
        break;
    case 4:
        move_lane<uint32_t>(lane, block, is_outward);
        break;
    case 2:
        move_lane<uint16_t>(lane, block, is_outward);
        break;
    default:
        move_lane<uint8_t>(lane, block, is_outward);
    }
}

static uint32_t unit_of(const moved_lane &lane)
{
    uint64_t all = (uintptr_t)lane.home | lane.bytes;
    uint32_t unit = 16;
    for (uint32_t i = 0; i < lane.places.n; i++)
        all |= (uintptr_t)lane.places.at[i];
    while (all % unit != 0)
        unit /= 2;
    return unit;
}

static uint64_t bytes_of(const moved_lane &lane)
{
    return (uint64_t)lane.places.starts.at[lane.places.n] * lane.bytes;
}

/* Blocks of a piece: lanes share the launch's limit by their bytes. */
static uint64_t most_blocks(const moves &c, const moved_lane &lane, uint64_t all_bytes)
{
    if (c.most_blocks == 0)
        return SHAPE_BLOCKS;
    uint64_t blocks = c.most_blocks * bytes_of(lane) / all_bytes / lane.places.n;
    return blocks ? blocks : 1;
}

int launch_move(struct moves *c, bool is_outward, void *stream)
{
    uint32_t n_blocks = 0;
    uint64_t all_bytes = 0;
    for (uint32_t i = 0; i < c->n; i++)
        all_bytes += bytes_of(c->lanes[i]);
    for (uint32_t i = 0; i < c->n; i++) {
        struct moved_lane *lane = &c->lanes[i];
        lane->unit = unit_of(*lane);
        uint32_t units = lane->bytes / lane->unit, things = units < BLOCK ? BLOCK / units : 1;
        lane->begin = n_blocks;
        if (bytes_of(*lane) != 0)
            n_blocks += blocks_for(lane->places, things, most_blocks(*c, *lane, all_bytes));
        lane->end = n_blocks;
    }
    return n_blocks ? LAUNCH(move, n_blocks, BLOCK, stream, *c, is_outward) : 0;
}

static __global__ void __launch_bounds__(BLOCK) rebase(rebase_view r)
{
    uint32_t n = r.starts.at[r.n_pieces];
    for (uint64_t j = lane_index(); j <= n; j += lane_count()) {
        uint32_t i = 0;
        while (j < n && j >= r.starts.at[i + 1])
            i++;
        r.out[j] = j < n ? r.from[j] + r.shift[i] : r.end;
    }
}

int launch_rebase(struct rebase_view r, void *stream)
{
    struct shape s = shape_of(r.starts.at[r.n_pieces] + 1ull);
    return LAUNCH(rebase, s.grid, s.block, stream, r);
}
