/* expect.cu - keys that are expected to be new: whether each occurs once, and the way back where
 * they were not. */
#include "server/store/cuda/kernels/mark.cuh"

static __global__ void __launch_bounds__(256) mark_all(table_view t, keys_view in, plan_view p)
{
    for (uint64_t i = lane_index(); i < in.n; i += lane_count())
        mark_set(p, key_hash(t, in.keys[i], slot_at(t, in, (uint32_t)i)));
    if (lane_index() == 0) {
        p.report->misses = 1;
        p.report->n_leaders = in.n;
    }
}

/* Whether an equal key has claimed a place before this one. */
__device__ static inline bool has_twin(const table_view &t, const keys_view &in, const plan_view &p,
                                       uint32_t i, uint64_t key, uint32_t slot, uint64_t hash)
{
    for (uint32_t at = (uint32_t)(hash >> 7) & (p.n_groups - 1);;
         at = (at + 1) & (p.n_groups - 1)) {
        uint32_t owner = __ldcg(&p.claims[at]);
        if (owner == 0)
            owner = atomicCAS(&p.claims[at], 0u, i + 1);
        if (owner == 0)
            return false;
        if (in.keys[owner - 1] == key && slot_at(t, in, owner - 1) == slot)
            return true;
    }
}

static __global__ void __launch_bounds__(256) seek_twins(table_view t, keys_view in, plan_view p)
{
    for (uint64_t at = lane_index(); at < in.n; at += lane_count()) {
        uint32_t i = (uint32_t)at, slot = slot_at(t, in, i);
        uint64_t key = in.keys[i], hash = key_hash(t, key, slot);
        if (!mark_is_alone(p, hash) && has_twin(t, in, p, i, key, slot, hash))
            p.report->is_wrong = 1;
    }
}

int launch_expect(struct table_view t, struct keys_view in, struct plan_view p, void *stream)
{
    struct shape s = shape_of(in.n);
    int status = LAUNCH(mark_all, s.grid, s.block, stream, t, in, p);
    return status ? status : LAUNCH(seek_twins, s.grid, s.block, stream, t, in, p);
}

/* Rows from first_row on are nobody's yet, so a ref says whose entry it is. */
static __global__ void __launch_bounds__(256)
    unexpect(table_view t, keys_view in, uint64_t first_row)
{
    for (uint64_t i = lane_index(); i < in.n; i += lane_count()) {
        struct entry *e = entry_of(t, in.keys[i], slot_at(t, in, (uint32_t)i));
        if (e != nullptr && e->ref == (uint32_t)(first_row + i + 1))
            e->ref = 0;
    }
}

int launch_unexpect(struct table_view t, struct keys_view in, uint64_t first_row, void *stream)
{
    struct shape s = shape_of(in.n);
    return LAUNCH(unexpect, s.grid, s.block, stream, t, in, first_row);
}
