/* noted.cu - rows that changed are noted, and picked out of all the others. */
#include "keytable.cuh"
#include "values.cuh"

static __global__ void __launch_bounds__(256)
    note_rows(table_view t, const uint32_t *refs, uint32_t n, uint8_t set)
{
    for (uint64_t i = lane_index(); i < n; i += lane_count())
        if (refs[i] != 0 && (i == 0 || refs[i - 1] != refs[i]))
            t.row_sets[refs[i] - 1] = set;
}

int launch_note_rows(struct table_view t, const uint32_t *refs, uint32_t n, uint8_t set,
                     void *stream)
{
    struct shape s = shape_of(n);
    return LAUNCH(note_rows, s.grid, s.block, stream, t, refs, n, set);
}

static __global__ void __launch_bounds__(256) age_rows(table_view t, uint64_t n_rows)
{
    for (uint64_t row = lane_index(); row < n_rows; row += lane_count())
        if (t.row_sets[row] != 0)
            t.row_sets[row]--;
}

int launch_age_rows(struct table_view t, uint64_t n_rows, void *stream)
{
    struct shape s = shape_of(n_rows);
    return LAUNCH(age_rows, s.grid, s.block, stream, t, n_rows);
}

static __global__ void __launch_bounds__(256)
    list_keys(table_view t, const uint32_t *rows, uint32_t n, uint64_t *keys, uint16_t *slots)
{
    for (uint64_t i = lane_index(); i < n; i += lane_count()) {
        keys[i] = t.row_keys[rows[i]];
        slots[i] = t.row_slots ? t.row_slots[rows[i]] : 0;
    }
}

int launch_list_keys(struct table_view t, const uint32_t *rows, uint32_t n, uint64_t *keys,
                     uint16_t *slots, void *stream)
{
    struct shape s = shape_of(n);
    return LAUNCH(list_keys, s.grid, s.block, stream, t, rows, n, keys, slots);
}

/* `lanes` lanes, a power of two, copy a row. */
static __global__ void __launch_bounds__(256)
    pick_rows(table_view t, const uint32_t *rows, uint32_t n, table_view to, uint32_t lanes)
{
    uint64_t stride = lane_count() / lanes;
    uint32_t lane = threadIdx.x % lanes;
    for (uint64_t i = lane_index() / lanes; i < n; i += stride) {
        uint64_t row = rows[i];
        const uint4 *values = (const uint4 *)(t.values + row * t.stride);
        for (uint32_t j = lane; j < t.stride / 16; j += lanes)
            ((uint4 *)(to.values + i * t.stride))[j] = values[j];
        for (uint32_t j = lane; j < t.state_floats; j += lanes)
            to.states[i * t.state_stride + j] = t.states[row * t.state_stride + j];
        if (lane != 0)
            continue;
        to.row_keys[i] = t.row_keys[row];
        if (t.row_slots)
            to.row_slots[i] = t.row_slots[row];
    }
}

int launch_pick_rows(struct table_view t, const uint32_t *rows, uint32_t n, struct table_view to,
                     void *stream)
{
    uint32_t lanes = lanes_for(t.dim);
    struct shape s = shape_of((uint64_t)n * lanes);
    return LAUNCH(pick_rows, s.grid, s.block, stream, t, rows, n, to, lanes);
}
