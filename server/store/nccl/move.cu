/* move.cu - moves keys, rows, gradients and statuses between the order in which a device has them and
 * the places of several devices, which may be its own memory or that of peers. */
#include "pieces.cuh"

#define BLOCK 256u

/* A unit is the widest word that things and places are aligned to. */
template <class Unit>
static __global__ void __launch_bounds__(BLOCK)
    move(parcels p, const uint32_t *order, Unit *home, uint32_t units, bool is_outward)
{
    piece of = piece_of_block(p);
    Unit *away = (Unit *)p.at[of.number];
    uint64_t n = (uint64_t)(of.end - of.begin) * units, step = gridDim.x / p.n * (uint64_t)BLOCK;
    for (uint64_t i = of.block * BLOCK + threadIdx.x; i < n; i += step) {
        uint32_t j = of.begin + (uint32_t)(i / units), unit = (uint32_t)(i % units);
        Unit *here = home + (uint64_t)(order ? order[j] : j) * units + unit;
        if (is_outward)
            away[i] = *here;
        else
            *here = away[i];
    }
}

template <class Unit>
static int launch(const parcels &p, const uint32_t *order, uint8_t *home, uint32_t bytes,
                  bool is_outward, void *stream)
{
    uint32_t units = bytes / (uint32_t)sizeof(Unit), things = units < BLOCK ? BLOCK / units : 1;
    return LAUNCH(move<Unit>, blocks_for(p, things, SHAPE_BLOCKS), BLOCK, stream, p, order,
                  (Unit *)home, units, is_outward);
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
