/* keytable.cuh - the hash table of keys: lookup and insertion; kernels.h describes the layout.
 *
 * A warp looks up KEYS keys at once: four lanes read a bucket, 16 bytes each, and the loads of all
 * buckets start before the first comparison. At a load of 0.62 one key in ten needs a second
 * bucket, which costs less than buckets of twice the size did. */
#ifndef EMBD_CUDA_KEYTABLE_CUH
#define EMBD_CUDA_KEYTABLE_CUH

#include "server/store/cuda/kernels/launch.cuh"

/* A bucket is read by as many lanes as it has entries, so a warp reads TILES buckets at a time. */
#define TILES       (32 / ENTRY_BUCKET)
#define BUCKET_BITS ((1u << ENTRY_BUCKET) - 1)

/* The finalizer of splitmix64, with the secret of the process. It must differ from the hash that
 * routes keys to shards: with the same one, most buckets of a shard would be empty. */
__device__ static inline uint64_t key_hash(const table_view &t, uint64_t key, uint32_t slot)
{
    uint64_t x = (key ^ t.secret.first) + slot * 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27) ^ t.secret.second) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

__device__ static inline uint64_t key_bucket(const table_view &t, uint64_t hash)
{
    return __umul64hi(hash, t.n_buckets);
}

__device__ static inline uint64_t bucket_after(const table_view &t, uint64_t bucket)
{
    return bucket + 1 == t.n_buckets ? 0 : bucket + 1;
}

__device__ static inline bool is_row(uint32_t ref)
{
    return ref - 1 < REF_CANDIDATE - 1;
}

__device__ static inline uint32_t slot_at(const table_view &t, const keys_view &in, uint32_t i)
{
    return t.row_slots == nullptr ? 0 : in.slots[in.row_of ? in.row_of[i] : i];
}

/* The ref of the entry if it holds (key, slot), else 0. */
template <bool HAS_SLOTS>
__device__ static inline uint32_t entry_match(uint4 e, uint64_t key, uint32_t slot)
{
    bool same = ((uint64_t)e.y << 32 | e.x) == key && (!HAS_SLOTS || (e.w & ENTRY_SLOT) == slot);
    return same ? e.z : 0;
}

/* A bucket as the lanes of a tile see it, broadcast to the warp. */
struct bucket_answer {
    uint32_t hits, overflows; /* a bit for each lane */
    uint32_t ref;             /* of this lane's entry */
};

template <bool HAS_SLOTS>
__device__ static inline bucket_answer bucket_ask(uint4 e, uint64_t key, uint32_t slot)
{
    bucket_answer a;
    a.ref = entry_match<HAS_SLOTS>(e, key, slot);
    a.hits = __ballot_sync(ALL_LANES, a.ref != 0);
    a.overflows =
        __ballot_sync(ALL_LANES, threadIdx.x % ENTRY_BUCKET == 0 && (e.w & ENTRY_OVERFLOW));
    return a;
}

/* Continues the search of keys whose bucket overflowed, TILES keys of the warp at a time. IS_LIVE:
 * while others insert. */
template <bool HAS_SLOTS, bool IS_LIVE = false>
__device__ static inline uint32_t find_further(const table_view &t, uint64_t key, uint32_t slot,
                                               uint64_t bucket, bool more)
{
    uint32_t lane = threadIdx.x % 32, tile = lane / ENTRY_BUCKET, found = 0;
    for (uint32_t open = __ballot_sync(ALL_LANES, more); open;
         open = __ballot_sync(ALL_LANES, more)) {
        uint32_t mine = open, rank = __popc(open & ((1u << lane) - 1));
        for (uint32_t i = 0; i < tile; i++)
            mine &= mine - 1;
        int from = mine ? __ffs((int)mine) - 1 : 0;
        bucket = more && rank < TILES ? bucket_after(t, bucket) : bucket;
        uint64_t at = __shfl_sync(ALL_LANES, bucket, from),
                 wanted = __shfl_sync(ALL_LANES, key, from);
        uint32_t wanted_slot = HAS_SLOTS ? __shfl_sync(ALL_LANES, slot, from) : 0;
        const struct entry *entry = t.entries + at * ENTRY_BUCKET + lane % ENTRY_BUCKET;
        uint4 e = IS_LIVE ? __ldcg((const uint4 *)entry) : load_once(entry);
        bucket_answer a = bucket_ask<HAS_SLOTS>(e, wanted, wanted_slot);
        uint32_t base = rank % TILES * ENTRY_BUCKET, hits = a.hits >> base & BUCKET_BITS;
        uint32_t ref =
            __shfl_sync(ALL_LANES, a.ref, (int)(base + (hits ? __ffs((int)hits) - 1 : 0)));
        if (more && rank < TILES) {
            found = hits ? ref : 0;
            more = !hits && (a.overflows >> base & 1);
        }
    }
    return found;
}

/* The ref, or 0, of the key of each of the first KEYS lanes. All lanes of the warp call it; the
 * result of inactive lanes is undefined. */
template <uint32_t KEYS, bool HAS_SLOTS>
__device__ static inline uint32_t find_warp(const table_view &t, uint64_t key, uint32_t slot,
                                            bool active)
{
    uint32_t lane = threadIdx.x % 32, found = 0;
    uint64_t bucket = key_bucket(t, key_hash(t, key, HAS_SLOTS ? slot : 0));
    bool more = false;
    constexpr uint32_t ROUNDS = KEYS / TILES;
    uint4 e[ROUNDS];
#pragma unroll
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint64_t at = __shfl_sync(ALL_LANES, bucket, (int)(round * TILES + lane / ENTRY_BUCKET));
        e[round] = load_once(t.entries + at * ENTRY_BUCKET + lane % ENTRY_BUCKET);
    }
#pragma unroll
    for (uint32_t round = 0; round < ROUNDS; round++) {
        int from = (int)(round * TILES + lane / ENTRY_BUCKET);
        uint64_t wanted = __shfl_sync(ALL_LANES, key, from);
        uint32_t wanted_slot = HAS_SLOTS ? __shfl_sync(ALL_LANES, slot, from) : 0;
        bucket_answer a = bucket_ask<HAS_SLOTS>(e[round], wanted, wanted_slot);
        uint32_t base = lane % TILES * ENTRY_BUCKET, hits = a.hits >> base & BUCKET_BITS;
        uint32_t ref =
            __shfl_sync(ALL_LANES, a.ref, (int)(base + (hits ? __ffs((int)hits) - 1 : 0)));
        if (lane / TILES == round) {
            found = hits ? ref : 0;
            more = !hits && (a.overflows >> base & 1);
        }
    }
    more = more && active;
    if (__ballot_sync(ALL_LANES, more)) {
        uint32_t ref = find_further<HAS_SLOTS>(t, key, slot, bucket, more);
        found = more ? ref : found;
    }
    return found;
}

/* The entry of a key, by one lane, while no kernel inserts; NULL: the key has none. */
__device__ static inline struct entry *entry_of(const table_view &t, uint64_t key, uint32_t slot)
{
    uint64_t bucket = key_bucket(t, key_hash(t, key, slot));
    for (;;) {
        struct entry *e = t.entries + bucket * ENTRY_BUCKET;
        for (uint32_t i = 0; i < ENTRY_BUCKET; i++)
            if (e[i].ref && e[i].key == key && (e[i].tail & ENTRY_SLOT) == slot)
                return e + i;
        if (!(e[0].tail & ENTRY_OVERFLOW))
            return nullptr;
        bucket = bucket_after(t, bucket);
    }
}

/* Claims the entry and writes key and slot: false if another lane owns it. A removed entry keeps
 * its slot until it is claimed, so that a concurrent search never matches its key with another
 * slot. */
__device__ static inline bool entry_take(const table_view &t, struct entry *e, uint64_t key,
                                         uint32_t slot, uint32_t ref)
{
    if (atomicCAS(&e->ref, 0u, ref) != 0)
        return false;
    e->key = key;
    if (t.row_slots == nullptr)
        return true;
    uint32_t before = __ldcg(&e->tail) & ENTRY_SLOT;
    if (before & ~slot)
        atomicAnd(&e->tail, ~(before & ~slot));
    if (slot & ~before)
        atomicOr(&e->tail, slot & ~before);
    return true;
}

/* Claims an empty entry of the bucket for the key: false if the bucket is full. All refs are loaded
 * at once, so that the lanes of a warp wait together. The key decides where the scan begins, so
 * that lanes seldom collide. */
__device__ static inline bool entry_claim(const table_view &t, struct entry *bucket, uint64_t key,
                                          uint32_t slot, uint32_t ref, uint32_t first)
{
    uint32_t refs[ENTRY_BUCKET], empty = 0;
#pragma unroll
    for (uint32_t i = 0; i < ENTRY_BUCKET; i++)
        refs[i] = __ldcg(&bucket[i].ref);
#pragma unroll
    for (uint32_t i = 0; i < ENTRY_BUCKET; i++)
        empty |= (refs[i] == 0 ? 1u : 0u) << (i - first) % ENTRY_BUCKET;
    for (; empty; empty &= empty - 1) {
        struct entry *e = bucket + ((uint32_t)__ffs((int)empty) - 1 + first) % ENTRY_BUCKET;
        if (entry_take(t, e, key, slot, ref))
            return true;
    }
    return false;
}

/* Inserts a key that has no entry and that no other lane inserts. No lane waits: the one whose ref
 * gets in owns the entry, and only later kernels read its key. */
__device__ static inline void entry_place(const table_view &t, uint64_t key, uint32_t slot,
                                          uint32_t ref)
{
    uint64_t hash = key_hash(t, key, slot), bucket = key_bucket(t, hash);
    while (!entry_claim(t, t.entries + bucket * ENTRY_BUCKET, key, slot, ref, (uint32_t)hash)) {
        uint32_t *tail = &t.entries[bucket * ENTRY_BUCKET].tail;
        if (!(__ldcg(tail) & ENTRY_OVERFLOW))
            atomicOr(tail, ENTRY_OVERFLOW);
        bucket = bucket_after(t, bucket);
    }
}

#endif
