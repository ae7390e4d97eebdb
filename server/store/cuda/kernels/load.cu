/* load.cu - writes the block of a load into the table: values and states of existing rows, and
 * candidates. */
#include "server/store/cuda/kernels/keytable.cuh"
#include "server/store/cuda/kernels/values.cuh"

/* The values of a row as pieces that are copied as they are: columns, or words of a coded row. */
struct pieces {
    embd_dtype dtype;
    uint32_t n;
};

__device__ static inline pieces pieces_of(const table_view &t)
{
    if (embd__dtype_is_coded(t.dtype))
        return pieces{EMBD_DTYPE_F32, (uint32_t)embd__value_bytes(t.dtype, t.dim) / 4};
    return pieces{t.dtype, t.dim};
}

/* Positions of one ref rise, so the last of a run is the last in the block. */
static __global__ void __launch_bounds__(256)
    store_rows(table_view t, const uint32_t *refs, const uint32_t *positions, uint32_t n,
               const uint8_t *values, const float *states)
{
    pieces row = pieces_of(t);
    uint32_t fours = fours_of(row.n);
    for (uint64_t i = lane_index(); i < (uint64_t)n * fours; i += lane_count()) {
        uint64_t at = i / fours;
        if (at + 1 < n && refs[at + 1] == refs[at])
            continue;
        uint32_t from = positions[at], column = (uint32_t)(i % fours) * 4;
        for (uint32_t c = column; c < column + 4 && c < row.n; c++)
            one_store(row_of_ref(t, refs[at]), row.dtype, c,
                      one_load(values, row.dtype, (uint64_t)from * row.n + c));
    }
    for (uint64_t i = lane_index(); i < (uint64_t)n * t.state_floats; i += lane_count()) {
        uint64_t at = i / t.state_floats, c = i % t.state_floats;
        if (at + 1 == n || refs[at + 1] != refs[at])
            t.states[(uint64_t)(refs[at] - 1) * t.state_stride + c] =
                states[(uint64_t)positions[at] * t.state_floats + c];
    }
}

int launch_store_rows(struct table_view t, const uint32_t *refs, const uint32_t *positions,
                      uint32_t n, const void *values, const float *states, void *stream)
{
    struct shape s = shape_of((uint64_t)n * ((t.dim + 3) / 4));
    return LAUNCH(store_rows, s.grid, s.block, stream, t, refs, positions, n,
                  (const uint8_t *)values, states);
}

static __global__ void __launch_bounds__(256)
    read_rows(table_view t, const uint32_t *refs, uint32_t n, uint8_t *values, float *states)
{
    pieces row = pieces_of(t);
    uint32_t fours = fours_of(row.n);
    for (uint64_t i = lane_index(); i < (uint64_t)n * fours; i += lane_count()) {
        uint64_t at = i / fours;
        uint32_t ref = refs[at], column = (uint32_t)(i % fours) * 4;
        for (uint32_t c = column; c < column + 4 && c < row.n; c++)
            one_store(values, row.dtype, at * row.n + c,
                      is_row(ref) ? one_load(row_of_ref(t, ref), row.dtype, c) : 0.0f);
    }
    uint64_t floats = states != nullptr ? (uint64_t)n * t.state_floats : 0;
    for (uint64_t i = lane_index(); i < floats; i += lane_count()) {
        uint32_t ref = refs[i / t.state_floats];
        uint64_t c = i % t.state_floats;
        states[i] = is_row(ref) ? t.states[(uint64_t)(ref - 1) * t.state_stride + c] : 0.0f;
    }
}

int launch_read_rows(struct table_view t, const uint32_t *refs, uint32_t n, void *values,
                     float *states, void *stream)
{
    struct shape s = shape_of((uint64_t)n * ((t.dim + 3) / 4));
    return LAUNCH(read_rows, s.grid, s.block, stream, t, refs, n, (uint8_t *)values, states);
}

static __global__ void __launch_bounds__(256)
    recount(table_view t, keys_view in, const uint32_t *counts, const uint32_t *refs,
            uint32_t *n_new)
{
    for (uint64_t i = lane_index(); i < in.n; i += lane_count()) {
        if (refs[i] == 0)
            atomicAdd(n_new, 1u);
        else if (!is_row(refs[i]))
            entry_of(t, in.keys[i], slot_at(t, in, (uint32_t)i))->ref = REF_CANDIDATE | counts[i];
    }
}

static __global__ void __launch_bounds__(256)
    place_candidates(table_view t, keys_view in, const uint32_t *counts, const uint32_t *refs)
{
    for (uint64_t i = lane_index(); i < in.n; i += lane_count())
        if (refs[i] == 0)
            entry_place(t, in.keys[i], slot_at(t, in, (uint32_t)i), REF_CANDIDATE | counts[i]);
}

int launch_store_candidates(struct table_view t, struct keys_view in, const uint32_t *counts,
                            uint32_t *refs, uint32_t *n_new, void *stream)
{
    struct shape s = shape_of(in.n);
    int status = launch_find(t, in, refs, nullptr, stream);
    if (status == 0)
        status = LAUNCH(recount, s.grid, s.block, stream, t, in, counts, refs, n_new);
    if (status == 0)
        status = LAUNCH(place_candidates, s.grid, s.block, stream, t, in, counts, refs);
    return status;
}
