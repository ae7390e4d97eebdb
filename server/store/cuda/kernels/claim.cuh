/* claim.cuh - entries for the new keys of a warp.
 *
 * Four lanes look at the bucket of a key, and the one that sees the empty entry takes it: a bucket
 * is read by one request, and the loads of the warp's 32 buckets start before the first entry is
 * taken. Keys that find their bucket full go on together, TILES at a time. No lane waits for
 * another: who gets its ref in owns the entry, and only later kernels read its key. */
#ifndef EMBD_CUDA_CLAIM_CUH
#define EMBD_CUDA_CLAIM_CUH

#include "server/store/cuda/kernels/keytable.cuh"

/* A key that the lanes of a tile place together. */
struct tile_key {
    uint64_t key;
    uint32_t slot, ref;
    bool wants; /* an entry of the bucket that the tile looks at */
};

__device__ static inline tile_key tile_key_of(const tile_key &own, int from)
{
    tile_key k;
    k.key = __shfl_sync(ALL_LANES, own.key, from);
    k.slot = __shfl_sync(ALL_LANES, own.slot, from);
    k.ref = __shfl_sync(ALL_LANES, own.ref, from);
    k.wants = __shfl_sync(ALL_LANES, own.wants, from);
    return k;
}

/* The lanes, as bits, whose entry was taken; `e` is this lane's, and `seen` its ref. The ref of the
 * key says which of several empty entries is tried first, so that tiles seldom collide. */
__device__ static inline uint32_t tile_claim(const table_view &t, struct entry *e, uint32_t seen,
                                             const tile_key &k)
{
    uint32_t lane = threadIdx.x % 32, at = lane % ENTRY_BUCKET, base = lane - at,
             turn = k.ref % ENTRY_BUCKET, taken = 0;
    uint32_t empty = __ballot_sync(ALL_LANES, k.wants && seen == 0) >> base & BUCKET_BITS;
    while (__ballot_sync(ALL_LANES, empty != 0)) {
        uint32_t turned = (empty | empty << ENTRY_BUCKET) >> turn & BUCKET_BITS;
        uint32_t choice = ((uint32_t)__ffs((int)turned) - 1 + turn) % ENTRY_BUCKET;
        bool took = empty && choice == at && entry_take(t, e, k.key, k.slot, k.ref);
        taken |= __ballot_sync(ALL_LANES, took);
        empty = taken >> base & BUCKET_BITS ? 0 : empty & ~(1u << choice);
    }
    return taken;
}

/* Keys whose bucket is full, from that bucket on. */
__device__ static inline void claim_further(const table_view &t, tile_key own, uint64_t bucket)
{
    uint32_t lane = threadIdx.x % 32, tile = lane / ENTRY_BUCKET, at = lane % ENTRY_BUCKET;
    for (uint32_t open = __ballot_sync(ALL_LANES, own.wants); open;
         open = __ballot_sync(ALL_LANES, own.wants)) {
        uint32_t mine = open, rank = __popc(open & ((1u << lane) - 1));
        for (uint32_t i = 0; i < tile; i++)
            mine &= mine - 1;
        int from = mine ? __ffs((int)mine) - 1 : 0;
        tile_key k = tile_key_of(own, from);
        k.wants = mine != 0;
        struct entry *e =
            t.entries + __shfl_sync(ALL_LANES, bucket, from) * ENTRY_BUCKET + lane % ENTRY_BUCKET;
        uint32_t taken = tile_claim(t, e, __ldcg(&e->ref), k);
        bool is_full = k.wants && !(taken >> tile * ENTRY_BUCKET & BUCKET_BITS);
        if (is_full && at == 0 && !(__ldcg(&e->tail) & ENTRY_OVERFLOW))
            atomicOr(&e->tail, ENTRY_OVERFLOW);
        if (own.wants && rank < TILES) {
            own.wants = !(taken >> rank * ENTRY_BUCKET & BUCKET_BITS);
            bucket = bucket_after(t, bucket);
        }
    }
}

/* Gives the key of each lane that wants one an entry. All lanes of the warp call it, and no other
 * lane of the launch has an equal key. LOOKS: returns false, and places nothing, where the key has
 * an entry; without, no key has one. */
template <bool LOOKS>
__device__ static inline bool claim_warp(const table_view &t, const tile_key &own)
{
    constexpr uint32_t ROUNDS = 32 / TILES;
    uint32_t lane = threadIdx.x % 32, mine = lane % TILES * ENTRY_BUCKET;
    uint64_t bucket = key_bucket(t, key_hash(t, own.key, own.slot));
    bool placed = !own.wants, hit = false, more = false;
    uint4 seen[ROUNDS];
#pragma unroll
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint64_t at = __shfl_sync(ALL_LANES, bucket, (int)(round * TILES + lane / ENTRY_BUCKET));
        const struct entry *e = t.entries + at * ENTRY_BUCKET + lane % ENTRY_BUCKET;
        seen[round] = LOOKS ? __ldcg((const uint4 *)e) : make_uint4(0, 0, __ldcg(&e->ref), 0);
    }
#pragma unroll
    for (uint32_t round = 0; round < ROUNDS; round++) {
        int from = (int)(round * TILES + lane / ENTRY_BUCKET);
        uint64_t at = __shfl_sync(ALL_LANES, bucket, from);
        tile_key k = tile_key_of(own, from);
        bucket_answer a = {0, 0, 0};
        if (LOOKS)
            a = bucket_ask<true>(seen[round], k.key, k.slot);
        uint32_t base = lane / ENTRY_BUCKET * ENTRY_BUCKET;
        k.wants = k.wants && !(a.hits >> base & BUCKET_BITS) && !(a.overflows >> base & 1);
        struct entry *e = t.entries + at * ENTRY_BUCKET + lane % ENTRY_BUCKET;
        uint32_t taken = tile_claim(t, e, seen[round].z, k);
        if (lane / TILES == round) {
            placed = placed || (taken >> mine & BUCKET_BITS);
            hit = own.wants && (a.hits >> mine & BUCKET_BITS);
            more = own.wants && !hit && (a.overflows >> mine & 1);
        }
    }
    if (LOOKS && __ballot_sync(ALL_LANES, more)) {
        uint32_t ref = find_further<true, true>(t, own.key, own.slot, bucket, more);
        hit = hit || (more && ref != 0);
    }
    tile_key left = own;
    left.wants = !placed && !hit;
    claim_further(t, left, bucket);
    return !hit;
}

#endif
