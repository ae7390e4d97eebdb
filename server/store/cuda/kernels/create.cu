/* create.cu - creates rows and entries for new keys, and rehashes all entries into a larger table.
 */
#include "server/store/cuda/kernels/own.cuh"
#include "server/store/cuda/kernels/place.cuh"

/* Existing entries: candidates that get a row, or that were seen once more. */
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

/* A leader of the warp: its row, and whether it needs an entry. */
struct leader {
    newcomer it;
    bool needs_entry;
};

/* Gives leader j its row, or the ref 0 if there is no room for it. EXPECTS: each key is a leader.
 */
template <bool EXPECTS>
__device__ static inline leader place_one(const table_view &t, const keys_view &in,
                                          const plan_view &p, uint64_t j, uint32_t n_insert,
                                          uint64_t first_row)
{
    uint32_t i = EXPECTS ? (uint32_t)j : p.leaders[j], row = (uint32_t)(first_row + j),
             before = EXPECTS ? 0 : p.refs[i];
    p.refs[i] = j < n_insert ? row + 1 : 0;
    leader l = {};
    if (j < n_insert)
        l = leader{newcomer_place(t, in, i, row), before == 0};
    return l;
}

/* Initial states of rows row .. row + n, but for master values, by one warp. */
__device__ static inline void fill_states(const table_view &t, uint64_t row, uint32_t n)
{
    float *states = t.states + row * t.state_stride, f = t.first_state;
    uint32_t lane = threadIdx.x % 32, total = n * t.state_stride;
    if (t.optimizer_floats == t.state_stride && t.state_stride % 4 == 0) {
        for (uint32_t i = lane * 4; i < total; i += 128)
            *(float4 *)(states + i) = make_float4(f, f, f, f);
        return;
    }
    for (uint32_t i = lane; i < total; i += 32)
        if (!is_master(t, i % t.state_stride))
            states[i] = i % t.state_stride < t.optimizer_floats ? f : 0.0f;
}

/* Initial columns of a row that is not coded. */
__device__ static inline void fill_four(const table_view &t, uint32_t ref, uint32_t column, four v)
{
    four_store(row_of_ref(t, ref), t.dtype, column, v);
    if (t.has_master)
        master_store(t, ref, column, v);
}

/* Initial columns of one row, before they are rounded, as its master values. */
__device__ static inline void fill_master(const table_view &t, uint64_t key, uint32_t slot,
                                          uint32_t ref, uint32_t first, uint32_t lanes)
{
    for (uint32_t column = first; column < t.dim; column += lanes * 4)
        master_store(t, ref, column, first_exact(t, key, slot, column));
}

/* Initial values of rows row .. row + n of the warp's new keys: `lanes` lanes, a power of two, make
 * a row, four columns each. */
template <bool MAY_BE_NORMAL>
__device__ static inline void fill_rows(const table_view &t, const newcomer &mine, uint64_t row,
                                        uint32_t n, uint32_t lanes)
{
    uint32_t lane = threadIdx.x % 32, rows = 32 / lanes;
    for (uint32_t first = 0; first < n; first += rows) {
        uint32_t from = first + lane / lanes;
        uint64_t key = __shfl_sync(ALL_LANES, mine.key, (int)(from % 32));
        uint32_t slot = __shfl_sync(ALL_LANES, mine.slot, (int)(from % 32));
        for (uint32_t column = lane % lanes * 4; from < n && column < t.dim; column += lanes * 4)
            fill_four(t, (uint32_t)(row + from) + 1, column,
                      first_exact<MAY_BE_NORMAL>(t, key, slot, column));
    }
    fill_states(t, row, n);
}

/* As fill_rows, of coded rows. */
__device__ static inline void fill_coded(const table_view &t, const newcomer &mine, uint64_t row,
                                         uint32_t n, uint32_t lanes)
{
    uint32_t lane = threadIdx.x % 32, rows = 32 / lanes;
    for (uint32_t first = 0; first < n; first += rows) {
        uint32_t from = first + lane / lanes;
        uint64_t key = __shfl_sync(ALL_LANES, mine.key, (int)(from % 32));
        uint32_t slot = __shfl_sync(ALL_LANES, mine.slot, (int)(from % 32));
        coded_begin(t, key, slot, t.values + (row + from) * t.stride, lane % lanes * 4, lanes,
                    from < n ? t.dim : 0);
        if (t.has_master && from < n)
            fill_master(t, key, slot, (uint32_t)(row + from) + 1, lane % lanes * 4, lanes);
    }
    fill_states(t, row, n);
}

/* Creates entries and rows, and sets the refs of leaders. Entries wait for memory and rows for
 * arithmetic, so half of the warps do the one while the others do the other. */
template <bool MAY_BE_NORMAL, bool IS_CODED, bool EXPECTS>
static __global__ void __launch_bounds__(256)
    place(table_view t, keys_view in, plan_view p, uint32_t n_insert, uint64_t first_row,
          uint32_t lanes)
{
    uint32_t n_leaders = EXPECTS ? in.n : p.report->n_leaders, lane = threadIdx.x % 32;
    if (EXPECTS && expected_wrongly(p))
        return;
    for (uint64_t base = lane_index() - lane; base < n_leaders; base += lane_count()) {
        leader mine = {};
        if (base + lane < n_leaders)
            mine = place_one<EXPECTS>(t, in, p, base + lane, n_insert, first_row);
        uint32_t n = base >= n_insert ? 0 : n_insert - base < 32 ? n_insert - (uint32_t)base : 32;
        __syncwarp();
        newcomers_claim<EXPECTS>(t, p, mine.it, first_row + base, mine.needs_entry);
        if (IS_CODED && n > 0)
            fill_coded(t, mine.it, first_row + base, n, lanes);
        else if (n > 0)
            fill_rows<MAY_BE_NORMAL>(t, mine.it, first_row + base, n, lanes);
    }
}

template <bool EXPECTS>
static int launch_place(const table_view &t, const keys_view &in, const plan_view &p,
                        uint32_t n_insert, uint64_t first_row, void *stream)
{
    struct shape s = shape_of(in.n);
    uint32_t lanes = lanes_for(t.dim);
    if (embd__dtype_is_coded(t.dtype))
        return LAUNCH((place<true, true, EXPECTS>), s.grid, s.block, stream, t, in, p, n_insert,
                      first_row, lanes);
    if (t.initializer.kind == EMBD_INITIALIZER_NORMAL)
        return LAUNCH((place<true, false, EXPECTS>), s.grid, s.block, stream, t, in, p, n_insert,
                      first_row, lanes);
    return LAUNCH((place<false, false, EXPECTS>), s.grid, s.block, stream, t, in, p, n_insert,
                  first_row, lanes);
}

int launch_place_expected(struct table_view t, struct keys_view in, struct plan_view p,
                          uint64_t first_row, void *stream)
{
    return launch_place<true>(t, in, p, in.n, first_row, stream);
}

/* Creates candidates: entries of keys seen for the first time that are not admitted yet. */
static __global__ void __launch_bounds__(256) place_new(table_view t, keys_view in, plan_view p)
{
    if (p.report->n_filtered_new == 0)
        return;
    for (uint64_t i = lane_index(); i < in.n; i += lane_count())
        if (p.refs[i] == 0 && !p.is_leader[i] && !is_outside(in, p, i) &&
            p.claims[p.group[i]] == i + 1)
            entry_place(t, in.keys[i], slot_at(t, in, (uint32_t)i), REF_CANDIDATE | 1u);
}

int launch_create(struct table_view t, struct keys_view in, struct plan_view p, uint32_t n_insert,
                  uint64_t first_row, bool sights, void *stream)
{
    struct shape s = shape_of(in.n);
    int status = 0;
    if (sights)
        status = LAUNCH(update, s.grid, s.block, stream, t, in, p, n_insert, first_row);
    if (status == 0)
        status = launch_place<false>(t, in, p, n_insert, first_row, stream);
    if (status == 0 && sights)
        status = LAUNCH(place_new, s.grid, s.block, stream, t, in, p);
    return status;
}

/* Most entries of `to` are empty, so place `i` of the bucket is claimed without reading it first.
 */
__device__ static inline void move_entry(const table_view &to, uint4 e, uint32_t i)
{
    uint64_t key = (uint64_t)e.y << 32 | e.x;
    uint32_t slot = e.w & ENTRY_SLOT;
    uint64_t bucket = key_bucket(to, key_hash(to, key, slot));
    if (!entry_take(to, to.entries + bucket * ENTRY_BUCKET + i, key, slot, e.z))
        entry_place(to, key, slot, e.z);
}

/* One lane moves a bucket. Entries of it that meet again in one bucket try different places. */
static __global__ void __launch_bounds__(256) rebuild(table_view from, table_view to)
{
    for (uint64_t b = lane_index(); b < from.n_buckets; b += lane_count()) {
        uint4 e[ENTRY_BUCKET];
#pragma unroll
        for (uint32_t i = 0; i < ENTRY_BUCKET; i++)
            e[i] = load_once(from.entries + b * ENTRY_BUCKET + i);
#pragma unroll
        for (uint32_t i = 0; i < ENTRY_BUCKET; i++)
            if (e[i].z != 0)
                move_entry(to, e[i], i);
    }
}

int launch_rebuild(struct table_view from, struct table_view to, void *stream)
{
    struct shape s = shape_of(from.n_buckets);
    return LAUNCH(rebuild, s.grid, s.block, stream, from, to);
}
