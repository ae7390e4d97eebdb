/* insert_plan.c - what a push, insert or load creates.
 *
 * First the device counts the distinct keys without a row. With these counts the host takes room
 * and memory, which may fail. What follows fails only if the device does. */
#include "server/store/cuda/insert_plan.h"

#include <string.h>

static uint32_t groups_for(uint32_t n)
{
    uint32_t n_groups = 64;
    while (n_groups / 2 < n)
        n_groups *= 2;
    return n_groups;
}

void insert_plan_lay_out(struct call *call, struct arena *arena)
{
    struct plan_view *p = &call->plan;
    uint64_t n = call->in.n;
    p->n_groups = groups_for(call->in.n);
    if (call->inputs[IN_OFFSETS].from)
        call->in.row_of = arena_take(arena, n * sizeof *call->in.row_of);
    p->refs = arena_take(arena, n * sizeof *p->refs);
    p->group = arena_take(arena, n * sizeof *p->group);
    p->positions = arena_take(arena, n * sizeof *p->positions);
    p->leaders = arena_take(arena, n * sizeof *p->leaders);
    p->is_leader = arena_take(arena, n);
    p->claims = arena_take(arena, p->n_groups * sizeof *p->claims);
    p->marks = arena_take(arena, p->n_groups * PLAN_MARKS / 16 * sizeof *p->marks);
    p->report = arena_take(arena, sizeof *p->report);
    call->counts = arena_take(arena, sizeof *call->counts);
    call->select_bytes = select_bytes(call->in.n);
    call->select_temp = arena_take(arena, call->select_bytes);
}

/* Clears claims, marks and the report, which are adjacent. */
static int clear(const struct plan_view *p, void *stream)
{
    return device_fill(p->claims, 0, (uint64_t)((uint8_t *)(p->report + 1) - (uint8_t *)p->claims),
                       stream);
}

/* Sights are counted by group, so every key needs a group where they count. */
static struct plan_view view_of(const struct call *call)
{
    struct plan_view p = call->plan;
    if (call->store->view.admit_after > 1 || call->store->n_candidates > 0)
        p.marks = NULL;
    return p;
}

int insert_plan_look(struct call *call, uint64_t *items)
{
    struct store *store = call->store;
    memset(call->report, 0, sizeof *call->report);
    int status = call->in.row_of ? launch_expand(call->in, store->stream) : 0;
    return status ? status
                  : launch_look(store->view, call->in, call->plan, items, &call->report->misses,
                                &call->counts->stop, store->stream);
}

int insert_plan_compare(struct call *call)
{
    struct store *store = call->store;
    memset(call->report, 0, sizeof *call->report);
    int status = call->in.row_of ? launch_expand(call->in, store->stream) : 0;
    return status ? status
                  : launch_compare(store->view, call->in, call->found, &call->report->misses,
                                   &call->counts->stop, store->stream);
}

int insert_plan_start(struct call *call)
{
    struct store *store = call->store;
    struct plan_view p = view_of(call);
    struct table_view view = store->view;
    void *stream = store->stream;
    view.forgets = call->forgets;
    memset(call->report, 0, sizeof *call->report);
    if (call->in.n == 0)
        return 0;
    int status = clear(&p, stream);
    if (status == 0 && call->in.row_of)
        status = launch_expand(call->in, stream);
    if (status == 0)
        status = launch_search(view, call->in, p, stream);
    if (status == 0)
        status = launch_group(store->view, call->in, p, stream);
    if (status == 0)
        status = launch_select(call->select_temp, call->select_bytes, p.positions, p.is_leader,
                               p.leaders, &p.report->n_leaders, call->in.n, stream);
    if (status == 0 && store->n_candidates)
        status = launch_count(call->in, p, cuda_room(store), stream);
    return status ? status : device_copy(call->report, p.report, sizeof *p.report, stream);
}

/* There is memory for all of them: none is taken for keys that may have rows. */
static bool has_memory(const struct store *store, uint64_t n)
{
    return store->n_rows + n <= store->capacity &&
           store->n_rows + n + store->n_tombstones <= store->n_entries_max;
}

bool insert_plan_may_expect(const struct call *call)
{
    const struct store *store = call->store;
    bool is_likely = store->all_new || store->n_rows == 0;
    return is_likely && call->done != NULL && call->in.n > 0 && !call->forgets &&
           store->n_candidates == 0 && store->view.admit_after <= 1 &&
           call->in.n <= cuda_room(store) && has_memory(store, call->in.n);
}

int insert_plan_expect(struct call *call, const struct first_push *first)
{
    struct store *store = call->store;
    const struct plan_view *p = &call->plan;
    void *stream = store->stream;
    store->n_expected++;
    memset(call->report, 0, sizeof *call->report);
    int status = clear(p, stream);
    if (status == 0 && call->in.row_of)
        status = launch_expand(call->in, stream);
    if (status == 0)
        status = launch_expect(store->view, call->in, *p, stream);
    if (status == 0 && first != NULL)
        status = launch_first(store->view, *p, *first, store->n_rows, stream);
    else if (status == 0)
        status = launch_place_expected(store->view, call->in, *p, store->n_rows, stream);
    return status ? status : device_copy(call->report, p->report, sizeof *p->report, stream);
}

int insert_plan_unexpect(struct call *call)
{
    struct store *store = call->store;
    call->is_expected = store->all_new = false;
    store->n_unexpected++;
    return launch_unexpect(store->view, call->in, store->n_rows, store->stream);
}

int insert_plan_refuse(const struct call *call, uint64_t room, struct embd__error *e)
{
    const struct store *store = call->store;
    return embd__error_set(e, EMBD_FULL,
                           "table %s: %u keys need a row, %llu rows are left of capacity %llu",
                           store->schema->s.name, call->report->n_leaders, (unsigned long long)room,
                           (unsigned long long)(store->n_rows + cuda_room(store)));
}

/* Takes memory for n leaders. */
static int reserve(struct call *call, uint64_t n)
{
    struct store *store = call->store;
    int status = grow_rows(store, store->n_rows + n);
    uint64_t n_new = n - call->report->n_promoted + call->report->n_filtered_new;
    return status ? status : grow_entries(store, store->n_rows + store->n_candidates + n_new);
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The device has no memory for all new rows: creates as many as fit. The host waits for one more
 * count; this is rare. */
static int reserve_less(struct call *call)
{
    struct store *store = call->store;
    uint64_t used = store->n_rows + store->n_candidates + call->report->n_filtered_new;
    uint64_t n = least(store->capacity - store->n_rows, call->n_inserted);
    int status = grow_entries(store, used + n);
    if (status == DEVICE_NO_MEMORY) {
        used += store->n_tombstones;
        n = least(n, store->n_entries_max > used ? store->n_entries_max - used : 0);
        status = 0;
    }
    uint32_t *n_promoted = &call->plan.report->n_promoted;
    if (status == 0)
        status = device_fill(n_promoted, 0, sizeof *n_promoted, store->stream);
    if (status == 0)
        status = launch_count(call->in, call->plan, n, store->stream);
    if (status == 0)
        status =
            device_copy(&call->report->n_promoted, n_promoted, sizeof *n_promoted, store->stream);
    if (status == 0)
        status = device_stream_wait(store->stream);
    call->n_inserted = (uint32_t)n;
    return status ? status : reserve(call, n);
}

int insert_plan_reserve(struct call *call, bool may_drop, struct embd__error *e)
{
    struct store *store = call->store;
    uint64_t room = cuda_room(store);
    call->n_inserted = (uint32_t)least(call->report->n_leaders, room);
    if (call->n_inserted < call->report->n_leaders && !may_drop)
        return insert_plan_refuse(call, room, e);
    int status = reserve(call, call->n_inserted);
    if (status == DEVICE_NO_MEMORY && may_drop)
        status = reserve_less(call);
    call->n_full = call->report->n_leaders - call->n_inserted;
    return status ? cuda_error(store, status, "for more rows", e) : EMBD_OK;
}

bool insert_plan_is_all_new(const struct call *call)
{
    return call->in.n > 0 && call->n_inserted == call->in.n && call->store->n_candidates == 0;
}

static int create(const struct call *call, const struct first_push *first)
{
    struct store *store = call->store;
    const struct plan_report *r = call->report;
    if (call->is_expected)
        return 0;
    if (first != NULL)
        return launch_first(store->view, call->plan, *first, store->n_rows, store->stream);
    return launch_create(store->view, call->in, call->plan, call->n_inserted, store->n_rows,
                         r->n_filtered > 0 || store->n_candidates > 0, store->stream);
}

/* Whether the refs of other keys than leaders, or statuses, are still to be set. */
static bool needs_resolve(const struct call *call)
{
    const struct plan_report *r = call->report;
    return call->in.n > 0 && (call->statuses != NULL || (r->misses && r->n_leaders < call->in.n));
}

int insert_plan_commit(struct call *call, bool may_drop, const struct first_push *first,
                       struct embd__error *e)
{
    struct store *store = call->store;
    const struct plan_report *r = call->report;
    if (insert_plan_reserve(call, may_drop, e) != EMBD_OK)
        return e->status;
    int status = 0;
    store->misses = r->misses;
    store->all_new = insert_plan_is_all_new(call);
    if (r->n_leaders + r->n_filtered > 0)
        status = create(call, first);
    if (status == 0)
        status = change_sets_note_rows(store, store->n_rows, call->n_inserted);
    if (status == 0 && store->evicts && call->n_inserted > 0)
        status = launch_begin_use(store->view, cuda_use(store), store->n_rows, call->n_inserted,
                                  store->stream);
    bool is_one_status = call->is_light || call->is_expected;
    if (call->is_whole && call->statuses != NULL)
        memset(call->statuses, EMBD_KEY_HIT, call->in.n);
    else if (status == 0 && is_one_status && call->statuses != NULL)
        status = device_fill(call->statuses, call->is_light ? EMBD_KEY_HIT : EMBD_KEY_INSERTED,
                             call->in.n, store->stream);
    else if (status == 0 && !is_one_status && needs_resolve(call))
        status = launch_resolve(store->view, call->in, call->plan, call->statuses, store->stream);
    store->n_rows += call->n_inserted;
    store->n_candidates += r->n_filtered_new;
    store->n_candidates -= r->n_promoted;
    return status ? cuda_error(store, status, "creating rows", e) : EMBD_OK;
}
