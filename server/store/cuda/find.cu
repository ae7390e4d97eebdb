/* find.cu - refs and statuses of a request's keys, and to which row each belongs. */
#include "embd/embd.h"
#include "keytable.cuh"

/* The last row that begins at or before key k: rows may be empty. */
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

/* All lanes of a warp make the same number of turns. */
static __global__ void __launch_bounds__(256)
    find(table_view t, keys_view in, uint32_t *refs, uint8_t *statuses)
{
    uint32_t lane = threadIdx.x % 32;
    for (uint64_t base = lane_index() / 32 * KEYS; base < in.n; base += lane_count() / 32 * KEYS) {
        uint32_t i = (uint32_t)base + lane;
        bool active = lane < KEYS && i < in.n;
        uint64_t key = active ? in.keys[i] : 0;
        uint32_t slot = active ? slot_at(t, in, i) : 0;
        uint32_t ref = find_warp(t, key, slot, active);
        if (active)
            refs[i] = ref;
        if (active && statuses)
            statuses[i] = is_row(ref) ? EMBD_KEY_HIT : EMBD_KEY_MISSING;
    }
}

int launch_find(struct table_view t, struct keys_view in, uint32_t *refs, uint8_t *statuses,
                void *stream)
{
    uint64_t n_warps = ((uint64_t)in.n + KEYS - 1) / KEYS;
    struct shape s = shape_of(n_warps * 32);
    return LAUNCH(find, s.grid, s.block, stream, t, in, refs, statuses);
}
