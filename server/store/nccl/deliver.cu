/* deliver.cu - the lookup that most pulls need, where peers' memory can be stored to: a warp finds 32 keys
 * and copies their rows to where their homes want them, so that the links are at work while the table is
 * read, and nothing is written twice. */
#include "keytable.cuh"
#include "move.h"
#include "values.cuh"

#define BLOCK   128u
#define AT_ONCE 8u

/* Where this lane's key goes. */
__device__ static inline uint4 *place_of(const parcels &p, const uint32_t *places, uint32_t k,
                                         uint32_t stride)
{
    uint32_t piece = 0;
    while (piece + 1 < p.n && p.starts.at[piece + 1] <= k)
        piece++;
    return (uint4 *)(p.at[piece] + (uint64_t)places[k] * stride);
}

/* The first values of the warp's keys without a row, one key after the other. */
__device__ static inline void deliver_first(const table_view &t, uint64_t key, uint32_t slot,
                                            uint4 *to, uint32_t missing)
{
    uint32_t lane = threadIdx.x % 32, columns = t.stride / (t.dtype == EMBD_F32 ? 4 : 2);
    for (; missing; missing &= missing - 1) {
        int from = __ffs((int)missing) - 1;
        uint64_t k = __shfl_sync(ALL_LANES, key, from);
        uint32_t s = __shfl_sync(ALL_LANES, slot, from);
        uint4 *row = (uint4 *)(uintptr_t)__shfl_sync(ALL_LANES, (uint64_t)(uintptr_t)to, from);
        for (uint32_t column = lane * 4; column < columns; column += 128)
            four_store(row, t.dtype, column, first_value(t, k, s, column));
    }
}

/* Rows of UNITS 16-byte pieces, or with 0 of as many as the table says; `ref` is 0 where there is nothing
 * to copy, and `to` where there is no key. */
template <uint32_t UNITS>
__device__ static inline void deliver_rows(const table_view &t, uint32_t ref, uint4 *to,
                                           bool zero_missing)
{
    const uint32_t lane = threadIdx.x % 32, units = UNITS ? UNITS : t.stride / 16;
    for (uint32_t j = 0; j < units; j += AT_ONCE) {
        uint4 v[AT_ONCE], *out[AT_ONCE];
#pragma unroll
        for (uint32_t u = 0; u < AT_ONCE; u++) {
            uint32_t c = (j + u) * 32 + lane, from = c / units;
            uint32_t r = __shfl_sync(ALL_LANES, ref, (int)(from % 32));
            uint64_t base = __shfl_sync(ALL_LANES, (uint64_t)(uintptr_t)to, (int)(from % 32));
            bool is_whole = from < 32 && base != 0 && (is_row(r) || zero_missing);
            out[u] = is_whole ? (uint4 *)(uintptr_t)base + c % units : nullptr;
            v[u] = make_uint4(0, 0, 0, 0);
            if (is_whole && is_row(r))
                v[u] = load_once(row_of_ref(t, r) + c % units * 16);
        }
#pragma unroll
        for (uint32_t u = 0; u < AT_ONCE; u++)
            if (out[u] != nullptr)
                *out[u] = v[u];
    }
}

template <uint32_t UNITS, bool HAS_SLOTS>
static __global__ void __launch_bounds__(BLOCK)
    deliver(table_view t, keys_view in, const uint32_t *places, parcels p, bool zero_missing,
            uint8_t *statuses)
{
    uint32_t lane = threadIdx.x % 32;
    uint64_t base = lane_index() - lane;
    if (base >= in.n)
        return;
    bool active = base + lane < in.n;
    uint32_t i = (uint32_t)(base + lane);
    uint64_t key = active ? in.keys[i] : 0;
    uint32_t slot = HAS_SLOTS && active ? in.slots[i] : 0;
    uint4 *to = active ? place_of(p, places, i, t.stride) : nullptr;
    uint32_t ref = find_warp<32, HAS_SLOTS>(t, key, slot, active);
    ref = active && is_row(ref) ? ref : 0;
    deliver_rows<UNITS>(t, ref, to, zero_missing);
    if (active && statuses)
        statuses[i] = ref ? EMBD_KEY_HIT : EMBD_KEY_MISSING;
    uint32_t missing = __ballot_sync(ALL_LANES, active && !ref && !zero_missing);
    if (missing)
        deliver_first(t, key, slot, to, missing);
}

template <bool HAS_SLOTS>
static int launch(const table_view &t, const keys_view &in, const uint32_t *places,
                  const parcels &p, bool zero_missing, uint8_t *statuses, void *stream)
{
    unsigned grid = (in.n + BLOCK - 1) / BLOCK;
    switch (t.stride / 16) {
    case 4:
        return LAUNCH((deliver<4, HAS_SLOTS>), grid, BLOCK, stream, t, in, places, p, zero_missing,
                      statuses);
    case 8:
        return LAUNCH((deliver<8, HAS_SLOTS>), grid, BLOCK, stream, t, in, places, p, zero_missing,
                      statuses);
    case 16:
        return LAUNCH((deliver<16, HAS_SLOTS>), grid, BLOCK, stream, t, in, places, p,
                      zero_missing, statuses);
    default:
        return LAUNCH((deliver<0, HAS_SLOTS>), grid, BLOCK, stream, t, in, places, p, zero_missing,
                      statuses);
    }
}

int launch_deliver(struct table_view t, struct keys_view in, const uint32_t *places,
                   struct parcels p, bool zero_missing, uint8_t *statuses, void *stream)
{
    if (in.n == 0)
        return 0;
    return t.row_slots ? launch<true>(t, in, places, p, zero_missing, statuses, stream)
                       : launch<false>(t, in, places, p, zero_missing, statuses, stream);
}
