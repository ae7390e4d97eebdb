/* find.cu - looks up the keys of a request: their refs, their statuses, and the row each key
 * belongs to. */
#include "embd/embd.h"
#include "server/store/cuda/kernels/mark.cuh"
#include "server/store/cuda/kernels/own.cuh"

/* Binary search for the last row that begins at or before key k; rows may be empty. */
static __global__ void expand(keys_view in)
{
    for (uint64_t k = lane_index(); k < in.n; k += lane_count()) {
        uint32_t low = 0, high = in.n_rows;
        while (high - low > 1) {
            uint32_t middle = low + (high - low) / 2;
            if (in.offsets[middle] - in.first <= k)
                low = middle;
            else
                high = middle;
        }
        in.row_of[k] = low;
    }
}

int launch_expand(struct keys_view in, void *stream)
{
    struct shape s = shape_of(in.n);
    return LAUNCH(expand, s.grid, s.block, stream, in);
}

/* One key a lane; all lanes of a warp make the same number of iterations. Keys outside a set have
 * the ref REF_OUTSIDE, and all look in the same bucket. */
template <bool HAS_SLOTS, class Own, class Keep>
__device__ static inline void find_each(const table_view &t, const keys_view &in, const Own &set,
                                        Keep keep)
{
    uint32_t lane = threadIdx.x % 32;
    auto own = own_begin(set);
    for (uint64_t base = lane_index() - lane; base < in.n; base += lane_count()) {
        uint32_t i = (uint32_t)base + lane;
        bool active = i < in.n;
        uint64_t key = active ? __ldcs(in.keys + i) : 0;
        uint32_t slot = HAS_SLOTS && active ? slot_at(t, in, i) : 0;
        bool mine = own_has(own, key);
        uint32_t ref = find_warp<32, HAS_SLOTS>(t, mine ? key : 0, slot, active && mine);
        if (active)
            keep(i, key, slot, mine ? ref : REF_OUTSIDE);
    }
}

template <bool HAS_SLOTS, class Own>
static __global__ void __launch_bounds__(256, 6)
    find(table_view t, keys_view in, Own own, uint32_t *refs, uint8_t *statuses)
{
    find_each<HAS_SLOTS>(t, in, own, [=](uint32_t i, uint64_t, uint32_t, uint32_t ref) {
        refs[i] = ref;
        if (statuses)
            statuses[i] = is_row(ref) ? EMBD_KEY_HIT : EMBD_KEY_MISSING;
    });
}

int launch_find(struct table_view t, struct keys_view in, uint32_t *refs, uint8_t *statuses,
                void *stream)
{
    struct shape s = shape_of(in.n);
    if (in.own)
        return LAUNCH((find<false, key_set>), s.grid, s.block, stream, t, in, *in.own, refs,
                      statuses);
    if (t.row_slots)
        return LAUNCH((find<true, own_all>), s.grid, s.block, stream, t, in, own_all{}, refs,
                      statuses);
    return LAUNCH((find<false, own_all>), s.grid, s.block, stream, t, in, own_all{}, refs,
                  statuses);
}

__device__ static inline void note_outside(const plan_view &p, uint32_t i)
{
    p.refs[i] = 0;
    p.is_leader[i] = 0;
    p.group[i] = GROUP_OUTSIDE;
}

template <bool HAS_SLOTS, class Own>
static __global__ void __launch_bounds__(256, 6)
    search(table_view t, keys_view in, Own own, plan_view p)
{
    constexpr bool IS_SET = !std::is_same<Own, own_all>::value;
    bool misses = false, has_own = false;
    find_each<HAS_SLOTS>(t, in, own, [&](uint32_t i, uint64_t key, uint32_t slot, uint32_t ref) {
        p.positions[i] = i;
        if (is_outside<Own>(ref)) {
            note_outside(p, i);
            return;
        }
        if (IS_SET) {
            has_own = true;
            p.group[i] = 0; /* not GROUP_OUTSIDE */
        }
        p.refs[i] = is_row(ref) || !t.forgets ? ref : 0;
        p.is_leader[i] = !is_row(ref);
        if (!is_row(ref)) {
            misses = true;
            if (p.marks)
                mark_set(p, key_hash(t, key, slot));
        }
    });
    if (__syncthreads_or(misses) && threadIdx.x == 0)
        p.report->misses = 1;
    if (IS_SET && __syncthreads_or(has_own) && threadIdx.x == 0)
        p.report->has_own = 1;
}

template <bool HAS_SLOTS, class Own>
static __global__ void __launch_bounds__(256, 6)
    look(table_view t, keys_view in, Own own, uint32_t *refs, uint64_t *items, uint32_t *misses_out,
         uint32_t *stop)
{
    bool misses = false;
    find_each<HAS_SLOTS>(t, in, own, [&](uint32_t i, uint64_t, uint32_t, uint32_t ref) {
        bool outside = is_outside<Own>(ref);
        refs[i] = outside ? 0 : ref;
        items[i] = item_of(outside ? 0 : ref, i);
        misses = misses || (!outside && !is_row(ref));
    });
    if (__syncthreads_or(misses) && threadIdx.x == 0) {
        *misses_out = 1;
        if (stop)
            *stop = 1;
    }
}

int launch_look(struct table_view t, struct keys_view in, struct plan_view p, uint64_t *items,
                uint32_t *misses, uint32_t *stop, void *stream)
{
    struct shape s = shape_of(in.n);
    if (in.own)
        return LAUNCH((look<false, key_set>), s.grid, s.block, stream, t, in, *in.own, p.refs,
                      items, misses, stop);
    if (t.row_slots)
        return LAUNCH((look<true, own_all>), s.grid, s.block, stream, t, in, own_all{}, p.refs,
                      items, misses, stop);
    return LAUNCH((look<false, own_all>), s.grid, s.block, stream, t, in, own_all{}, p.refs, items,
                  misses, stop);
}

static __global__ void __launch_bounds__(256)
    make_items(const uint32_t *refs, uint32_t n, uint64_t *items)
{
    for (uint64_t i = lane_index(); i < n; i += lane_count())
        items[i] = item_of(refs[i], (uint32_t)i);
}

int launch_items(const uint32_t *refs, uint32_t n, uint64_t *items, void *stream)
{
    struct shape s = shape_of(n);
    return LAUNCH(make_items, s.grid, s.block, stream, refs, n, items);
}

static __global__ void __launch_bounds__(256)
    take_refs(const uint64_t *items, uint32_t n, uint32_t *refs)
{
    for (uint64_t i = lane_index(); i < n; i += lane_count())
        refs[i] = item_ref(items[i]);
}

int launch_refs(const uint64_t *items, uint32_t n, uint32_t *refs, void *stream)
{
    struct shape s = shape_of(n);
    return LAUNCH(take_refs, s.grid, s.block, stream, items, n, refs);
}

int launch_search(struct table_view t, struct keys_view in, struct plan_view p, void *stream)
{
    struct shape s = shape_of(in.n);
    if (in.own)
        return LAUNCH((search<false, key_set>), s.grid, s.block, stream, t, in, *in.own, p);
    if (t.row_slots)
        return LAUNCH((search<true, own_all>), s.grid, s.block, stream, t, in, own_all{}, p);
    return LAUNCH((search<false, own_all>), s.grid, s.block, stream, t, in, own_all{}, p);
}
