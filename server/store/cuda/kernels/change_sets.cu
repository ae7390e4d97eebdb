/* change_sets.cu - marks changed rows with the number of the current change set. */
#include "server/store/cuda/kernels/keytable.cuh"
#include "server/store/cuda/kernels/values.cuh"

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

static __global__ void __launch_bounds__(256) age_rows(table_view t, uint64_t n_rows, uint8_t from)
{
    for (uint64_t row = lane_index(); row < n_rows; row += lane_count())
        if (t.row_sets[row] >= from)
            t.row_sets[row]--;
}

int launch_age_rows(struct table_view t, uint64_t n_rows, uint8_t from, void *stream)
{
    struct shape s = shape_of(n_rows);
    return LAUNCH(age_rows, s.grid, s.block, stream, t, n_rows, from);
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
