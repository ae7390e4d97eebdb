/* insert_plan.cu - finds the distinct keys of a request that have no row, in order of first
 * occurrence, so that row numbers are reproducible.
 *
 * Equal keys meet in a hash table of positions. A place holds a position, and the key at that
 * position was written before, so no lane waits for another. Which of several equal keys claims a
 * place first varies; in the end the place holds the smallest of their positions. */
#include "server/store/cuda/kernels/mark.cuh"
#include "server/store/cuda/kernels/own.cuh"

/* Adds the number of lanes of the warp with `counts`; all lanes call it. */
__device__ static inline void count_lanes(uint32_t *to, bool counts)
{
    uint32_t lanes = __ballot_sync(ALL_LANES, counts);
    if (threadIdx.x % 32 == 0 && lanes)
        atomicAdd(to, (uint32_t)__popc(lanes));
}

__device__ static inline bool is_filtered(const table_view &t, uint32_t ref)
{
    uint64_t sights = ref & REF_SIGHTS_MAX;
    return sights + 1 < t.admit_after;
}

/* The place of key i's group. Of two equal keys that meet there, the one that sees the other first
 * clears the flag of the later one; nothing sets a flag again. */
__device__ static inline uint32_t claim(const table_view &t, const keys_view &in,
                                        const plan_view &p, uint32_t i, uint64_t key, uint32_t slot,
                                        uint64_t hash)
{
    uint32_t at = (uint32_t)(hash >> 7) & (p.n_groups - 1);
    for (;;) {
        uint32_t owner = __ldcg(&p.claims[at]);
        if (owner == 0)
            owner = atomicCAS(&p.claims[at], 0u, i + 1);
        if (owner == 0)
            return at;
        if (in.keys[owner - 1] == key && slot_at(t, in, owner - 1) == slot) {
            if (owner > i + 1)
                owner = atomicMin(&p.claims[at], i + 1);
            p.is_leader[(owner > i + 1 ? owner : i + 1) - 1] = 0;
            return at;
        }
        at = (at + 1) & (p.n_groups - 1);
    }
}

static __global__ void __launch_bounds__(256) group(table_view t, keys_view in, plan_view p)
{
    if (p.report->misses == 0)
        return;
    for (uint64_t at = lane_index(); at < in.n; at += lane_count()) {
        uint32_t i = (uint32_t)at;
        if (is_row(p.refs[i]) || is_outside(in, p, i))
            continue;
        uint64_t key = in.keys[i];
        uint32_t slot = slot_at(t, in, i);
        uint64_t hash = key_hash(t, key, slot);
        if (!p.marks || !mark_is_alone(p, hash))
            p.group[i] = claim(t, in, p, i, key, slot, hash);
    }
}

static __global__ void __launch_bounds__(256) judge(table_view t, keys_view in, plan_view p)
{
    uint64_t lane = threadIdx.x % 32;
    if (p.report->misses == 0)
        return;
    for (uint64_t base = lane_index() - lane; base < in.n; base += lane_count()) {
        uint32_t i = (uint32_t)(base + lane), ref = i < in.n ? p.refs[i] : 1;
        bool filtered = i < in.n && p.is_leader[i] && is_filtered(t, ref);
        count_lanes(&p.report->n_filtered, filtered);
        count_lanes(&p.report->n_filtered_new, filtered && ref == 0);
        if (filtered)
            p.is_leader[i] = 0;
    }
}

int launch_group(struct table_view t, struct keys_view in, struct plan_view p, void *stream)
{
    struct shape s = shape_few(in.n);
    int status = LAUNCH(group, s.grid, s.block, stream, t, in, p);
    if (status == 0 && t.admit_after > 1)
        status = LAUNCH(judge, s.grid, s.block, stream, t, in, p);
    return status;
}

static __global__ void __launch_bounds__(256) count(plan_view p, uint64_t room)
{
    uint64_t lane = threadIdx.x % 32, n = p.report->n_leaders < room ? p.report->n_leaders : room;
    for (uint64_t base = lane_index() - lane; base < n; base += lane_count())
        count_lanes(&p.report->n_promoted, base + lane < n && p.refs[p.leaders[base + lane]] != 0);
}

int launch_count(struct keys_view in, struct plan_view p, uint64_t room, void *stream)
{
    struct shape s = shape_of(in.n);
    return LAUNCH(count, s.grid, s.block, stream, p, room);
}

/* Leaders have their refs; the other keys of a group copy them. */
static __global__ void __launch_bounds__(256)
    resolve(table_view t, keys_view in, plan_view p, uint8_t *statuses)
{
    for (uint64_t i = lane_index(); i < in.n; i += lane_count()) {
        uint32_t ref = p.refs[i];
        if (is_outside(in, p, i))
            continue;
        bool is_leader = p.is_leader[i];
        uint8_t status = EMBD_KEY_HIT;
        if (is_leader || !is_row(ref)) {
            bool filtered = !is_leader && is_filtered(t, ref);
            if (!is_leader) {
                ref = filtered ? 0 : p.refs[p.claims[p.group[i]] - 1];
                p.refs[i] = ref;
            }
            status = filtered ? EMBD_KEY_FILTERED : ref ? EMBD_KEY_INSERTED : EMBD_KEY_FULL;
        }
        if (statuses)
            statuses[i] = status;
    }
}

int launch_resolve(struct table_view t, struct keys_view in, struct plan_view p, uint8_t *statuses,
                   void *stream)
{
    struct shape s = shape_of(in.n);
    return LAUNCH(resolve, s.grid, s.block, stream, t, in, p, statuses);
}
