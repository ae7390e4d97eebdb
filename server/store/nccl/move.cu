/* move.cu - moves keys, rows, gradients and statuses between the order in which a device has them and
 * the places of several devices, which may be its own memory or that of peers. */
#include "launch.cuh"
#include "move.h"

__device__ static inline uint32_t piece_of(const parcels &p, uint32_t j)
{
    uint32_t piece = 0;
    while (piece + 1 < p.n && p.starts.at[piece + 1] <= j)
        piece++;
    return piece;
}

/* A unit is the widest word that things and places are aligned to. */
template <class Unit>
static __global__ void __launch_bounds__(256)
    move(parcels p, const uint32_t *order, Unit *home, uint32_t units, bool is_outward)
{
    uint64_t n = (uint64_t)p.starts.at[p.n] * units;
    for (uint64_t i = lane_index(); i < n; i += lane_count()) {
        uint32_t j = (uint32_t)(i / units), unit = (uint32_t)(i % units);
        uint32_t piece = piece_of(p, j);
        Unit *away = (Unit *)p.at[piece] + (uint64_t)(j - p.starts.at[piece]) * units + unit;
        Unit *here = home + (uint64_t)(order ? order[j] : j) * units + unit;
        if (is_outward)
            *away = *here;
        else
            *here = *away;
    }
}

template <class Unit>
static int launch(const parcels &p, const uint32_t *order, uint8_t *home, uint32_t bytes,
                  bool is_outward, void *stream)
{
    uint32_t units = bytes / (uint32_t)sizeof(Unit);
    struct shape s = shape_of((uint64_t)p.starts.at[p.n] * units);
    return LAUNCH(move<Unit>, s.grid, s.block, stream, p, order, (Unit *)home, units, is_outward);
}

int launch_move(struct parcels p, const uint32_t *order, uint8_t *home, uint32_t bytes,
                bool is_outward, void *stream)
{
    uint64_t all = (uintptr_t)home | bytes;
    for (uint32_t i = 0; i < p.n; i++)
        all |= (uintptr_t)p.at[i];
    if (p.starts.at[p.n] == 0 || bytes == 0)
        return 0;
    if (all % 16 == 0)
        return launch<uint4>(p, order, home, bytes, is_outward, stream);
    if (all % 8 == 0)
        return launch<uint64_t>(p, order, home, bytes, is_outward, stream);
    if (all % 4 == 0)
        return launch<uint32_t>(p, order, home, bytes, is_outward, stream);
    if (all % 2 == 0)
        return launch<uint16_t>(p, order, home, bytes, is_outward, stream);
    return launch<uint8_t>(p, order, home, bytes, is_outward, stream);
}
