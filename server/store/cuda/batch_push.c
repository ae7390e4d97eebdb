/* batch_push.c - small pushes that wait together go together: two launches, and no report in
 * between.
 *
 * The happy path: the table has room for a row and an entry for every key, or all keys have rows.
 * Everything is enqueued at once, and the report says what was created. A single push takes the
 * same path, which is shorter than that of push.c.
 *
 * If keys without a row need a decision (the table is at its bound, needs more memory, or admits
 * keys only after several sights), the device changes nothing, and the pushes go one by one. Pushes
 * that step all rows (update = global) always go one by one, because the sweep of each comes
 * between its own step and the next. So do pushes with scores, and pushes with arrays in device
 * memory, because the host concatenates the keys. A push whose arrays are lent (lent.h) takes this
 * path alone, where there is room for all its keys: its gradients are copied and looked at first.
 * Keys outside its set, if it has one, are copied, and have no rows.
 */
#include "server/store/cuda/batch_push.h"
#include "server/store/cuda/memory.h"
#include "server/store/candidates.h"

#include <string.h>

/* Bytes of gradients: more take longer to fetch than launches take. */
#define BATCHED_BYTES_MAX ((uint64_t)1 << 20)
#define BATCH_BYTES_MAX   ((uint64_t)4 << 20)

static uint64_t gradient_bytes(const struct call *call)
{
    const struct store_change *push = call->change;
    uint64_t row_bytes = call->store->view.dim * (push->dtype == EMBD_DTYPE_F32 ? 4ull : 2ull);
    return push->in.n_keys ? push->in.n_rows * row_bytes : 0;
}

void batch_push_prepare(struct call *call)
{
    const struct store_change *push = call->change;
    if (call->store->is_global || call->store->is_wholerow || call->store->is_timed ||
        push->in.scores != NULL || push->in.n_keys > BATCH_KEYS_MAX ||
        gradient_bytes(call) > BATCHED_BYTES_MAX)
        return;
    call_set_keys(call, &push->in, 0, push->in.n_rows);
    call_set_input(call, IN_VALUES, push->grads, gradient_bytes(call));
    call_lay_out_inputs(call);
    bool can_batch = (uintptr_t)push->grads % 8 == 0;
    for (int i = 0; i < IN_COUNT; i++)
        if (i != IN_VALUES && !call->is_lent && call->inputs[i].from &&
            call->inputs[i].kind == MEMORY_DEVICE)
            can_batch = false;
    call->batching = can_batch ? CALL_CAN_BATCH : CALL_ALONE;
}

/* Whether two pushes agree in gradient type, offsets and weights. */
static bool is_alike(const struct store_change *a, const struct store_change *b)
{
    return a->dtype == b->dtype && !a->in.offsets == !b->in.offsets &&
           !a->in.weights == !b->in.weights;
}

/* Whether the device may create rows without asking: nothing but the number of keys matters. */
static bool may_create(const struct store *store, uint64_t n_keys)
{
    uint64_t n_entries = store->n_rows + n_keys + store->n_tombstones;
    return store->view.admit_after <= 1 && store->n_candidates == 0 && n_keys <= cuda_room(store) &&
           store->n_rows + n_keys <= store->capacity && n_entries <= store->n_entries_max;
}

uint32_t batch_push_choose(struct call *first, struct call **calls)
{
    const struct store *store = first->store;
    uint64_t n_keys = 0, bytes = 0;
    uint32_t n = 0;
    bool creates = true;
    if (candidates_are_forgotten(store->view.admit_after, store->n_rows, store->n_candidates))
        return 0; /* the next push with keys forgets them, also where its keys have rows */
    for (struct call *call = first; call != NULL && n < BATCH_PUSHES_MAX; call = call->next) {
        if (call->kind != CALL_PUSH || call->batching != CALL_CAN_BATCH ||
            (n > 0 && (call->is_lent || first->is_lent)) || !is_alike(first->change, call->change))
            break;
        n_keys += call->change->in.n_keys;
        bytes += gradient_bytes(call);
        creates = creates && may_create(store, n_keys);
        if (n_keys > BATCH_KEYS_MAX || bytes > BATCH_BYTES_MAX ||
            (!creates && (store->misses || call->is_lent)))
            break;
        calls[n++] = call;
    }
    return store->failed ? 0 : n;
}

/* ---- memory ---- */

/* Pinned memory that the host writes. */
struct staged {
    struct batch_report *report;
    uint8_t *statuses;
    uint64_t *keys;
    uint16_t *slots;
    uint8_t *rest; /* row_of and weights, which the device fetches */
    uint32_t *row_of;
    float *weights;
    uint64_t rest_bytes;
    uint8_t *grads[BATCH_PUSHES_MAX]; /* gradients in memory that the device cannot read */
};

static void lay_out_staged(struct call *const *calls, uint32_t n, uint64_t n_keys, struct staged *s,
                           struct arena *arena)
{
    const struct store_keys *in = &calls[0]->change->in;
    bool has_statuses = false;
    for (uint32_t i = 0; i < n; i++)
        has_statuses = has_statuses || calls[i]->change->statuses != NULL;
    s->report = arena_take(arena, sizeof *s->report);
    s->statuses = has_statuses ? arena_take(arena, n_keys) : NULL;
    s->keys = arena_take(arena, n_keys * sizeof *s->keys);
    s->slots = in->slots ? arena_take(arena, n_keys * sizeof *s->slots) : NULL;
    uint64_t begin = arena->bytes;
    s->row_of = in->offsets ? arena_take(arena, n_keys * sizeof *s->row_of) : NULL;
    s->weights = in->weights ? arena_take(arena, n_keys * sizeof *s->weights) : NULL;
    s->rest = arena->base ? arena->base + begin : NULL;
    s->rest_bytes = arena->bytes - begin;
    for (uint32_t i = 0; i < n; i++)
        s->grads[i] = calls[i]->inputs[IN_VALUES].kind == MEMORY_HOST
                          ? arena_take(arena, calls[i]->inputs[IN_VALUES].bytes)
                          : NULL;
}

static int take_staged(struct call *const *calls, uint32_t n, uint64_t n_keys, struct staged *s)
{
    struct call *first = calls[0];
    struct arena arena = {.base = NULL};
    lay_out_staged(calls, n, n_keys, s, &arena);
    first->staging_bytes = arena.bytes;
    first->staging = buffer_new(arena.bytes);
    if (first->staging == NULL)
        return DEVICE_NO_MEMORY;
    arena = (struct arena){.base = first->staging};
    lay_out_staged(calls, n, n_keys, s, &arena);
    memset(s->report, 0, sizeof *s->report);
    return 0;
}

/* Grows the block, which all launches of the table share: one stream runs them. */
static int need_block(struct store *store, uint64_t bytes)
{
    if (bytes <= store->batch_bytes)
        return 0;
    device_free(store->batch_block, store->stream);
    store->batch_block = NULL;
    store->batch_bytes = 0;
    int status = cuda_new(store, &store->batch_block, bytes);
    if (status == 0)
        store->batch_bytes = bytes;
    return status ? status
                  : device_fill(store->batch_block, 0, sizeof(struct batch_state), store->stream);
}

static void lay_out(struct batch_view *j, bool has_slots, struct arena *arena)
{
    uint64_t n = j->n_keys;
    j->state = arena_take(arena, sizeof *j->state);
    j->d_keys = arena_take(arena, n * sizeof *j->d_keys);
    j->d_slots = has_slots ? arena_take(arena, n * sizeof *j->d_slots) : NULL;
    j->refs = arena_take(arena, n * sizeof *j->refs);
    j->groups = arena_take(arena, n * sizeof *j->groups);
    j->ranks = arena_take(arena, n * sizeof *j->ranks);
    j->sorted = arena_take(arena, n * sizeof *j->sorted);
    for (uint32_t i = 0; i < j->n_fetches; i++) {
        j->fetch[i].at = arena->bytes;
        arena_take(arena, j->fetch[i].bytes);
    }
    j->block = arena->base;
}

static int take_block(struct store *store, struct batch_view *j)
{
    struct arena arena = {.base = NULL};
    lay_out(j, store->view.row_slots != NULL, &arena);
    int status = need_block(store, arena.bytes);
    arena = (struct arena){.base = store->batch_block};
    if (status == 0)
        lay_out(j, store->view.row_slots != NULL, &arena);
    return status;
}

/* ---- the launches ---- */

static void write_keys(const struct store_keys *in, uint64_t at, const struct staged *s)
{
    memcpy(s->keys + at, in->keys, in->n_keys * sizeof *in->keys);
    if (s->weights)
        memcpy(s->weights + at, in->weights, in->n_keys * sizeof *in->weights);
    for (uint32_t row = 0; (s->slots || s->row_of) && row < in->n_rows; row++) {
        uint32_t end = in->offsets ? in->offsets[row + 1] : row + 1;
        for (uint32_t k = in->offsets ? in->offsets[row] : row; k < end; k++) {
            if (s->slots)
                s->slots[at + k] = in->slots[row];
            if (s->row_of)
                s->row_of[at + k] = row;
        }
    }
}

/* Not by_plan: there before it. */
static void add_fetch(struct batch_view *j, const void *from, uint64_t bytes, bool by_plan)
{
    struct batch_fetch *f = &j->fetch[j->n_fetches++];
    *f = (struct batch_fetch){.from = from, .bytes = bytes, .first_block = j->n_fetch_blocks};
    if (by_plan)
        j->n_fetch_blocks += (uint32_t)((bytes + BATCH_FETCH_BYTES - 1) / BATCH_FETCH_BYTES);
}

static void set_view(struct call *const *calls, uint32_t n, const struct staged *s,
                     struct batch_view *j)
{
    const struct store *store = calls[0]->store;
    uint32_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct input *grads = &calls[i]->inputs[IN_VALUES];
        const struct store_keys *in = &calls[i]->change->in;
        j->first_key[i] = at;
        if (in->n_keys && !calls[i]->is_lent)
            write_keys(in, at, s);
        if (s->grads[i] && grads->bytes)
            memcpy(s->grads[i], grads->from, grads->bytes);
        add_fetch(j, s->grads[i] ? s->grads[i] : grads->from, grads->bytes, !calls[i]->is_lent);
        at += in->n_keys;
    }
    add_fetch(j, s->rest, s->rest_bytes, true);
    j->n = n;
    j->dtype = calls[0]->change->dtype;
    j->first_row = store->n_rows;
    j->may_create = may_create(store, j->n_keys);
    j->set = (uint8_t)store->changes.n;
    j->keys = calls[0]->is_lent ? calls[0]->change->in.keys : s->keys;
    j->own = calls[0]->change->in.own;
    j->checks = calls[0]->is_lent && !store->schema->s.admit_nonfinite;
    j->slots = s->slots;
    j->statuses = s->statuses;
    j->report = s->report;
}

static void set_rest(const struct staged *s, struct batch_view *j)
{
    uint8_t *rest = j->block + j->fetch[j->n].at;
    if (s->row_of)
        j->row_of = (const uint32_t *)(const void *)rest;
    if (s->weights)
        j->weights = (const float *)(const void *)(rest + ((uint8_t *)s->weights - s->rest));
}

/* With a set the plan reads the keys that gradients were taken for. */
static int copy_lent(const struct store *store, struct batch_view *j)
{
    const struct batch_fetch *f = &j->fetch[0];
    struct taken taken = {.from = f->from,
                          .to = j->block + f->at,
                          .bytes = f->bytes,
                          .dtype = j->dtype,
                          .bad = j->checks ? &j->report->bad : NULL};
    if (j->own == NULL && !j->checks)
        return device_copy(taken.to, taken.from, taken.bytes, store->stream);
    if (j->own == NULL)
        return launch_checked_copy(taken, store->stream);
    taken.own = j->own;
    taken.keys = j->keys;
    taken.keys_to = j->d_keys;
    taken.n_keys = j->n_keys;
    taken.row_bytes = (uint32_t)(f->bytes / j->n_keys);
    j->keys = j->d_keys;
    return launch_own_copy(taken, store->stream);
}

static int launch(struct call *const *calls, struct store *store, struct batch_view *j)
{
    const embd_schema *s = &store->schema->s;
    struct batch_steps steps;
    struct use_view use = {0};
    for (uint32_t i = 0; i < j->n; i++)
        steps.at[i] = optimizer_begin(s, calls[i]->change->lr, store->step + i + 1);
    if (store->evicts)
        use = cuda_use(store);
    int status = calls[0]->is_lent ? copy_lent(store, j) : 0;
    if (status == 0)
        status = launch_batch_plan(store->view, *j, store->stream);
    if (status == 0)
        status = frozen_keep_refs(store, j->refs, j->n_keys);
    return status ? status
                  : launch_batch_apply(store->view, *j, s->optimizer.kind, steps, use,
                                       store->evicts, store->stream);
}

static void give_up(struct call *first)
{
    buffer_free(first->staging, first->staging_bytes);
    first->staging = NULL;
}

int batch_push_start(struct call *const *calls, uint32_t n)
{
    struct call *first = calls[0];
    struct batch_view j = {.n = 0};
    struct staged s;
    for (uint32_t i = 0; i < n; i++)
        j.n_keys += calls[i]->change->in.n_keys;
    int status = take_staged(calls, n, j.n_keys, &s);
    if (status != 0)
        return status;
    set_view(calls, n, &s, &j);
    first->batch_report = s.report;
    first->statuses = s.statuses;
    status = take_block(first->store, &j);
    if (status == DEVICE_NO_MEMORY)
        give_up(first);
    if (status != 0)
        return status;
    set_rest(&s, &j);
    s.report->is_done = j.n_keys == 0;
    return j.n_keys ? launch(calls, first->store, &j) : 0;
}

bool batch_push_end(struct call *first)
{
    struct store *store = first->store;
    const struct batch_report *report = first->batch_report;
    struct call *call = first;
    const uint8_t *statuses = first->statuses;
    store->misses = !report->is_done || report->n_new > 0;
    if (!report->is_done) {
        give_up(first);
        return false;
    }
    store->n_rows += report->n_new;
    store->step += first->n_batched;
    store->n_unreported += first->n_batched;
    for (uint32_t i = 0; i < first->n_batched; i++, call = call->next) {
        call->n_inserted = report->n_inserted[i];
        call->is_unreported = true;
        if (call->change->statuses)
            memcpy(call->change->statuses, statuses, call->change->in.n_keys);
        statuses += statuses ? call->change->in.n_keys : 0;
    }
    return true;
}
