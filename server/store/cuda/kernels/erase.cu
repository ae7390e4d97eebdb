/* erase.cu - removes entries, and moves the last rows of the table into the places of removed rows.
 */
#include "server/store/cuda/kernels/keytable.cuh"
#include "server/store/cuda/kernels/values.cuh"

/* Of equal keys, the one that clears the entry counts it. */
static __global__ void __launch_bounds__(256)
    forget(table_view t, keys_view in, const uint32_t *refs, loss_view loss)
{
    for (uint64_t i = lane_index(); i < in.n; i += lane_count()) {
        struct entry *e = nullptr;
        if (refs[i] != 0)
            e = entry_of(t, in.keys[i], slot_at(t, in, (uint32_t)i));
        uint32_t ref = e != nullptr ? atomicExch(&e->ref, 0u) : 0;
        if (ref == 0)
            continue;
        if (is_row(ref))
            loss.rows[atomicAdd(loss.n_rows, 1u)] = ref - 1;
        else
            atomicAdd(loss.n_candidates, 1u);
    }
}

int launch_forget(struct table_view t, struct keys_view in, const uint32_t *refs,
                  struct loss_view loss, void *stream)
{
    struct shape s = shape_of(in.n);
    return LAUNCH(forget, s.grid, s.block, stream, t, in, refs, loss);
}

static __global__ void __launch_bounds__(256) forget_candidates(table_view t)
{
    for (uint64_t i = lane_index(); i < t.n_buckets * ENTRY_BUCKET; i += lane_count())
        if (t.entries[i].ref & REF_CANDIDATE)
            t.entries[i].ref = 0;
}

int launch_forget_candidates(struct table_view t, void *stream)
{
    struct shape s = shape_of(t.n_buckets * ENTRY_BUCKET);
    return LAUNCH(forget_candidates, s.grid, s.block, stream, t);
}

static __global__ void __launch_bounds__(256)
    list_movers(const uint32_t *rows, uint32_t n, uint64_t n_after, uint8_t *is_mover,
                uint32_t *numbers)
{
    for (uint64_t i = lane_index(); i < n; i += lane_count()) {
        numbers[i] = (uint32_t)(n_after + i);
        if (rows[i] >= n_after)
            is_mover[rows[i] - n_after] = 0;
    }
}

int launch_list_movers(const uint32_t *rows, uint32_t n, uint64_t n_after, uint8_t *is_mover,
                       uint32_t *numbers, void *stream)
{
    struct shape s = shape_of(n);
    return LAUNCH(list_movers, s.grid, s.block, stream, rows, n, n_after, is_mover, numbers);
}

/* `lanes` lanes, a power of two, move a row. */
static __global__ void __launch_bounds__(256)
    move(table_view t, const uint32_t *rows, const uint32_t *movers, const uint32_t *n_movers,
         uint32_t lanes)
{
    uint64_t stride = lane_count() / lanes;
    uint32_t lane = threadIdx.x % lanes, n = *n_movers;
    for (uint64_t j = lane_index() / lanes; j < n; j += stride) {
        uint64_t from = movers[j], to = rows[j];
        const uint4 *values = (const uint4 *)(t.values + from * t.stride);
        for (uint32_t i = lane; i < t.stride / 16; i += lanes)
            ((uint4 *)(t.values + to * t.stride))[i] = values[i];
        for (uint32_t i = lane; i < t.state_floats; i += lanes)
            t.states[to * t.state_stride + i] = t.states[from * t.state_stride + i];
        if (lane != 0)
            continue;
        uint32_t slot = t.row_slots ? t.row_slots[from] : 0;
        t.row_keys[to] = t.row_keys[from];
        if (t.row_slots)
            t.row_slots[to] = (uint16_t)slot;
        if (t.row_sets)
            t.row_sets[to] = t.row_sets[from];
        entry_of(t, t.row_keys[from], slot)->ref = (uint32_t)to + 1;
    }
}

int launch_move_rows(struct table_view t, const uint32_t *rows, const uint32_t *movers,
                     const uint32_t *n_movers, uint32_t n, void *stream)
{
    uint32_t lanes = lanes_for(t.dim);
    struct shape s = shape_of((uint64_t)n * lanes);
    return LAUNCH(move, s.grid, s.block, stream, t, rows, movers, n_movers, lanes);
}
