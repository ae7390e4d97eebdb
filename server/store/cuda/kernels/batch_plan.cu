/* batch_plan.cu - the first half of a batch of small pushes: finds the rows, creates rows for new
 * keys, and sorts the gradients by row.
 *
 * The first blocks look keys up; the blocks behind them fetch gradients. The last block to finish
 * its lookup goes on alone: it sees all refs, and a few thousand of them fit into shared memory,
 * where one block sorts them faster than several launches could. New keys are deduplicated as in
 * insert_plan.cu and get rows in order of first occurrence, the order of one push after the other.
 */
#include "server/store/cuda/kernels/batch_push.h"
#include "server/store/cuda/kernels/keytable.cuh"
#include "server/store/cuda/kernels/own.cuh"

#define BLOCK_MOST  512u
#define FETCH_UNIT  8u
#define FETCH_AHEAD 4u
#define SORT_LEAST  64u /* items that a warp sorts by itself */
#define CLAIMS      (2 * BATCH_KEYS_MAX)
#define PLACE_BITS  16

/* ---- fetching ---- */

__device__ static inline void fetch_unit(const uint8_t *from, uint8_t *to, uint64_t at,
                                         uint64_t bytes, uint2 v)
{
    if (at + FETCH_UNIT <= bytes)
        *(uint2 *)(to + at) = v;
    else
        for (; at < bytes; at++)
            to[at] = from[at];
}

__device__ static inline void fetch(const batch_view &j, uint32_t block)
{
    uint32_t i = 0;
    while (i + 1 < j.n_fetches && j.fetch[i + 1].first_block <= block)
        i++;
    const batch_fetch &f = j.fetch[i];
    uint8_t *to = j.block + f.at;
    uint64_t begin = (uint64_t)(block - f.first_block) * BATCH_FETCH_BYTES,
             end = begin + BATCH_FETCH_BYTES < f.bytes ? begin + BATCH_FETCH_BYTES : f.bytes;
    uint32_t stride = blockDim.x * FETCH_UNIT;
    for (uint64_t at = begin + threadIdx.x * FETCH_UNIT; at < end; at += FETCH_AHEAD * stride) {
        uint2 v[FETCH_AHEAD];
#pragma unroll
        for (uint32_t u = 0; u < FETCH_AHEAD; u++)
            if (at + u * stride + FETCH_UNIT <= end)
                v[u] = *(const uint2 *)(f.from + at + u * stride);
#pragma unroll
        for (uint32_t u = 0; u < FETCH_AHEAD; u++)
            if (at + u * stride < end)
                fetch_unit(f.from, to, at + u * stride, end, v[u]);
    }
}

/* ---- finding ---- */

template <bool HAS_SLOTS, class Own>
__device__ static inline void find_keys(const table_view &t, const batch_view &j, const Own &set)
{
    uint32_t i = (uint32_t)lane_index();
    bool active = i < j.n_keys;
    uint64_t key = active ? __ldcs(j.keys + i) : 0;
    uint32_t slot = HAS_SLOTS && active ? j.slots[i] : 0;
    bool mine = own_has(own_begin(set), key);
    uint32_t ref = find_warp<32, HAS_SLOTS>(t, mine ? key : 0, slot, active && mine);
    if (!active)
        return;
    if (!std::is_same<Own, own_all>::value)
        j.groups[i] = mine ? 0 : GROUP_OUTSIDE;
    ref = mine ? ref : 0;
    j.d_keys[i] = key;
    if (HAS_SLOTS)
        j.d_slots[i] = slot;
    j.refs[i] = is_row(ref) ? ref : 0;
}

/* ---- what the last block does ---- */

/* Counts the lanes of the block that set the flag: those before this one, and all. */
__device__ static inline uint32_t count_before(bool says, uint32_t *n_out)
{
    __shared__ uint32_t of_warp[BLOCK_MOST / 32];
    uint32_t warp = threadIdx.x / 32, lanes = __ballot_sync(ALL_LANES, says), before = 0, n = 0;
    if (threadIdx.x % 32 == 0)
        of_warp[warp] = (uint32_t)__popc(lanes);
    __syncthreads();
    for (uint32_t w = 0; w < blockDim.x / 32; w++) {
        before += w < warp ? of_warp[w] : 0;
        n += of_warp[w];
    }
    __syncthreads();
    *n_out = n;
    return before + (uint32_t)__popc(lanes & ((1u << threadIdx.x % 32) - 1));
}

__device__ static inline uint32_t push_of(const batch_view &j, uint32_t i)
{
    uint32_t push = j.n - 1;
    while (j.first_key[push] > i)
        push--;
    return push;
}

/* Whether key i takes part, and has no row. */
template <class Own> __device__ static inline bool is_new(const batch_view &j, uint32_t i)
{
    bool is_outside = !std::is_same<Own, own_all>::value && __ldcg(j.groups + i) == GROUP_OUTSIDE;
    return __ldcg(j.refs + i) == 0 && !is_outside;
}

/* The place of key i's group, as claim of insert_plan.cu. In the end it holds the first of the
 * group's positions. */
__device__ static inline uint32_t claim(const table_view &t, const batch_view &j, uint32_t *claims,
                                        uint32_t i)
{
    uint64_t key = __ldcg(j.d_keys + i);
    uint32_t slot = j.slots ? __ldcg(j.d_slots + i) : 0;
    uint32_t at = (uint32_t)(key_hash(t, key, slot) >> 7) & (CLAIMS - 1);
    for (;; at = (at + 1) & (CLAIMS - 1)) {
        uint32_t owner = atomicCAS(&claims[at], 0u, i + 1);
        if (owner == 0)
            return at;
        if (__ldcg(j.d_keys + owner - 1) != key ||
            (j.slots && __ldcg(j.d_slots + owner - 1) != slot))
            continue;
        atomicMin(&claims[at], i + 1);
        return at;
    }
}

/* Ranks the new keys by first occurrence; returns how many there are. */
template <class Own>
__device__ static inline uint32_t rank_new(const table_view &t, const batch_view &j,
                                           uint32_t *claims, uint32_t *n_inserted)
{
    uint32_t n_new = 0;
    for (uint32_t i = threadIdx.x; i < CLAIMS; i += blockDim.x)
        claims[i] = 0;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < j.n_keys; i += blockDim.x)
        if (is_new<Own>(j, i))
            j.groups[i] = claim(t, j, claims, i);
    __syncthreads();
    for (uint32_t base = 0; base < j.n_keys; base += blockDim.x) {
        uint32_t i = base + threadIdx.x, n;
        bool is_first = i < j.n_keys && is_new<Own>(j, i) && claims[j.groups[i]] == i + 1;
        uint32_t rank = n_new + count_before(is_first, &n);
        if (is_first) {
            j.ranks[i] = rank;
            atomicAdd(&n_inserted[push_of(j, i)], 1u);
        }
        n_new += n;
    }
    __syncthreads();
    return n_new;
}

/* Sets the refs of keys that had no row. Their status is INSERTED in the first push that names them
 * and HIT in later ones. */
template <class Own>
__device__ static inline void resolve(const batch_view &j, const uint32_t *claims, bool has_new)
{
    for (uint32_t i = threadIdx.x; i < j.n_keys; i += blockDim.x) {
        uint8_t status = EMBD_KEY_HIT;
        if (has_new && is_new<Own>(j, i)) {
            uint32_t first = claims[j.groups[i]] - 1;
            j.refs[i] = (uint32_t)(j.first_row + j.ranks[first] + 1);
            if (first >= j.first_key[push_of(j, i)])
                status = EMBD_KEY_INSERTED;
        }
        if (j.statuses)
            j.statuses[i] = status;
    }
}

/* Bitonic sort of n items, a power of two. A warp owns the pairs at most 32 apart, stage after
 * stage. */
__device__ static inline void sort_items(uint64_t *items, uint32_t n)
{
    uint32_t before = n;
    for (uint32_t run = 2; run <= n; run *= 2)
        for (uint32_t apart = run / 2; apart; apart /= 2) {
            if (apart > 32 || before > 32)
                __syncthreads();
            else
                __syncwarp();
            before = apart;
            for (uint32_t pair = threadIdx.x; pair < n / 2; pair += blockDim.x) {
                uint32_t i = 2 * pair - (pair & (apart - 1));
                uint64_t a = items[i], b = items[i + apart];
                if ((a > b) == ((i & run) == 0)) {
                    items[i] = b;
                    items[i + apart] = a;
                }
            }
        }
    __syncthreads();
}

__device__ static inline void sort_refs(const batch_view &j, uint64_t *items)
{
    uint32_t n = SORT_LEAST;
    while (n < j.n_keys)
        n *= 2;
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x)
        items[i] =
            i < j.n_keys
                ? ((uint64_t)__ldcg(j.refs + i) << PLACE_BITS | push_of(j, i)) << PLACE_BITS | i
                : UINT64_MAX;
    sort_items(items, n);
    for (uint32_t i = threadIdx.x; i < j.n_keys; i += blockDim.x)
        j.sorted[i] = items[i];
}

__device__ static inline void tell(const batch_view &j, bool is_done, uint32_t n_new,
                                   const uint32_t *n_inserted)
{
    if (threadIdx.x < j.n)
        j.report->n_inserted[threadIdx.x] = n_inserted[threadIdx.x];
    if (threadIdx.x != 0)
        return;
    j.state->n_found = 0;
    j.state->is_done = is_done;
    j.report->is_done = is_done;
    j.report->n_new = n_new;
}

/* The kernel's, not a function's: nvcc gives each kernel that of all instances of a function. */
struct plan_memory {
    union {
        uint64_t items[BATCH_KEYS_MAX];
        uint32_t claims[CLAIMS];
    };
    uint32_t n_inserted[BATCH_PUSHES_MAX];
};

template <class Own>
__device__ static inline void plan_all(const table_view &t, const batch_view &j,
                                       plan_memory &shared)
{
    uint32_t *n_inserted = shared.n_inserted;
    bool misses = false;
    uint32_t n_new = 0;
    if (threadIdx.x < BATCH_PUSHES_MAX)
        n_inserted[threadIdx.x] = 0;
    for (uint32_t i = threadIdx.x; i < j.n_keys; i += blockDim.x)
        misses = misses || is_new<Own>(j, i);
    misses = __syncthreads_or(misses);
    bool is_bad = j.checks && __ldcg(&j.report->bad) != 0;
    bool is_done = !is_bad && (!misses || j.may_create);
    if (is_done) {
        if (misses)
            n_new = rank_new<Own>(t, j, shared.claims, n_inserted);
        resolve<Own>(j, shared.claims, misses);
        __syncthreads();
        sort_refs(j, shared.items);
    }
    tell(j, is_done, n_new, n_inserted);
}

template <bool HAS_SLOTS, class Own>
static __global__ void __launch_bounds__(BLOCK_MOST)
    batch_plan(table_view t, batch_view j, Own own, uint32_t n_find)
{
    __shared__ plan_memory shared;
    __shared__ bool is_last;
    if (blockIdx.x >= n_find) {
        fetch(j, blockIdx.x - n_find);
        return;
    }
    find_keys<HAS_SLOTS>(t, j, own);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0)
        is_last = atomicAdd(&j.state->n_found, 1u) + 1 == n_find;
    __syncthreads();
    if (!is_last)
        return;
    __threadfence();
    plan_all<Own>(t, j, shared);
}

int launch_batch_plan(struct table_view t, struct batch_view j, void *stream)
{
    unsigned block = 64;
    while (block < BLOCK_MOST && block < j.n_keys)
        block *= 2;
    unsigned n_find = (j.n_keys + block - 1) / block, grid = n_find + j.n_fetch_blocks;
    if (j.own)
        return LAUNCH((batch_plan<false, key_set>), grid, block, stream, t, j, *j.own, n_find);
    if (t.row_slots)
        return LAUNCH((batch_plan<true, own_all>), grid, block, stream, t, j, own_all{}, n_find);
    return LAUNCH((batch_plan<false, own_all>), grid, block, stream, t, j, own_all{}, n_find);
}
