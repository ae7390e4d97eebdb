/* place.cuh - gives new keys their rows. */
#ifndef EMBD_CUDA_PLACE_CUH
#define EMBD_CUDA_PLACE_CUH

#include "server/store/cuda/kernels/keytable.cuh"
#include "server/store/cuda/kernels/values.cuh"

/* A new key; the lanes of a warp have 32 of them. */
struct newcomer {
    uint64_t key;
    uint32_t slot, position; /* the key's position in its request */
};

/* Gives key i row `row` and, if it has none, an entry. The entry is written at once, while its
 * bucket is in the cache. */
__device__ static inline newcomer newcomer_place(const table_view &t, const keys_view &in,
                                                 uint32_t i, uint32_t row, bool needs_entry)
{
    newcomer it = {in.keys[i], slot_at(t, in, i), i};
    t.row_keys[row] = it.key;
    if (t.row_slots)
        t.row_slots[row] = (uint16_t)it.slot;
    if (needs_entry)
        entry_place(t, it.key, it.slot, row + 1);
    return it;
}

#endif
