/* evict.c - on_full = evict_...: rows that go so that others can come, by the rules of use.h.
 *
 * When a plan needs more rows than there is room, the device counts those that may go, and the host
 * waits for that number: it decides whether the request is refused. All that may fail is then done,
 * room for what the request creates included, and the rest is enqueued: the choice of the rows, the
 * end of their entries, the move of others to their places, and the plan anew, because rows that
 * the request names may have moved. */
#include "cuda_store.h"

#include <string.h>

#include "use.h"

struct use_view cuda_use(const struct store *store)
{
    const embd_schema *s = &store->schema->s;
    return (struct use_view){
        .at = store->view.state_floats - embd__schema_use_floats(s),
        .counts = s->on_full == EMBD_EVICT_LFU,
        .step = store->step,
        .ttl = s->on_full == EMBD_EVICT_TTL ? s->ttl : 0,
    };
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* How many rows a pass may take at most; 0: none can go. */
static uint64_t most_to_go(const struct call *call)
{
    const struct store *store = call->store;
    uint64_t missing = call->report->n_leaders - cuda_room(store),
             part = store->schema->s.capacity / USE_PASS_PART;
    if (store->schema->s.on_full == EMBD_EVICT_TTL && store->step < store->none_expire_before)
        return 0;
    return least(missing > part ? missing : part, store->n_rows);
}

/* The memory of a pass: of the survey, then of the choice. */
struct pass {
    struct evict_view view;
    uint32_t *marks;
    struct leaving leaving;
    void *first, *second;
};

static void lay_out_survey(struct pass *p, const struct store *store, struct arena *arena)
{
    p->marks = arena_take(arena, (store->n_rows / 32 + 1) * sizeof *p->marks);
    p->view.survey = arena_take(arena, sizeof *p->view.survey);
    p->view.choice = arena_take(arena, sizeof *p->view.choice);
    p->view.bins = arena_take(arena, USE_BINS * sizeof *p->view.bins);
    p->view.n_out = arena_take(arena, sizeof *p->view.n_out);
    p->view.marks = p->marks;
}

static int take_survey(struct pass *p, const struct store *store)
{
    struct arena arena = {.base = NULL};
    lay_out_survey(p, store, &arena);
    int status = device_new(&p->first, arena.bytes, store->stream);
    arena = (struct arena){.base = p->first};
    if (status == 0)
        lay_out_survey(p, store, &arena);
    return status ? status : device_fill(p->first, 0, arena.bytes, store->stream);
}

static int take_leaving(struct pass *p, uint32_t n, const struct store *store)
{
    struct arena arena = {.base = NULL};
    leaving_lay_out(&p->leaving, n, &arena);
    int status = device_new(&p->second, arena.bytes, store->stream);
    arena = (struct arena){.base = p->second};
    if (status == 0)
        leaving_lay_out(&p->leaving, n, &arena);
    p->view.rows = p->leaving.rows;
    return status;
}

/* The host waits for it. */
static int survey(struct call *call, struct pass *p, struct use_survey *out)
{
    struct store *store = call->store;
    void *stream = store->stream, *pinned = buffer_new(sizeof *out);
    if (pinned == NULL)
        return DEVICE_NO_MEMORY;
    p->view.n_rows = store->n_rows;
    int status = launch_mark(call->plan.refs, call->in.n, p->marks, stream);
    if (status == 0)
        status = device_fill(&p->view.survey->first_expiry, 0xff, sizeof(uint64_t), stream);
    if (status == 0)
        status = launch_survey(store->view, cuda_use(store), p->view, stream);
    if (status == 0)
        status = device_copy(pinned, p->view.survey, sizeof *out, stream);
    if (status == 0)
        status = device_stream_wait(stream);
    memcpy(out, pinned, sizeof *out);
    buffer_free(pinned, sizeof *out);
    return status;
}

/* All that the request needs when n rows are gone, and for going. */
static int reserve(struct call *call, struct pass *p, uint64_t n)
{
    struct store *store = call->store;
    uint64_t n_new = least(call->report->n_leaders, cuda_room(store) + n);
    int status = push_take_memory(call);
    if (status == 0)
        status = grow_rows(store, store->n_rows - n + n_new);
    if (status == 0)
        status = grow_entries(store, store->n_rows + store->n_candidates + n_new +
                                         call->report->n_filtered_new);
    return status ? status : take_leaving(p, (uint32_t)n, store);
}

static int let_go(struct call *call, struct pass *p, uint64_t n, uint64_t n_may_go)
{
    struct store *store = call->store;
    int status = launch_choose(store->view, cuda_use(store), p->view, n, n_may_go, store->stream);
    if (status == 0)
        status = leaving_close_up(store, &p->leaving, (uint32_t)n);
    call->n_evicted = (uint32_t)n;
    store->n_evicted += n;
    call->is_sorted = false;
    return status ? status : plan_start(call);
}

static int run_pass(struct call *call, struct pass *p, uint64_t most, bool *again,
                    struct embd__error *e)
{
    struct store *store = call->store;
    struct use_survey found = {0};
    int status = take_survey(p, store);
    if (status == 0)
        status = survey(call, p, &found);
    if (status != 0)
        return cuda_error(store, status, "to choose rows to evict", e);
    uint64_t n = least(most, found.n_may_go), room = cuda_room(store) + n;
    store->none_expire_before =
        least(use_expiry(store->step, store->schema->s.ttl), found.first_expiry);
    if (call->report->n_leaders > room && call->statuses == NULL)
        return plan_refuse(call, room, e);
    if (n == 0)
        return EMBD_OK;
    status = reserve(call, p, n);
    if (status != 0)
        return cuda_error(store, status, "to evict rows", e);
    *again = true;
    status = let_go(call, p, n, found.n_may_go);
    return status ? cuda_error(store, status, "evicting rows", e) : EMBD_OK;
}

int evict_others(struct call *call, bool *again, struct embd__error *e)
{
    struct store *store = call->store;
    struct pass p = {.first = NULL};
    if (!store->evicts || call->has_evicted || call->report->n_leaders <= cuda_room(store))
        return EMBD_OK;
    call->has_evicted = true;
    uint64_t most = most_to_go(call);
    int status = most ? run_pass(call, &p, most, again, e) : EMBD_OK;
    device_free(p.first, store->stream);
    device_free(p.second, store->stream);
    return status;
}
