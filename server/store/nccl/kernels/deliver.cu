/* deliver.cu - the lookup of most pulls: a warp finds 32 keys and copies their rows. With peer
 * access it stores each row where its home wants it, so that the links work while the table is
 * read, and nothing is written twice. Without it, rows of the own home are stored in place, and
 * others where they are sent from. */
#include "server/store/nccl/kernels/pieces.cuh"
#include "server/store/cuda/kernels/pool.cuh"

#define BLOCK   128u
#define AT_ONCE 8u

/* Initial values for the warp's keys without a row, one key at a time. */
__device__ static inline void deliver_first(const table_view &t, uint64_t key, uint32_t slot,
                                            uint4 *to, uint32_t missing)
{
    uint32_t lane = threadIdx.x % 32, columns = t.stride / (t.dtype == EMBD_DTYPE_F32 ? 4 : 2);
    for (; missing; missing &= missing - 1) {
        int from = __ffs((int)missing) - 1;
        uint64_t k = __shfl_sync(ALL_LANES, key, from);
        uint32_t s = __shfl_sync(ALL_LANES, slot, from);
        uint4 *row = (uint4 *)(uintptr_t)__shfl_sync(ALL_LANES, (uint64_t)(uintptr_t)to, from);
        if (embd__dtype_is_coded(t.dtype)) {
            coded_begin(t, k, s, row, lane * 4, 32, t.dim);
            continue;
        }
        for (uint32_t column = lane * 4; column < columns; column += 128)
            four_store(row, t.dtype, column, first_value(t, k, s, column));
    }
}

/* Copies rows of UNITS 16-byte pieces, or with 0 of the table's size; `ref` is 0 where there is no
 * row to copy, and `to` is null where there is no key. */
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

__device__ static inline uint64_t place_of(const delivery &d, const piece &of, uint64_t at)
{
    const uint32_t *places = d.places[of.number];
    return places ? places[at - of.begin] : at - of.begin;
}

template <uint32_t UNITS, bool HAS_SLOTS>
static __global__ void __launch_bounds__(BLOCK)
    deliver(table_view t, keys_view in, delivery d, bool zero_missing, uint8_t *statuses)
{
    piece of = piece_of_block(d.to);
    uint64_t at = of.begin + of.block * BLOCK + threadIdx.x;
    if (at - threadIdx.x % 32 >= of.end)
        return;
    bool active = at < of.end;
    uint32_t i = (uint32_t)at;
    uint64_t key = active ? in.keys[i] : 0;
    uint32_t slot = HAS_SLOTS && active ? in.slots[i] : 0;
    uint4 *to = active ? (uint4 *)(d.to.at[of.number] + place_of(d, of, at) * t.stride) : nullptr;
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
static int launch(const table_view &t, const keys_view &in, const delivery &d, bool zero_missing,
                  uint8_t *statuses, void *stream)
{
    unsigned grid = blocks_for(d.to, BLOCK, UINT32_MAX / WIRE_MAX);
    switch (t.stride / 16) {
    case 4:
        return LAUNCH((deliver<4, HAS_SLOTS>), grid, BLOCK, stream, t, in, d, zero_missing,
                      statuses);
    case 8:
        return LAUNCH((deliver<8, HAS_SLOTS>), grid, BLOCK, stream, t, in, d, zero_missing,
                      statuses);
    case 16:
        return LAUNCH((deliver<16, HAS_SLOTS>), grid, BLOCK, stream, t, in, d, zero_missing,
                      statuses);
    default:
        return LAUNCH((deliver<0, HAS_SLOTS>), grid, BLOCK, stream, t, in, d, zero_missing,
                      statuses);
    }
}

int launch_deliver(struct table_view t, struct keys_view in, struct delivery d, bool zero_missing,
                   uint8_t *statuses, void *stream)
{
    if (in.n == 0)
        return 0;
    return t.row_slots ? launch<true>(t, in, d, zero_missing, statuses, stream)
                       : launch<false>(t, in, d, zero_missing, statuses, stream);
}

/* ---- pooled rows ---- */

/* A loop, as in pool.cu: without it the compiler uses a quarter more registers, so a quarter fewer
 * warps run. */
template <bool IS_CODED>
static __global__ void __launch_bounds__(256, 4)
    pool_to(table_view t, pull_view view, const uint32_t *refs, delivery d)
{
    piece of = piece_of_block(d.to);
    uint32_t fours = fours_of(t.dim);
    uint64_t n = (uint64_t)(of.end - of.begin) * fours, step = gridDim.x / d.to.n * 256;
#pragma unroll 1
    for (uint64_t i = of.block * 256 + threadIdx.x; i < n; i += step) {
        uint64_t row = of.begin + i / fours;
        uint32_t column = (uint32_t)(i % fours) * 4;
        if (d.skips_empty && view.in.offsets[row] == view.in.offsets[row + 1])
            continue;
        four sum = pooled_columns<IS_CODED>(t, view, refs, row, column);
        packed_store(d.to.at[of.number], view.dtype, place_of(d, of, row) * t.dim, column, t.dim,
                     view.is_aligned, sum);
    }
}

int launch_pool_to(struct table_view t, struct pull_view view, const uint32_t *refs,
                   struct delivery d, void *stream)
{
    if (view.in.n_rows == 0)
        return 0;
    uint32_t fours = (t.dim + 3) / 4, rows = fours < 256 ? 256 / fours : 1;
    unsigned grid = blocks_for(d.to, rows, SHAPE_BLOCKS);
    if (embd__dtype_is_coded(t.dtype))
        return LAUNCH(pool_to<true>, grid, 256u, stream, t, view, refs, d);
    return LAUNCH(pool_to<false>, grid, 256u, stream, t, view, refs, d);
}
