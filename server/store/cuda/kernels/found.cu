/* found.cu - what pulls found: kept, and compared with the keys of a push. */
#include "server/store/cuda/kernels/found.cuh"

template <class Own>
static __global__ void __launch_bounds__(256)
    note_found(table_view t, keys_view in, const uint32_t *refs, found_view f)
{
    for (uint64_t at = lane_index(); at < in.n; at += lane_count()) {
        uint32_t i = (uint32_t)at;
        found_set<Own>(f, in.n, i, in.keys[i], slot_at(t, in, i), refs[i]);
    }
}

int launch_note_found(struct table_view t, struct keys_view in, const uint32_t *refs,
                      struct found_view found, void *stream)
{
    struct shape s = shape_of(in.n);
    return in.own ? LAUNCH(note_found<key_set>, s.grid, s.block, stream, t, in, refs, found)
                  : LAUNCH(note_found<own_all>, s.grid, s.block, stream, t, in, refs, found);
}

/* Items are sorted, so those of keys without a row are the first, beside those of keys outside a
 * set. */
static __global__ void __launch_bounds__(256)
    compare(table_view t, keys_view in, found_view f, uint32_t *differs_out, uint32_t *stop)
{
    bool differs = lane_index() == 0 && (in.own ? f.keys[in.n] != 0 : item_ref(f.items[0]) == 0);
    for (uint64_t at = lane_index(); at < in.n; at += lane_count()) {
        uint32_t i = (uint32_t)at;
        differs =
            differs || f.keys[i] != in.keys[i] || (f.slots && f.slots[i] != slot_at(t, in, i));
    }
    if (__syncthreads_or(differs) && threadIdx.x == 0) {
        *differs_out = 1;
        if (stop)
            *stop = 1;
    }
}

int launch_compare(struct table_view t, struct keys_view in, struct found_view found,
                   uint32_t *differs, uint32_t *stop, void *stream)
{
    struct shape s = shape_of(in.n);
    return LAUNCH(compare, s.grid, s.block, stream, t, in, found, differs, stop);
}
