/* gather.cu - the most frequent pull in one kernel: one key a row, rows copied as they are stored.
 * A warp finds KEYS keys and then copies their rows, with up to eight independent 16-byte loads of
 * a lane in flight. Row loads bypass the first-level cache and stores are streaming: neither is
 * reused soon. */
#include "server/store/cuda/kernels/found.cuh"
#include "server/store/cuda/kernels/own.cuh"
#include "server/store/cuda/kernels/values.cuh"

#define BLOCK 128u
/* nvcc 13 gives the kernels here more registers, and so fewer warps, where it is larger. */
static_assert(sizeof(pull_view) <= 128, "a pull_view has at most 128 bytes");
/* Keys of a warp for rows of `units` 16-byte pieces: as many as it can find at once for narrow
 * rows, else half of that, so that the last warps end closer together. */
__host__ __device__ static constexpr uint32_t keys_of(uint32_t units)
{
    return units <= 4 ? 32 : 16;
}

/* Initial values for the warp's keys without a row: rare, so one key at a time. */
__device__ static inline void fill_missing(const table_view &t, const pull_view &p, uint64_t base,
                                           uint64_t key, uint32_t slot, uint32_t missing)
{
    uint32_t lane = threadIdx.x % 32;
    for (; missing; missing &= missing - 1) {
        int from = __ffs((int)missing) - 1;
        uint64_t k = __shfl_sync(ALL_LANES, key, from);
        uint32_t s = __shfl_sync(ALL_LANES, slot, from);
        for (uint32_t column = lane * 4; column < t.dim; column += 128)
            four_store(p.values, p.dtype, (base + (uint32_t)from) * t.dim + column,
                       first_value(t, k, s, column));
    }
}

/* UNITS: 16-byte pieces of a row. */
template <uint32_t UNITS, class Own>
__device__ static inline void copy_rows(const table_view &t, const pull_view &p, uint64_t base,
                                        uint32_t ref)
{
    constexpr uint32_t KEYS = keys_of(UNITS), TURNS = (KEYS * UNITS + 31) / 32,
                       AT_ONCE = TURNS < 8 ? TURNS : 8;
    uint32_t lane = threadIdx.x % 32;
    uint4 *out = (uint4 *)p.values + base * UNITS;
    uint64_t left = (p.in.n - base < KEYS ? p.in.n - base : KEYS) * UNITS;
#pragma unroll 1
    for (uint32_t j = 0; j < TURNS; j += AT_ONCE) {
        uint4 v[AT_ONCE];
        bool is_written[AT_ONCE];
#pragma unroll
        for (uint32_t u = 0; u < AT_ONCE; u++) {
            uint32_t c = (j + u) * 32 + lane;
            uint32_t r = __shfl_sync(ALL_LANES, ref, (int)(c / UNITS));
            is_written[u] = c < left && (is_row(r) || (p.zero_missing && !is_outside<Own>(r)));
            v[u] = make_uint4(0, 0, 0, 0);
            if (is_row(r))
                v[u] = load_once(row_of_ref(t, r) + c % UNITS * 16);
        }
#pragma unroll
        for (uint32_t u = 0; u < AT_ONCE; u++)
            if (is_written[u])
                __stcs(out + (j + u) * 32 + lane, v[u]);
    }
}

/* Keys base .. base + KEYS of a pull, by one warp. Keys outside a set all look in the same bucket.
 */
template <uint32_t UNITS, bool HAS_SLOTS, class Own>
__device__ static inline void gather_keys(const table_view &t, const pull_view &p, const Own &set,
                                          uint64_t base)
{
    constexpr uint32_t KEYS = keys_of(UNITS);
    uint32_t lane = threadIdx.x % 32;
    bool active = lane < KEYS && base + lane < p.in.n;
    uint64_t key = active ? __ldcs(p.in.keys + base + lane) : 0;
    uint32_t slot = HAS_SLOTS && active ? slot_at(t, p.in, (uint32_t)(base + lane)) : 0;
    bool mine = own_has(own_begin(set), key);
    uint32_t ref = find_warp<KEYS, HAS_SLOTS>(t, mine ? key : 0, slot, active && mine);
    if (!active || !is_row(ref))
        ref = 0;
    ref = mine ? ref : REF_OUTSIDE;
    copy_rows<UNITS, Own>(t, p, base, ref);
    if (active && p.found.keys)
        found_set<Own>(p.found, p.in.n, (uint32_t)base + lane, key, slot, ref);
    if (active && p.statuses)
        p.statuses[base + lane] = ref ? EMBD_KEY_HIT : EMBD_KEY_MISSING;
    uint32_t missing = __ballot_sync(ALL_LANES, active && !ref && !p.zero_missing);
    if (missing)
        fill_missing(t, p, base, key, slot, missing);
}

template <uint32_t UNITS, bool HAS_SLOTS>
static __global__ void __launch_bounds__(BLOCK, 8) gather(table_view t, pull_view p)
{
    uint64_t base = p.first_row + lane_index() / 32 * keys_of(UNITS);
    if (base < p.in.n)
        gather_keys<UNITS, HAS_SLOTS>(t, p, own_all{}, base);
}

/* Keys of a set. */
template <uint32_t UNITS, bool HAS_SLOTS>
static __global__ void __launch_bounds__(BLOCK, 8)
    gather_own(table_view t, pull_view p, key_set own)
{
    uint64_t base = p.first_row + lane_index() / 32 * keys_of(UNITS);
    if (base < p.in.n)
        gather_keys<UNITS, HAS_SLOTS>(t, p, own, base);
}

template <uint32_t UNITS, bool HAS_SLOTS>
static __global__ void __launch_bounds__(BLOCK, 8) gather_each(table_view t, gather_pieces pieces)
{
    uint32_t warp = (uint32_t)(lane_index() / 32), i = 0;
    if (warp >= pieces.n_warps)
        return;
    while (i + 1 < pieces.n && pieces.at[i + 1].first_warp <= warp)
        i++;
    const gather_piece &piece = pieces.at[i];
    pull_view p = {};
    p.in.n = p.in.n_rows = piece.n;
    p.in.keys = piece.keys;
    p.in.slots = piece.slots;
    p.dtype = t.dtype;
    p.zero_missing = piece.zero_missing;
    p.values = piece.values;
    p.statuses = piece.statuses;
    gather_keys<UNITS, HAS_SLOTS>(t, p, own_all{},
                                  (uint64_t)(warp - piece.first_warp) * keys_of(UNITS));
}

bool gather_fits(const struct table_view *t, const struct pull_view *pull)
{
    uint32_t units = t->stride / 16;
    bool is_whole = t->dim * (pull->dtype == EMBD_DTYPE_F32 ? 4 : 2) == t->stride;
    return pull->in.offsets == nullptr && pull->dtype == t->dtype &&
           !embd__dtype_is_coded(t->dtype) && is_whole && pull->is_aligned && units <= 64 &&
           (units & (units - 1)) == 0;
}

/* 16-byte pieces of a row, a power of two. */
#define LAUNCH_GATHER(kernel, HAS_SLOTS, grid, ...)                                                \
    (t.stride == 16    ? LAUNCH((kernel<1, HAS_SLOTS>), grid, BLOCK, stream, __VA_ARGS__)          \
     : t.stride == 32  ? LAUNCH((kernel<2, HAS_SLOTS>), grid, BLOCK, stream, __VA_ARGS__)          \
     : t.stride == 64  ? LAUNCH((kernel<4, HAS_SLOTS>), grid, BLOCK, stream, __VA_ARGS__)          \
     : t.stride == 128 ? LAUNCH((kernel<8, HAS_SLOTS>), grid, BLOCK, stream, __VA_ARGS__)          \
     : t.stride == 256 ? LAUNCH((kernel<16, HAS_SLOTS>), grid, BLOCK, stream, __VA_ARGS__)         \
     : t.stride == 512 ? LAUNCH((kernel<32, HAS_SLOTS>), grid, BLOCK, stream, __VA_ARGS__)         \
                       : LAUNCH((kernel<64, HAS_SLOTS>), grid, BLOCK, stream, __VA_ARGS__))

#define BLOCK_WARPS (BLOCK / 32)

static uint32_t warps_of(uint32_t n, uint32_t stride)
{
    uint32_t keys = keys_of(stride / 16);
    return (n + keys - 1) / keys;
}

int launch_gather(struct table_view t, struct pull_view pull, void *stream)
{
    /* Small blocks: the last ones end together. */
    uint32_t n = pull.in.n - pull.first_row;
    unsigned grid = (warps_of(n, t.stride) + BLOCK_WARPS - 1) / BLOCK_WARPS;
    if (n == 0)
        return 0;
    if (pull.in.own)
        return LAUNCH_GATHER(gather_own, false, grid, t, pull, *pull.in.own);
    return t.row_slots ? LAUNCH_GATHER(gather, true, grid, t, pull)
                       : LAUNCH_GATHER(gather, false, grid, t, pull);
}

void gather_add(struct gather_pieces *pieces, const struct table_view *t,
                const struct pull_view *pull)
{
    struct gather_piece *piece = &pieces->at[pieces->n++];
    piece->keys = pull->in.keys;
    piece->slots = pull->in.slots;
    piece->values = pull->values;
    piece->statuses = pull->statuses;
    piece->n = pull->in.n;
    piece->first_warp = pieces->n_warps;
    piece->zero_missing = pull->zero_missing;
    pieces->n_warps += warps_of(pull->in.n, t->stride);
}

int launch_gather_pieces(struct table_view t, struct gather_pieces pieces, void *stream)
{
    unsigned grid = (pieces.n_warps + BLOCK_WARPS - 1) / BLOCK_WARPS;
    if (grid == 0)
        return 0;
    return t.row_slots ? LAUNCH_GATHER(gather_each, true, grid, t, pieces)
                       : LAUNCH_GATHER(gather_each, false, grid, t, pieces);
}

/* ---- one window of rows ---- */

/* Copies the rows of the warp's keys at `places`, n of them. */
__device__ static inline void copy_window(const table_view &t, const pull_view &p, uint64_t base,
                                          uint32_t ref, const uint32_t *places, uint32_t n)
{
    enum { AT_ONCE = 4 };
    uint32_t lane = threadIdx.x % 32, units = t.stride / 16, total = n * units;
    uint4 *out = (uint4 *)p.values + base * units;
    for (uint32_t j = 0; j < total; j += 32 * AT_ONCE) {
        uint4 v[AT_ONCE];
        uint32_t at[AT_ONCE];
#pragma unroll
        for (uint32_t u = 0; u < AT_ONCE; u++) {
            uint32_t c = j + u * 32 + lane, place = places[c < total ? c / units : 0];
            uint32_t r = __shfl_sync(ALL_LANES, ref, (int)place);
            at[u] = place * units + c % units;
            if (c < total)
                v[u] = load_once(row_of_ref(t, r) + c % units * 16);
        }
#pragma unroll
        for (uint32_t u = 0; u < AT_ONCE; u++)
            if (j + u * 32 + lane < total)
                __stcs(out + at[u], v[u]);
    }
}

__device__ static inline void fill_zero(const table_view &t, const pull_view &p, uint64_t base,
                                        uint32_t missing)
{
    uint32_t units = t.stride / 16;
    for (; missing; missing &= missing - 1)
        for (uint32_t c = threadIdx.x % 32; c < units; c += 32)
            ((uint4 *)p.values)[(base + (uint32_t)__ffs((int)missing) - 1) * units + c] =
                make_uint4(0, 0, 0, 0);
}

/* Own: key_set where refs may be REF_OUTSIDE. */
template <class Own>
static __global__ void __launch_bounds__(BLOCK)
    gather_window(table_view t, pull_view p, const uint32_t *refs, uint64_t first, uint64_t end)
{
    __shared__ uint32_t all_places[BLOCK];
    uint32_t lane = threadIdx.x % 32, *places = all_places + (threadIdx.x - lane);
    for (uint64_t base = lane_index() - lane; base < p.in.n; base += lane_count()) {
        bool active = base + lane < p.in.n;
        uint32_t ref = active ? refs[base + lane] : 0;
        bool has_row = active && is_row(ref);
        bool is_here = has_row && ref - 1 >= first && ref - 1 < end;
        uint32_t here = __ballot_sync(ALL_LANES, is_here);
        uint32_t missing =
            __ballot_sync(ALL_LANES, active && !has_row && first == 0 && !is_outside<Own>(ref));
        __syncwarp();
        if (is_here)
            places[__popc(here & ((1u << lane) - 1))] = lane;
        __syncwarp();
        copy_window(t, p, base, ref, places, (uint32_t)__popc(here));
        if (missing && p.zero_missing)
            fill_zero(t, p, base, missing);
        else if (missing)
            fill_missing(t, p, base, active ? p.in.keys[base + lane] : 0,
                         active ? slot_at(t, p.in, (uint32_t)(base + lane)) : 0, missing);
    }
}

int launch_gather_window(struct table_view t, struct pull_view pull, const uint32_t *refs,
                         uint64_t first, uint64_t end, void *stream)
{
    unsigned grid = (pull.in.n + BLOCK - 1) / BLOCK;
    if (grid == 0)
        return 0;
    return pull.in.own
               ? LAUNCH(gather_window<key_set>, grid, BLOCK, stream, t, pull, refs, first, end)
               : LAUNCH(gather_window<own_all>, grid, BLOCK, stream, t, pull, refs, first, end);
}
