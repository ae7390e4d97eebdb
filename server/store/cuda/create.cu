/* create.cu - rows and entries for keys that have none, and the move of all entries into a larger
 * table. */
#include "keytable.cuh"
#include "values.cuh"

/* Entries there are: of candidates that get a row, or that were seen once more. */
static __global__ void __launch_bounds__(256)
    update(table_view t, keys_view in, plan_view p, uint32_t n_insert, uint64_t first_row)
{
    for (uint64_t i = lane_index(); i < in.n; i += lane_count()) {
        uint32_t ref = p.refs[i];
        bool is_first = !is_row(ref) && ref != 0 && p.claims[p.group[i]] == i + 1;
        if (is_first && !p.is_leader[i]) {
            uint32_t sights = ref & REF_SIGHTS_MAX;
            sights += sights < REF_SIGHTS_MAX;
            entry_of(t, in.keys[i], slot_at(t, in, (uint32_t)i))->ref = REF_CANDIDATE | sights;
        }
    }
    for (uint64_t j = lane_index(); j < n_insert; j += lane_count()) {
        uint32_t i = p.leaders[j];
        if (p.refs[i] != 0)
            entry_of(t, in.keys[i], slot_at(t, in, i))->ref = (uint32_t)(first_row + j + 1);
    }
}

/* New entries, and what leaders get. */
static __global__ void __launch_bounds__(256)
    place(table_view t, keys_view in, plan_view p, uint32_t n_insert, uint64_t first_row)
{
    uint32_t n_leaders = p.report->n_leaders;
    for (uint64_t j = lane_index(); j < n_leaders; j += lane_count()) {
        uint32_t i = p.leaders[j], row = (uint32_t)(first_row + j), slot = slot_at(t, in, i);
        uint32_t before = p.refs[i];
        p.refs[i] = j < n_insert ? row + 1 : 0;
        if (j >= n_insert)
            continue;
        uint64_t key = in.keys[i];
        t.row_keys[row] = key;
        if (t.row_slots)
            t.row_slots[row] = (uint16_t)slot;
        if (before == 0)
            entry_place(t, key, slot, row + 1);
    }
}

/* Entries of keys that were seen for the first time, and not often enough. */
static __global__ void __launch_bounds__(256) place_new(table_view t, keys_view in, plan_view p)
{
    if (p.report->n_filtered_new == 0)
        return;
    for (uint64_t i = lane_index(); i < in.n; i += lane_count())
        if (p.refs[i] == 0 && !p.is_leader[i] && p.claims[p.group[i]] == i + 1)
            entry_place(t, in.keys[i], slot_at(t, in, (uint32_t)i), REF_CANDIDATE | 1u);
}

/* New rows at their first value: `lanes` lanes, a power of two, make a row, four columns each. */
static __global__ void __launch_bounds__(256)
    fill(table_view t, uint32_t n_insert, uint64_t first_row, uint32_t lanes)
{
    uint64_t stride = lane_count() / lanes;
    for (uint64_t j = lane_index() / lanes; j < n_insert; j += stride) {
        uint64_t row = first_row + j, key = t.row_keys[row];
        uint32_t slot = t.row_slots ? t.row_slots[row] : 0, lane = threadIdx.x % lanes;
        for (uint32_t column = lane * 4; column < t.dim; column += lanes * 4)
            four_store(t.values + row * t.stride, t.dtype, column,
                       first_value(t, key, slot, column));
        for (uint32_t i = lane; i < t.state_stride; i += lanes)
            t.states[row * t.state_stride + i] = i < t.optimizer_floats ? t.first_state : 0.0f;
    }
}

int launch_create(struct table_view t, struct keys_view in, struct plan_view p, uint32_t n_insert,
                  uint64_t first_row, bool sights, void *stream)
{
    uint32_t lanes = lanes_for(t.dim);
    struct shape s = shape_of(in.n), wide = shape_of((uint64_t)n_insert * lanes);
    int status = 0;
    if (sights)
        status = LAUNCH(update, s.grid, s.block, stream, t, in, p, n_insert, first_row);
    if (status == 0)
        status = LAUNCH(place, s.grid, s.block, stream, t, in, p, n_insert, first_row);
    if (status == 0 && sights)
        status = LAUNCH(place_new, s.grid, s.block, stream, t, in, p);
    if (status == 0 && n_insert)
        status = LAUNCH(fill, wide.grid, wide.block, stream, t, n_insert, first_row, lanes);
    return status;
}

static __global__ void __launch_bounds__(256) rebuild(table_view from, table_view to)
{
    for (uint64_t i = lane_index(); i < from.n_buckets * ENTRY_BUCKET; i += lane_count()) {
        struct entry e = from.entries[i];
        if (e.ref)
            entry_place(to, e.key, e.tail & ENTRY_SLOT, e.ref);
    }
}

int launch_rebuild(struct table_view from, struct table_view to, void *stream)
{
    struct shape s = shape_of(from.n_buckets * ENTRY_BUCKET);
    return LAUNCH(rebuild, s.grid, s.block, stream, from, to);
}
