/* push.c - enqueues pushes and inserts, one at a time. A push is an insert followed by an optimizer
 * step. */
#include "server/store/cuda/push.h"
#include "server/store/cuda/insert_plan.h"

#include "proto/combine.h"
#include "server/store/candidates.h"

/* Whether the device looks at its gradients: nobody has before. */
static bool is_looked_at(const struct call *call)
{
    return call->is_lent && call->inputs[IN_VALUES].from != NULL &&
           !call->store->schema->s.admit_nonfinite;
}

static int take_staging(struct call *call, uint8_t *statuses)
{
    for (int turn = 0; turn < 2; turn++) {
        struct arena arena = {.base = call->staging};
        arena_take(&arena, call->staged_bytes);
        call->report = arena_take(&arena, sizeof *call->report);
        call->bad = is_looked_at(call) ? arena_take(&arena, sizeof *call->bad) : NULL;
        call->statuses = statuses ? arena_take(&arena, call->in.n) : NULL;
        if (call->staging != NULL)
            break;
        call->staging_bytes = arena.bytes;
        call->staging = buffer_new(arena.bytes);
        if (call->staging == NULL)
            return DEVICE_NO_MEMORY;
    }
    call->statuses_out = statuses;
    return 0;
}

static const struct store_keys *keys_of(const struct call *call)
{
    return &call->change->in;
}

static uint8_t *statuses_of(const struct call *call)
{
    return call->change->statuses;
}

static uint64_t gradient_bytes(const struct call *call)
{
    return (uint64_t)call->in.n_rows * call->store->view.dim *
           (call->change->dtype == EMBD_DTYPE_F32 ? 4 : 2);
}

/* The memory of the step. */
struct step_memory {
    struct push_view view;
    uint64_t *unsorted; /* items */
    void *temp;
    size_t temp_bytes;
    uint32_t *marks; /* is_global: rows that the push names */
};

static uint64_t mark_words(const struct call *call)
{
    return (call->store->n_rows + call->in.n) / 32 + 1;
}

static void lay_out(const struct call *call, struct step_memory *s, struct arena *arena)
{
    uint64_t n = call->in.n, n_chunks = 2 * n / EMBD_SUM_RUN + 2,
             width = (call->store->view.dim + 3) / 4 * 4;
    s->temp_bytes = sort_items_bytes(call->in.n);
    s->temp = arena_take(arena, s->temp_bytes);
    s->unsorted = arena_take(arena, n * sizeof *s->unsorted);
    s->view.items = arena_take(arena, n * sizeof *s->view.items);
    s->view.counts = call->counts;
    s->view.longs = arena_take(arena, n_chunks * sizeof *s->view.longs);
    s->view.chunks = arena_take(arena, n_chunks * sizeof *s->view.chunks);
    s->view.partials = arena_take(arena, n_chunks * width * sizeof *s->view.partials);
    if (call->store->is_wholerow)
        s->view.sums = arena_take(arena, n * call->store->view.dim * sizeof *s->view.sums);
    s->marks = NULL;
    if (call->store->is_global)
        s->marks = arena_take(arena, mark_words(call) * sizeof *s->marks);
}

/* Takes the memory of the step, before anything is created: a push without memory changes nothing.
 */
static int take_step_memory(struct call *call)
{
    struct step_memory s;
    struct arena arena = {.base = NULL};
    lay_out(call, &s, &arena);
    return cuda_new(call->store, &call->step_memory, arena.bytes);
}

static int enqueue_sort(const struct call *call, const struct step_memory *s)
{
    return launch_sort_items(s->temp, s->temp_bytes, s->unsorted, (uint64_t *)s->view.items,
                             call->in.n, ref_bits(call->store->n_rows), call->store->stream);
}

/* If a pull found all keys of a push, or the last push found all its keys, this one probably will
 * too: it is not planned then, unless there is a key without a row after all. */
static bool may_look(struct call *call)
{
    if (call->kind != CALL_PUSH || call->in.n == 0 || call->forgets)
        return false;
    bool is_known = lookup_take(call);
    if (!is_known && call->store->misses)
        return false;
    if (take_step_memory(call) == 0)
        return true;
    if (is_known)
        lookup_reject(call);
    return false;
}

static int look(struct call *call)
{
    struct step_memory s;
    struct arena arena = {.base = call->step_memory};
    lay_out(call, &s, &arena);
    call->is_light = true;
    return call->found.keys ? insert_plan_compare(call) : insert_plan_look(call, s.unsorted);
}

/* As the step needs it. */
static struct push_view view_of(const struct call *call)
{
    struct push_view view = {
        .in = call->in, .dtype = call->change->dtype, .grads = call->inputs[IN_VALUES].on_device};
    view.is_aligned = call->store->view.dim % 4 == 0 && (uintptr_t)view.grads % 16 == 0;
    return view;
}

static struct first_push first_of(const struct call *call, const struct push_view *view)
{
    const embd_schema *s = &call->store->schema->s;
    return (struct first_push){
        .push = *view,
        .kind = s->optimizer.kind,
        .step = optimizer_begin(s, call->change->lr, call->store->step + 1),
    };
}

static bool may_expect(const struct call *call)
{
    const struct store *store = call->store;
    const struct push_view view = view_of(call);
    bool is_push = call->kind == CALL_PUSH;
    if (call->in.own != NULL)
        return false;
    if (is_push && (store->is_global || store->is_wholerow || !first_fits(&store->view, &view)))
        return false;
    return insert_plan_may_expect(call);
}

static int expect(struct call *call)
{
    const struct push_view view = view_of(call);
    struct first_push first = first_of(call, &view);
    first.is_expected = call->is_expected = true;
    return insert_plan_expect(call, call->kind == CALL_PUSH ? &first : NULL);
}

/* Steps the rows that the push does not name. */
static int enqueue_sweep(const struct call *call, const struct step_memory *s,
                         const struct optimizer_step *step)
{
    struct store *store = call->store;
    uint64_t bytes = (store->n_rows / 32 + 1) * sizeof *s->marks;
    int status = device_fill(s->marks, 0, bytes, store->stream);
    if (status == 0)
        status = launch_mark(call->plan.refs, call->in.n, s->marks, store->stream);
    if (status == 0)
        status = frozen_keep_range(store, 0, store->n_rows);
    if (status == 0)
        status = change_sets_note_rows(store, 0, store->n_rows);
    return status ? status
                  : launch_sweep(store->view, store->n_rows, s->marks,
                                 store->schema->s.optimizer.kind, *step, store->stream);
}

/* Whether more than the step goes by refs. */
static bool needs_refs(const struct store *store)
{
    return store->is_global || store->frozen.is_on || store->changes.n > 0;
}

/* Sorts the items, unless they are sorted: refs of new rows rise with their keys. */
static int sort(const struct call *call, struct step_memory *s)
{
    if (call->found.keys) {
        s->view.items = call->found.items;
        return needs_refs(call->store)
                   ? launch_refs(s->view.items, call->in.n, call->plan.refs, call->store->stream)
                   : 0;
    }
    if (call->is_sorted)
        return 0;
    int status = launch_items(call->plan.refs, call->in.n, s->unsorted, call->store->stream);
    if (insert_plan_is_all_new(call)) {
        s->view.items = s->unsorted;
        return status;
    }
    return status ? status : enqueue_sort(call, s);
}

static int enqueue_apply(struct call *call, const struct push_view *view,
                         const struct optimizer_step *step)
{
    struct store *store = call->store;
    const embd_schema *s = &store->schema->s;
    if (!store->is_wholerow)
        return launch_apply(store->view, *view, s->optimizer.kind, *step, store->stream);
    return launch_wholerow(store->view, *view,
                           wholerow_begin(s, store->view.optimizer_floats,
                                          embd__schema_has_stamp(s), call->change->lr, step->t),
                           store->stream);
}

static int note_use(const struct call *call, const struct push_view *view)
{
    const float *scores = call->inputs[IN_SCORES].on_device;
    struct store *store = call->store;
    struct use_view use = cuda_use(store);
    uint32_t n = call->in.n;
    int status = launch_note_use(store->view, use, view->items, n, store->stream);
    if (status == 0 && use.rule.scores && scores != NULL)
        status = launch_note_scores(store->view, use, view->items, scores, n, store->stream);
    return status;
}

static int enqueue_step(struct call *call, struct step_memory *s, const struct optimizer_step *step)
{
    struct store *store = call->store;
    int status =
        call->is_whole ? 0 : device_fill(call->counts, 0, sizeof *call->counts, store->stream);
    if (status == 0)
        status = sort(call, s);
    if (status == 0)
        status = frozen_keep_refs(store, call->plan.refs, call->in.n);
    if (status == 0)
        status = enqueue_apply(call, &s->view, step);
    if (status == 0 && store->evicts)
        status = note_use(call, &s->view);
    if (status == 0 && !store->is_global)
        status = change_sets_note_refs(store, call->plan.refs, call->in.n);
    return status;
}

/* ---- without a way back to the host ---- */

/* Whether a push of known keys can be enqueued as a whole: the device then skips the step if the
 * lookup, or a gradient, is not as expected, and nothing has changed. Only launch_apply knows that.
 */
static bool may_go_whole(const struct call *call)
{
    const struct store *store = call->store;
    return call->done != NULL && !store->is_member && !store->is_wholerow && !store->evicts &&
           !needs_refs(store);
}

static int go_whole(struct call *call)
{
    struct step_memory s = {.view = view_of(call)};
    struct arena arena = {.base = call->step_memory};
    int status = look(call);
    lay_out(call, &s, &arena);
    call->is_whole = true;
    if (status == 0 && call->found.keys == NULL)
        status = enqueue_sort(call, &s);
    call->is_sorted = true;
    const struct first_push first = first_of(call, &s.view);
    return status ? status : enqueue_step(call, &s, &first.step);
}

int push_start(struct call *call)
{
    struct store *store = call->store;
    uint8_t *block = NULL;
    call->may_drop = store_may_drop(call->change);
    cuda_set_now(store, call->change->seconds);
    call_set_keys(call, keys_of(call), 0, keys_of(call)->n_rows);
    if (call->kind == CALL_PUSH && call->in.n > 0)
        call_set_input(call, IN_VALUES, call->change->grads, gradient_bytes(call));
    call->forgets = call->in.n > 0 && candidates_are_forgotten(store->view.admit_after,
                                                               store->n_rows, store->n_candidates);
    call_lay_out_inputs(call);
    bool has_step = call->kind == CALL_PUSH && call->in.n > 0;
    int status = take_staging(call, statuses_of(call));
    for (int turn = 0; turn < 2 && status == 0; turn++) {
        struct arena arena = {.base = call->scratch};
        block = arena_take(&arena, call->in_bytes);
        insert_plan_lay_out(call, &arena);
        if (turn == 0)
            status = cuda_new(store, &call->scratch, arena.bytes);
    }
    if (status == 0 && has_step)
        status = device_fill(call->counts, 0, sizeof *call->counts, store->stream);
    if (status == 0)
        status = call_upload(call, block, false);
    if (status == 0 && may_expect(call))
        return expect(call);
    if (status == 0 && may_look(call))
        return may_go_whole(call) ? go_whole(call) : look(call);
    return status ? status : insert_plan_start(call);
}

int push_plan_again(struct call *call)
{
    int status = call->is_expected ? insert_plan_unexpect(call) : 0;
    call->is_light = call->is_sorted = call->is_whole = false;
    if (call->found.keys)
        lookup_reject(call);
    return status ? status : insert_plan_start(call);
}

/* A push without keys: it counts as a step. */
static int step_alone(struct store *store, float lr, struct embd__error *e)
{
    const embd_optimizer *o = &store->schema->s.optimizer;
    struct optimizer_step step = optimizer_begin(&store->schema->s, lr, ++store->step);
    if (!store->is_global || store->n_rows == 0)
        return EMBD_OK;
    int status = frozen_keep_range(store, 0, store->n_rows);
    if (status == 0)
        status = launch_sweep(store->view, store->n_rows, NULL, o->kind, step, store->stream);
    if (status == 0)
        status = change_sets_note_rows(store, 0, store->n_rows);
    return status ? cuda_error(store, status, "applying a push", e) : EMBD_OK;
}

void push_presort(struct call *call)
{
    struct step_memory s;
    struct arena arena = {.base = call->step_memory};
    if (!call->is_light || call->is_whole)
        return;
    lay_out(call, &s, &arena);
    call->is_sorted = call->found.keys || enqueue_sort(call, &s) == 0;
}

int push_take_memory(struct call *call)
{
    bool has_step = call->kind == CALL_PUSH && call->in.n > 0 && !call->is_expected;
    return has_step && call->step_memory == NULL ? take_step_memory(call) : 0;
}

int push_reserve(struct call *call, struct embd__error *e)
{
    int status = push_take_memory(call);
    return status ? cuda_error(call->store, status, "for a push", e)
                  : insert_plan_reserve(call, call->may_drop, e);
}

static int commit_push(struct call *call, struct embd__error *e)
{
    struct store *store = call->store;
    struct step_memory s = {.view = view_of(call)};
    struct arena arena = {.base = call->step_memory};
    lay_out(call, &s, &arena);
    const struct first_push first = first_of(call, &s.view);
    bool is_first =
        !store->is_wholerow && insert_plan_is_all_new(call) && first_fits(&store->view, &s.view);
    if (insert_plan_commit(call, call->may_drop, is_first ? &first : NULL, e) == EMBD_OK) {
        store->step++;
        int status = is_first || call->is_whole ? 0 : enqueue_step(call, &s, &first.step);
        if (status == 0 && store->is_global)
            status = enqueue_sweep(call, &s, &first.step);
        if (status != 0)
            cuda_error(store, status, "applying a push", e);
    }
    return e->status;
}

/* After all that may fail. */
static int forget_candidates(struct call *call, struct embd__error *e)
{
    struct store *store = call->store;
    bool has_keys = call->in.own == NULL || call->report->has_own;
    if (!call->forgets || !has_keys)
        return EMBD_OK;
    call->forgets = false;
    store->n_tombstones += store->n_candidates;
    store->n_forgotten += store->n_candidates;
    store->n_candidates = 0;
    int status = launch_forget_candidates(store->view, store->stream);
    return status ? cuda_error(store, status, "forgetting candidates", e) : EMBD_OK;
}

int push_check(struct call *call, struct embd__error *e)
{
    if (call->bad == NULL || *call->bad == 0)
        return EMBD_OK;
    int status = call->is_expected ? insert_plan_unexpect(call) : 0;
    if (status != 0)
        return cuda_error(call->store, status, "refusing a push", e);
    uint32_t dim = call->store->view.dim, size = call->change->dtype == EMBD_DTYPE_F32 ? 4 : 2;
    uint64_t at = (*call->bad - UINT64_C(1)) * (16 / size);
    return embd__error_set(
        e, EMBD_NOT_FINITE,
        "grads: row %llu, column %llu or one of the %u behind it is not finite; table '%s' admits "
        "finite gradients only",
        (unsigned long long)(at / dim), (unsigned long long)(at % dim), 16 / size - 1,
        call->store->schema->s.name);
}

int push_commit(struct call *call, struct embd__error *e)
{
    int status = EMBD_OK;
    bool is_empty = call->kind == CALL_PUSH && call->in.n == 0;
    if ((!is_empty && push_reserve(call, e) != EMBD_OK) || forget_candidates(call, e) != EMBD_OK)
        status = e->status;
    else if (is_empty)
        status = step_alone(call->store, call->change->lr, e);
    else if (call->kind == CALL_PUSH)
        status = commit_push(call, e);
    else
        status = insert_plan_commit(call, call->may_drop, NULL, e);
    if (status == EMBD_OK)
        call->store->clock = call->store->now;
    call->store->n_whole += call->is_whole;
    device_free(call->step_memory, call->store->stream);
    device_free(call->scratch, call->store->stream);
    call->step_memory = call->scratch = NULL;
    return status;
}
