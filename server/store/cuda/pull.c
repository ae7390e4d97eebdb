/* pull.c - enqueues pulls. Kernels write the answer straight into pinned memory, which was faster
 * than a copy at every size measured. Memory of the caller that is not pinned is filled from there
 * when the caller is told of the rows. */
#include "server/store/cuda/pull.h"

#include <string.h>

#include "server/store/cuda/memory.h"

/* Bytes of values up to which a pull may go in one launch with others: more take longer to write
 * than to launch. */
#define BATCHED_BYTES_MAX ((uint64_t)256 << 10)

static bool aligned(const void *memory, uint32_t dim, embd_dtype dtype)
{
    return dim % 4 == 0 && (uintptr_t)memory % (dtype == EMBD_DTYPE_F32 ? 16 : 8) == 0;
}

static struct pull_view view_of(const struct call *call)
{
    const struct store_pull *pull = call->pull;
    struct pull_view view = {
        .in = call->in,
        .dtype = pull->dtype,
        .zero_missing = pull->zero_missing,
        .divide = pull->scale ? call->store->schema->s.combiner : EMBD_COMBINER_CONCAT,
        .values = call->values,
        .is_aligned = aligned(call->values, call->store->view.dim, pull->dtype),
        .statuses = call->statuses,
        .found = call->found,
    };
    return view;
}

/* Takes pinned memory: for inputs, statuses, and values where the caller's memory is not pinned. */
static int take_staging(struct call *call)
{
    const struct store_pull *pull = call->pull;
    uint64_t dtype_bytes = pull->dtype == EMBD_DTYPE_F32 ? 4 : 2;
    call->values_bytes = pull->count * dtype_bytes * call->store->view.dim;
    bool is_direct = call->is_lent || memory_kind(pull->values) != MEMORY_HOST;
    for (int turn = 0; turn < 2; turn++) {
        struct arena arena = {.base = call->staging};
        arena_take(&arena, call->staged_bytes);
        call->statuses = pull->statuses ? arena_take(&arena, call->in.n) : NULL;
        call->values = is_direct ? pull->values : arena_take(&arena, call->values_bytes);
        if (call->staging != NULL)
            break;
        call->staging_bytes = arena.bytes;
        call->staging = buffer_new(arena.bytes);
        if (call->staging == NULL)
            return DEVICE_NO_MEMORY;
    }
    call->statuses_out = pull->statuses ? pull->statuses + call->in.first : NULL;
    call->values_out = is_direct ? NULL : pull->values;
    return 0;
}

/* Small pulls are bound by memory latency, not by address translation. */
static bool needs_windows(const struct store *store, const struct pull_view *view)
{
    return store->n_rows * store->view.stride > store->window_bytes &&
           view->in.n >= store->window_keys;
}

static int note_found(const struct store *store, const struct pull_view *view, const uint32_t *refs)
{
    if (view->found.keys == NULL)
        return 0;
    return launch_note_found(store->view, view->in, refs, view->found, store->stream);
}

static int gather_windows(struct store *store, struct pull_view view, uint32_t *refs)
{
    uint64_t bytes = store->n_rows * store->view.stride;
    uint64_t n_windows = (bytes + store->window_bytes - 1) / store->window_bytes;
    uint64_t rows = (store->n_rows + n_windows - 1) / n_windows;
    int status = launch_find(store->view, view.in, refs, view.statuses, store->stream);
    for (uint64_t first = 0; first < store->n_rows && status == 0; first += rows)
        status = launch_gather_window(store->view, view, refs, first, first + rows, store->stream);
    return status ? status : note_found(store, &view, refs);
}

/* How a pull runs: one kernel; one kernel for each window; or a find and a pooling kernel. */
enum way { WAY_GATHER, WAY_WINDOWS, WAY_POOL };

static enum way way_of(const struct call *call)
{
    struct pull_view view = view_of(call);
    if (call->inputs[IN_OFFSETS].from != NULL || !gather_fits(&call->store->view, &view))
        return WAY_POOL;
    return needs_windows(call->store, &view) ? WAY_WINDOWS : WAY_GATHER;
}

/* ---- pieces ---- */

/* Rows before the end of piece i. */
static uint32_t piece_end(const struct call *call, uint32_t i)
{
    uint64_t n_rows = call->pull->count, row_bytes = call->values_bytes / n_rows;
    uint64_t bytes = call->store->piece_bytes * ((UINT64_C(2) << i) - 1);
    return i + 1 < call->n_pieces ? (uint32_t)(bytes / row_bytes) : (uint32_t)n_rows;
}

/* A piece ends where at least as much follows as it has. Windows make rows in the table's order. */
static uint32_t count_pieces(const struct call *call, enum way way)
{
    uint64_t first = call->store->piece_bytes;
    uint32_t n = 1;
    if (call->pull->made == NULL || call->is_lent || way == WAY_WINDOWS)
        return 1;
    while (first * ((UINT64_C(3) << (n - 1)) - 1) <= call->values_bytes)
        n++;
    return n;
}

/* Raises the call's flag behind each piece but the last, which the call's end is behind. */
static int make_pieces(struct call *call, enum way way, struct pull_view view, const uint32_t *refs)
{
    struct store *store = call->store;
    int status = 0;
    for (uint32_t i = 0; i < call->n_pieces && status == 0; i++) {
        if (i > 0)
            status = device_flag_raise(call->flag, store->stream);
        view.in.n_rows = call->n_pieces > 1 ? piece_end(call, i) : view.in.n_rows;
        view.in.n = way == WAY_GATHER ? view.in.n_rows : view.in.n;
        if (status == 0 && way == WAY_GATHER)
            status = launch_gather(store->view, view, store->stream);
        else if (status == 0)
            status = launch_pool(store->view, view, refs, store->stream);
        view.first_row = view.in.n_rows;
    }
    return status;
}

void pull_tell(struct call *call)
{
    struct store_pull *pull = call->pull;
    uint32_t left = device_flag_left(call->flag);
    uint32_t n = left < call->n_pieces ? call->n_pieces - left : 0;
    if (n <= call->n_told || n == call->n_pieces)
        return;
    call->n_told = n;
    uint32_t n_rows = piece_end(call, n - 1);
    pull_hand_over(call, n_rows * (call->values_bytes / pull->count));
    pull->made(pull, n_rows);
}

void pull_hand_over(struct call *call, uint64_t bytes)
{
    uint64_t from = call->handed_bytes;
    if (call->values_out != NULL && bytes > from)
        memcpy(call->values_out + from, call->values + from, bytes - from);
    call->handed_bytes = bytes;
}

static int enqueue(struct call *call, enum way way, uint8_t *block, uint32_t *refs,
                   uint32_t *row_of)
{
    struct store *store = call->store;
    int status = call_upload(call, block, way == WAY_GATHER);
    struct pull_view view = view_of(call);
    if (status == 0 && way == WAY_WINDOWS)
        return gather_windows(store, view, refs);
    if (status == 0 && way == WAY_GATHER)
        return make_pieces(call, way, view, NULL);
    if (call->in.offsets && call->in.slots) {
        view.in.row_of = row_of;
        status = status ? status : launch_expand(view.in, store->stream);
    }
    if (status == 0)
        status = launch_find(store->view, view.in, refs, call->statuses, store->stream);
    if (status == 0)
        status = note_found(store, &view, refs);
    return status ? status : make_pieces(call, way, view, refs);
}

int pull_prepare(struct call *call)
{
    const struct store_pull *pull = call->pull;
    call_set_keys(call, &pull->in, pull->first, pull->count);
    call_lay_out_inputs(call);
    int status = take_staging(call);
    bool can_batch = status == 0 && call->is_small && call->in.own == NULL &&
                     call->values_bytes <= BATCHED_BYTES_MAX && way_of(call) == WAY_GATHER;
    call->batching = can_batch ? CALL_CAN_BATCH : CALL_ALONE;
    return status;
}

/* Lookups give way to it, its own too. */
static int take_scratch(struct call *call, uint64_t bytes)
{
    int status = device_new(&call->scratch, bytes, call->store->stream);
    if (status != DEVICE_NO_MEMORY)
        return status;
    lookup_give_up(call);
    return cuda_new(call->store, &call->scratch, bytes);
}

/* A WAY_GATHER pull needs no device memory: the kernel reads the keys where they are. Skipping the
 * allocation saves a good part of its time. */
int pull_start(struct call *call)
{
    struct store *store = call->store;
    uint8_t *block = NULL;
    uint32_t *refs = NULL, *row_of = NULL;
    enum way way = way_of(call);
    uint64_t n_refs = way == WAY_GATHER ? 0 : call->in.n,
             n_rows_of = call->inputs[IN_SLOTS].from != NULL && way == WAY_POOL ? call->in.n : 0;
    int status = 0;
    call->n_pieces = count_pieces(call, way);
    lookup_begin(call);
    for (int turn = 0; turn < 2 && status == 0; turn++) {
        struct arena arena = {.base = call->scratch};
        block = arena_take(&arena, way == WAY_GATHER ? 0 : call->in_bytes);
        refs = arena_take(&arena, n_refs * sizeof *refs);
        row_of = arena_take(&arena, n_rows_of * sizeof *row_of);
        if (turn == 0 && arena.bytes > 0)
            status = take_scratch(call, arena.bytes);
    }
    if (status == 0)
        status = enqueue(call, way, block, refs, row_of);
    device_free(call->scratch, store->stream);
    call->scratch = NULL;
    return status;
}

int pull_start_together(struct call *const *calls, uint32_t n)
{
    struct store *store = calls[0]->store;
    struct gather_pieces pieces = {.n = 0};
    for (uint32_t i = 0; i < n; i++) {
        int status = call_upload(calls[i], NULL, true);
        if (status != 0)
            return status;
        struct pull_view view = view_of(calls[i]);
        gather_add(&pieces, &store->view, &view);
    }
    return launch_gather_pieces(store->view, pieces, store->stream);
}
