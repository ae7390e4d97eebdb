/* evict.cu - selects the rows to evict, exactly and without sorting: a radix select on their ranks.
 *
 * The rank of the last row to evict is found digit by digit, from the top. Each digit is a pass: it
 * counts the rows whose rank matches the digits found so far, in a bin for each value of the digit;
 * then one warp picks the bin that contains the wanted count. Most often a few digits of the hashed
 * key decide, and the remaining passes return at once. */
#include "server/store/cuda/kernels/keytable.cuh"
#include "server/store/use.h"

/* Blocks of a counting pass. Each adds its bins to the global bins, so many blocks would spend more
 * time adding than counting. */
#define PASS_BLOCKS 528u

static struct shape pass_shape(uint64_t n)
{
    struct shape s = shape_of(n);
    s.grid = s.grid < PASS_BLOCKS ? s.grid : PASS_BLOCKS;
    return s;
}

__device__ static inline float *use_of(const table_view &t, const use_view &use, uint64_t row)
{
    return t.states + row * t.state_stride + use.at;
}

static __global__ void __launch_bounds__(256)
    begin_use(table_view t, use_view use, uint64_t first_row, uint64_t n)
{
    for (uint64_t i = lane_index(); i < n; i += lane_count())
        use_begin(use_of(t, use, first_row + i), use.time);
}

int launch_begin_use(struct table_view t, struct use_view use, uint64_t first_row, uint64_t n,
                     void *stream)
{
    struct shape s = shape_of(n);
    return LAUNCH(begin_use, s.grid, s.block, stream, t, use, first_row, n);
}

/* How many of items [n], rising, have the ref of items[i], their first: in steps that double, then
 * halve. */
__device__ static inline uint32_t run_of(const uint64_t *items, uint64_t n, uint64_t i)
{
    uint64_t end = i, step = 1;
    while (end + step < n && item_ref(items[end + step]) == item_ref(items[i])) {
        end += step;
        step *= 2;
    }
    for (; step; step /= 2)
        if (end + step < n && item_ref(items[end + step]) == item_ref(items[i]))
            end += step;
    return (uint32_t)(end - i) + 1;
}

template <bool OCCURRENCES>
static __global__ void __launch_bounds__(256)
    note_use(table_view t, use_view use, const uint64_t *items, uint32_t n)
{
    for (uint64_t i = lane_index(); i < n; i += lane_count()) {
        uint32_t ref = item_ref(items[i]);
        if (ref != 0 && (i == 0 || item_ref(items[i - 1]) != ref))
            use_note(use_of(t, use, ref - 1), use.time, &use.rule,
                     OCCURRENCES ? run_of(items, n, i) : 1);
    }
}

int launch_note_use(struct table_view t, struct use_view use, const uint64_t *items, uint32_t n,
                    void *stream)
{
    struct shape s = shape_of(n);
    return use.rule.occurrences
               ? LAUNCH(note_use<true>, s.grid, s.block, stream, t, use, items, n)
               : LAUNCH(note_use<false>, s.grid, s.block, stream, t, use, items, n);
}

/* A push in order of its rows: items [n], rising, and where their scores are. */
struct scored {
    const uint64_t *items;
    const float *scores;
    uint64_t n;
};

__device__ static inline bool has_ref(const scored &s, uint64_t at, uint32_t ref)
{
    return at < s.n && item_ref(s.items[at]) == ref;
}

__device__ static inline uint32_t higher_of(const scored &s, uint64_t at, uint32_t highest)
{
    uint32_t order = use_score_order(s.scores[(uint32_t)s.items[at]]);
    return order > highest ? order : highest;
}

/* Of places at, at + 32, ... as far as they have `ref`, and of those of the other lanes. */
__device__ static inline uint32_t highest_of_warp(const scored &s, uint64_t at, uint32_t ref)
{
    uint32_t highest = USE_NO_SCORE;
    for (; has_ref(s, at, ref); at += 32)
        highest = higher_of(s, at, highest);
    for (int distance = 16; distance; distance /= 2) {
        uint32_t other = __shfl_xor_sync(ALL_LANES, highest, distance);
        highest = other > highest ? other : highest;
    }
    return highest;
}

/* A lane that has a row's first ref goes through 32 of them; the warp together through further
 * ones. */
static __global__ void __launch_bounds__(256) note_scores(table_view t, use_view use, scored s)
{
    uint32_t lane = threadIdx.x % 32;
    for (uint64_t base = lane_index() - lane; base < s.n; base += lane_count()) {
        uint64_t i = base + lane;
        uint32_t ref = i < s.n ? item_ref(s.items[i]) : 0, highest = USE_NO_SCORE, n = 0;
        bool is_first = ref != 0 && (i == 0 || item_ref(s.items[i - 1]) != ref);
        for (; is_first && n < 32 && has_ref(s, i + n, ref); n++)
            highest = higher_of(s, i + n, highest);
        uint32_t longer = __ballot_sync(ALL_LANES, n == 32);
        for (; longer; longer &= longer - 1) {
            int owner = __ffs((int)longer) - 1;
            uint32_t more = highest_of_warp(s, base + (uint32_t)owner + 32 + lane,
                                            __shfl_sync(ALL_LANES, ref, owner));
            if ((int)lane == owner && more > highest)
                highest = more;
        }
        if (is_first)
            use_note_score(use_of(t, use, ref - 1), highest);
    }
}

int launch_note_scores(struct table_view t, struct use_view use, const uint64_t *items,
                       const float *scores, uint32_t n, void *stream)
{
    struct shape s = shape_of(n);
    scored push = {items, scores, n};
    return LAUNCH(note_scores, s.grid, s.block, stream, t, use, push);
}

/* ---- who may go ---- */

__device__ static inline bool may_go(const table_view &t, const use_view &use, const evict_view &v,
                                     uint64_t row)
{
    if (v.marks[row / 32] >> row % 32 & 1)
        return false;
    return use.lifetime == 0 ||
           use_expiry(embd__stamp_get(use_of(t, use, row)), use.lifetime) <= use.time;
}

__device__ static inline unsigned long long least_of_warp(unsigned long long x)
{
    for (int distance = 16; distance; distance /= 2) {
        unsigned long long other = __shfl_xor_sync(ALL_LANES, x, distance);
        x = other < x ? other : x;
    }
    return x;
}

static __global__ void __launch_bounds__(256) survey(table_view t, use_view use, evict_view v)
{
    uint32_t lane = threadIdx.x % 32;
    unsigned long long n = 0, first = UINT64_MAX;
    for (uint64_t base = lane_index() - lane; base < v.n_rows; base += lane_count()) {
        uint64_t row = base + lane;
        bool is_there = row < v.n_rows;
        n += (unsigned)__popc(__ballot_sync(ALL_LANES, is_there && may_go(t, use, v, row)));
        if (use.lifetime == 0 || !is_there)
            continue;
        unsigned long long expiry = use_expiry(embd__stamp_get(use_of(t, use, row)), use.lifetime);
        first = expiry < first ? expiry : first;
    }
    first = least_of_warp(first);
    if (lane == 0 && n)
        atomicAdd(&v.survey->n_may_go, n);
    if (lane == 0 && first != UINT64_MAX)
        atomicMin(&v.survey->first_expiry, first);
}

int launch_survey(struct table_view t, struct use_view use, struct evict_view v, void *stream)
{
    struct shape s = pass_shape(v.n_rows);
    return LAUNCH(survey, s.grid, s.block, stream, t, use, v);
}

/* ---- digit by digit ---- */

/* A word of a row's rank (use_rank_of). Reads only what that word needs. */
__device__ static inline uint64_t word_of(const table_view &t, const use_view &use, uint64_t row,
                                          uint32_t word)
{
    switch (word) {
    case 0:
        return use_count(use_of(t, use, row), &use.rule);
    case 1:
        return embd__stamp_get(use_of(t, use, row));
    case 2:
        return embd__mix64(t.row_keys[row]);
    default:
        return t.row_slots ? t.row_slots[row] : 0;
    }
}

/* Compares a row's rank, in the digits decided so far, with the bound: -1 below, 0 equal, 1 above.
 */
__device__ static inline int order(const table_view &t, const use_view &use, const use_choice &c,
                                   uint64_t row)
{
    for (uint32_t word = 0; word < 4 && word <= c.word; word++) {
        uint32_t shift = word == c.word ? c.shift : 0;
        uint64_t mine = word_of(t, use, row, word) >> shift, bound = c.bound[word] >> shift;
        if (mine != bound)
            return mine < bound ? -1 : 1;
    }
    return 0;
}

/* If all rows go, the bound is above every rank. */
static __global__ void begin(use_choice *c, uint64_t n, uint64_t n_may_go)
{
    if (lane_index() != 0)
        return;
    for (uint32_t word = 0; word < 4; word++)
        c->bound[word] = n == n_may_go ? UINT64_MAX : 0;
    c->left = n;
    c->word = 0;
    c->shift = 63;
    c->is_done = n == n_may_go;
}

static __global__ void __launch_bounds__(256)
    count(table_view t, use_view use, evict_view v, use_digit d)
{
    __shared__ uint32_t bins[USE_BINS];
    const use_choice c = *v.choice;
    if (c.is_done)
        return;
    for (uint32_t i = threadIdx.x; i < USE_BINS; i += blockDim.x)
        bins[i] = 0;
    __syncthreads();
    for (uint64_t row = lane_index(); row < v.n_rows; row += lane_count())
        if (may_go(t, use, v, row) && order(t, use, c, row) == 0)
            atomicAdd(&bins[word_of(t, use, row, d.word) >> d.shift & ((1u << d.bits) - 1)], 1u);
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < USE_BINS; i += blockDim.x)
        if (bins[i])
            atomicAdd(&v.bins[i], bins[i]);
}

/* The bin of `bins` [n] that contains row number `left`; *before: rows in the bins below. By one
 * lane. */
__device__ static inline uint32_t bin_of(const uint32_t *bins, uint32_t n, uint64_t left,
                                         uint64_t *before)
{
    uint32_t bin = 0;
    while (bin + 1 < n && *before + bins[bin] < left)
        *before += bins[bin++];
    return bin;
}

/* One warp: each lane sums its part of the bins, then one lane walks the part that contains the
 * count. Leaves the bins at 0. */
static __global__ void pick(evict_view v, use_digit d)
{
    constexpr uint32_t PART = USE_BINS / 32;
    uint32_t lane = threadIdx.x % 32, sum = 0;
    use_choice *c = v.choice;
    bool is_done = c->is_done;
    for (uint32_t i = 0; i < PART && !is_done; i++)
        sum += v.bins[lane * PART + i];
    uint64_t before = 0;
    uint32_t part = 0;
    bool is_found = false;
    for (int from = 0; from < 32; from++) {
        uint32_t n = __shfl_sync(ALL_LANES, sum, from);
        is_found = is_found || before + n >= c->left;
        before += is_found ? 0 : n;
        part += !is_found;
    }
    __syncwarp();
    if (lane == 0 && !is_done) {
        uint32_t bin = part * PART + bin_of(v.bins + part * PART, PART, c->left, &before);
        c->left -= before;
        c->bound[d.word] |= (uint64_t)bin << d.shift;
        c->word = d.word;
        c->shift = d.shift;
        c->is_done = v.bins[bin] == c->left;
    }
    __syncwarp();
    for (uint32_t i = 0; i < PART && !is_done; i++)
        v.bins[lane * PART + i] = 0;
}

static __global__ void __launch_bounds__(256) take(table_view t, use_view use, evict_view v)
{
    const use_choice c = *v.choice;
    for (uint64_t row = lane_index(); row < v.n_rows; row += lane_count()) {
        if (!may_go(t, use, v, row) || order(t, use, c, row) > 0)
            continue;
        uint32_t slot = t.row_slots ? t.row_slots[row] : 0;
        struct entry *e = entry_of(t, t.row_keys[row], slot);
        e->ref = 0;
        v.rows[atomicAdd(v.n_out, 1u)] = (uint32_t)row;
    }
}

int launch_take(struct table_view t, struct use_view use, struct evict_view v, void *stream)
{
    struct shape s = shape_of(v.n_rows);
    return LAUNCH(take, s.grid, s.block, stream, t, use, v);
}

int launch_count_digit(struct table_view t, struct use_view use, struct evict_view v,
                       struct use_digit digit, void *stream)
{
    struct shape s = pass_shape(v.n_rows);
    return LAUNCH(count, s.grid, s.block, stream, t, use, v, digit);
}

int launch_choose(struct table_view t, struct use_view use, struct evict_view v, uint64_t n,
                  uint64_t n_may_go, void *stream)
{
    struct use_digit digits[USE_DIGITS_MAX];
    uint32_t n_digits = use_digits(&use.rule, t.row_slots != nullptr, digits);
    int status = LAUNCH(begin, 1, 32, stream, v.choice, n, n_may_go);
    for (uint32_t i = 0; i < n_digits && status == 0; i++) {
        status = launch_count_digit(t, use, v, digits[i], stream);
        if (status == 0)
            status = LAUNCH(pick, 1, 32, stream, v, digits[i]);
    }
    return status;
}
