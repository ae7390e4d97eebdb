/* own_copy.cu - as checked_copy.cu, where only keys of a set take part: all keys are copied, and
 * the gradients of those of the set, each to its own place. Nobody reads what is between them.
 *
 * A warp looks at 32 keys, and its lanes then share the pieces of the gradients that it found.
 * Which those are is decided by the keys that it copies: their owner may write others meanwhile. */
#include "server/store/cuda/kernels/finite.cuh"
#include "server/store/cuda/kernels/own.cuh"

#define BLOCK   128u
#define AT_ONCE 4u /* pieces that a lane loads at once */

__device__ static inline bool is_bad(exponents e, const uint4 &v)
{
    return is_bad(e, v.x) || is_bad(e, v.y) || is_bad(e, v.z) || is_bad(e, v.w);
}

/* Of one value. */
__device__ static inline bool is_bad(exponents e, uint16_t value)
{
    return (value & e.low) == e.low;
}

/* Pieces first .. of n keys' gradients, of `units` pieces each. */
template <class Unit>
__device__ static inline void copy_pieces(const taken &t, exponents e, uint64_t base,
                                          const uint32_t *places, uint32_t first, uint32_t total,
                                          uint32_t units)
{
    Unit v[AT_ONCE];
    uint64_t at[AT_ONCE];
#pragma unroll
    for (uint32_t u = 0; u < AT_ONCE; u++) {
        uint32_t c = first + u * 32, place = c < total ? places[c / units] : 0;
        at[u] = (base + place) * units + c % units;
        if (c < total)
            v[u] = __ldcs((const Unit *)t.from + at[u]);
    }
#pragma unroll
    for (uint32_t u = 0; u < AT_ONCE; u++) {
        if (first + u * 32 >= total)
            continue;
        __stcs((Unit *)t.to + at[u], v[u]);
        if (t.bad && is_bad(e, v[u]))
            note_bad(t, at[u] * sizeof(Unit) / 16);
    }
}

/* Unit: a row's gradient has `units` of them. */
template <class Unit>
static __global__ void __launch_bounds__(BLOCK)
    own_copy(taken t, key_set set, exponents e, uint32_t units)
{
    __shared__ uint32_t all_places[BLOCK];
    uint32_t lane = threadIdx.x % 32, *places = all_places + (threadIdx.x - lane);
    own_lane own = own_begin(set);
    for (uint64_t base = lane_index() - lane; base < t.n_keys; base += lane_count()) {
        bool active = base + lane < t.n_keys;
        uint64_t key = active ? __ldcs(t.keys + base + lane) : 0;
        bool mine = own_has(own, key) && active;
        uint32_t lanes = __ballot_sync(ALL_LANES, mine), n = (uint32_t)__popc(lanes);
        if (active)
            t.keys_to[base + lane] = key;
        if (mine)
            places[__popc(lanes & ((1u << lane) - 1))] = lane;
        __syncwarp();
        for (uint32_t first = lane; first < n * units; first += 32 * AT_ONCE)
            copy_pieces<Unit>(t, e, base, places, first, n * units, units);
        __syncwarp();
    }
}

int launch_own_copy(struct taken taken, void *stream)
{
    exponents e = exponents_of(taken.dtype);
    uint32_t bytes = taken.from ? taken.row_bytes : 0;
    unsigned grid = (taken.n_keys + BLOCK - 1) / BLOCK;
    grid = grid < SHAPE_BLOCKS ? grid : SHAPE_BLOCKS;
    if (grid == 0)
        return 0;
    if (bytes % 16 == 0)
        return LAUNCH(own_copy<uint4>, grid, BLOCK, stream, taken, *taken.own, e, bytes / 16);
    if (bytes % 4 == 0)
        return LAUNCH(own_copy<uint32_t>, grid, BLOCK, stream, taken, *taken.own, e, bytes / 4);
    return LAUNCH(own_copy<uint16_t>, grid, BLOCK, stream, taken, *taken.own, e, bytes / 2);
}
