/* frozen.cu - copies rows of a cut, before they change or to be read, and lists its candidates. */
#include "server/store/cuda/kernels/keytable.cuh"
#include "server/store/cuda/kernels/values.cuh"

/* Claims a row of the cut for copying: true for the first caller only. */
__device__ static inline bool take(const kept_view &k, uint32_t row)
{
    uint32_t bit = 1u << row % 32;
    return row < k.n_rows && !(__ldcg(&k.done[row / 32]) & bit) &&
           !(atomicOr(&k.done[row / 32], bit) & bit);
}

/* `lanes` lanes copy a row. */
__device__ static inline void copy_row(const table_view &t, const kept_view &k, uint64_t row,
                                       uint64_t at, uint32_t lane, uint32_t lanes)
{
    const uint4 *values = (const uint4 *)(t.values + row * t.stride);
    for (uint32_t j = lane; j < t.stride / 16; j += lanes)
        ((uint4 *)(k.values + at * t.stride))[j] = values[j];
    const float *from = t.states + row * t.state_stride;
    float *to = k.states + at * t.state_stride;
    if (t.state_stride % 4 == 0)
        for (uint32_t j = lane; j < t.state_stride / 4; j += lanes)
            ((uint4 *)to)[j] = ((const uint4 *)from)[j];
    else
        for (uint32_t j = lane; j < t.state_stride; j += lanes)
            to[j] = from[j];
    if (lane != 0)
        return;
    k.keys[at] = t.row_keys[row];
    if (t.row_slots)
        k.slots[at] = t.row_slots[row];
}

/* A warp checks 32 rows at once, one a lane; the rows to copy get adjacent places. */
static __global__ void __launch_bounds__(256) keep(table_view t, kept_view k, const uint32_t *list,
                                                   uint64_t first, uint64_t n, uint32_t lanes)
{
    uint32_t lane = threadIdx.x % 32, rows_at_once = 32 / lanes;
    if (lane_index() == 0)
        k.head->asked = k.asked;
    for (uint64_t base = lane_index() - lane; base < n; base += lane_count()) {
        uint64_t i = base + lane;
        uint32_t row = i < n ? (uint32_t)((list ? list[i] : i) + first) : 0;
        bool is_taken = i < n && take(k, row);
        uint32_t taken = __ballot_sync(ALL_LANES, is_taken), at = 0;
        if (!taken)
            continue;
        if (lane == 0)
            at = atomicAdd(&k.head->n, (uint32_t)__popc(taken));
        at = __shfl_sync(ALL_LANES, at, 0) + (uint32_t)__popc(taken & ((1u << lane) - 1));
        for (uint32_t turn = 0; turn < lanes; turn++) {
            int from = (int)(turn * rows_at_once + lane / lanes);
            uint32_t number = __shfl_sync(ALL_LANES, row, from),
                     place = __shfl_sync(ALL_LANES, at, from);
            if (taken >> from & 1 && place < k.capacity)
                copy_row(t, k, number, place, lane % lanes, lanes);
        }
    }
}

int launch_keep(struct table_view t, struct kept_view k, const uint32_t *list, uint64_t first,
                uint64_t n, void *stream)
{
    struct shape s = shape_of(n);
    return LAUNCH(keep, s.grid, s.block, stream, t, k, list, first, n, lanes_for(t.dim));
}

/* One lane writes a word of bits. */
static __global__ void __launch_bounds__(256)
    mark_unchanged(const uint8_t *sets, uint64_t n_rows, uint8_t oldest, uint32_t *done)
{
    for (uint64_t word = lane_index(); word * 32 < n_rows; word += lane_count()) {
        uint32_t bits = 0;
        for (uint64_t row = word * 32; row < word * 32 + 32 && row < n_rows; row++)
            bits |= sets[row] < oldest ? 1u << row % 32 : 0;
        done[word] = bits;
    }
}

int launch_mark_unchanged(const uint8_t *sets, uint64_t n_rows, uint8_t oldest, uint32_t *done,
                          void *stream)
{
    struct shape s = shape_of(n_rows / 32 + 1);
    return LAUNCH(mark_unchanged, s.grid, s.block, stream, sets, n_rows, oldest, done);
}

static __global__ void __launch_bounds__(256)
    pick_candidates(table_view t, struct entry *out, uint32_t *n_out, uint64_t capacity)
{
    for (uint64_t i = lane_index(); i < t.n_buckets * ENTRY_BUCKET; i += lane_count()) {
        if (!(t.entries[i].ref & REF_CANDIDATE))
            continue;
        uint32_t at = atomicAdd(n_out, 1u);
        if (at < capacity)
            out[at] = t.entries[i];
    }
}

int launch_pick_candidates(struct table_view t, struct entry *out, uint32_t *n_out,
                           uint64_t capacity, void *stream)
{
    struct shape s = shape_of(t.n_buckets * ENTRY_BUCKET);
    return LAUNCH(pick_candidates, s.grid, s.block, stream, t, out, n_out, capacity);
}
