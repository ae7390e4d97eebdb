/* place.cuh - gives new keys their rows. */
#ifndef EMBD_CUDA_PLACE_CUH
#define EMBD_CUDA_PLACE_CUH

#include "server/store/cuda/kernels/claim.cuh"
#include "server/store/cuda/kernels/values.cuh"

/* A new key; the lanes of a warp have 32 of them. */
struct newcomer {
    uint64_t key;
    uint32_t slot, position; /* the key's position in its request */
};

/* Gives key i row `row`. */
__device__ static inline newcomer newcomer_place(const table_view &t, const keys_view &in,
                                                 uint32_t i, uint32_t row)
{
    newcomer it = {in.keys[i], slot_at(t, in, i), i};
    t.row_keys[row] = it.key;
    if (t.row_slots)
        t.row_slots[row] = (uint16_t)it.slot;
    return it;
}

/* Entries of the warp's new keys, of the lanes that want one: lane l's row is `row` + l. EXPECTS:
 * of keys that probably have none; one that has is told to the report. */
template <bool EXPECTS>
__device__ static inline void newcomers_claim(const table_view &t, const plan_view &p,
                                              const newcomer &mine, uint64_t row, bool wants)
{
    uint32_t lane = threadIdx.x % 32;
    tile_key own = {mine.key, mine.slot, (uint32_t)(row + lane + 1), wants};
    bool is_new = claim_warp<EXPECTS>(t, own);
    if (EXPECTS && __ballot_sync(ALL_LANES, !is_new) && lane == 0)
        p.report->is_wrong = 1;
}

/* Whether keys that were expected to be new are known not to be, for the whole warp alike. */
__device__ static inline bool expected_wrongly(const plan_view &p)
{
    return __ballot_sync(ALL_LANES, __ldcg(&p.report->is_wrong) != 0) != 0;
}

#endif
