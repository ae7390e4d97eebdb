/* evict.c - on_full = evict_...: removes rows to make room, by the rules of use.h.
 *
 * If a plan needs more rows than there is room, the device counts the rows that may go, and the
 * host waits for that number: it decides whether the request is refused. Next the host takes all
 * memory, for the new rows too. Then it enqueues the rest: the choice of rows, the removal of their
 * entries, the compaction, and the plan again, because rows that the request names may have moved.
 */
#include "server/store/cuda/evict.h"
#include "server/store/cuda/insert_plan.h"
#include "server/store/cuda/push.h"

#include <string.h>

#include "server/store/use.h"

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint64_t evict_most(const embd_schema *s, uint64_t missing)
{
    uint64_t part = s->capacity / USE_PASS_PART;
    return missing > part ? missing : part;
}

bool evict_is_vain(const struct store *store)
{
    return store->schema->s.on_full == EMBD_ON_FULL_EVICT_TTL &&
           (store->is_timed ? store->now : store->step) < store->none_expire_before;
}

void evict_note_survey(struct store *store, const struct use_survey *found)
{
    const embd_schema *s = &store->schema->s;
    uint64_t next = store->is_timed ? use_expiry(store->clock, s->ttl_seconds)
                                    : use_expiry(store->step, s->ttl);
    store->none_expire_before = least(next, found->first_expiry);
}

/* The most rows that a pass may remove; 0: no row can go. */
static uint64_t most_to_go(const struct call *call)
{
    const struct store *store = call->store;
    uint64_t missing = call->report->n_leaders - cuda_room(store);
    return evict_is_vain(store) ? 0 : least(evict_most(&store->schema->s, missing), store->n_rows);
}

static void lay_out_survey(struct evict_pass *p, const struct store *store, struct arena *arena)
{
    p->marks = arena_take(arena, (store->n_rows / 32 + 1) * sizeof *p->marks);
    p->view.survey = arena_take(arena, sizeof *p->view.survey);
    p->view.choice = arena_take(arena, sizeof *p->view.choice);
    p->view.bins = arena_take(arena, USE_BINS * sizeof *p->view.bins);
    p->view.n_out = arena_take(arena, sizeof *p->view.n_out);
    p->view.marks = p->marks;
}

static int take_survey(struct evict_pass *p, struct store *store)
{
    struct arena arena = {.base = NULL};
    lay_out_survey(p, store, &arena);
    int status = cuda_new(store, &p->survey_memory, arena.bytes);
    arena = (struct arena){.base = p->survey_memory};
    if (status == 0)
        lay_out_survey(p, store, &arena);
    return status ? status : device_fill(p->survey_memory, 0, arena.bytes, store->stream);
}

static int take_removal(struct evict_pass *p, uint32_t n, struct store *store)
{
    struct arena arena = {.base = NULL};
    compact_lay_out(&p->removal, n, &arena);
    int status = cuda_new(store, &p->removal_memory, arena.bytes);
    arena = (struct arena){.base = p->removal_memory};
    if (status == 0)
        compact_lay_out(&p->removal, n, &arena);
    p->view.rows = p->removal.rows;
    return status;
}

int evict_survey(const struct call *call, struct evict_pass *p, struct use_survey *pinned)
{
    struct store *store = call->store;
    void *stream = store->stream;
    int status = take_survey(p, store);
    p->view.n_rows = store->n_rows;
    if (status == 0)
        status = launch_mark(call->plan.refs, call->in.n, p->marks, stream);
    if (status == 0)
        status = device_fill(&p->view.survey->first_expiry, 0xff, sizeof(uint64_t), stream);
    if (status == 0)
        status = launch_survey(store->view, cuda_use(store), p->view, stream);
    return status ? status : device_copy(pinned, p->view.survey, sizeof *pinned, stream);
}

int evict_reserve(struct call *call, struct evict_pass *p, uint64_t n, uint64_t n_new)
{
    struct store *store = call->store;
    change_sets_take_evicted(store);
    int status = push_take_memory(call);
    if (status == 0)
        status = grow_rows(store, store->n_rows - n + n_new);
    if (status == 0)
        status = grow_entries(store, store->n_rows + store->n_candidates + n_new +
                                         call->report->n_filtered_new);
    return status || n == 0 ? status : take_removal(p, (uint32_t)n, store);
}

int evict_chosen(struct call *call, struct evict_pass *p, uint64_t n)
{
    struct store *store = call->store;
    int status = launch_take(store->view, cuda_use(store), p->view, store->stream);
    if (status == 0)
        status = change_sets_note_evicted(store, p->removal.rows, (uint32_t)n);
    if (status == 0)
        status = compact_rows(store, &p->removal, (uint32_t)n);
    call->n_evicted = (uint32_t)n;
    store->n_evicted += n;
    call->is_sorted = false;
    return status;
}

void evict_free(const struct store *store, struct evict_pass *p)
{
    device_free(p->survey_memory, store->stream);
    device_free(p->removal_memory, store->stream);
    p->survey_memory = p->removal_memory = NULL;
}

/* Surveys the rows; waits for the result. */
static int survey(const struct call *call, struct evict_pass *p, struct use_survey *out)
{
    struct use_survey *pinned = buffer_new(sizeof *out);
    if (pinned == NULL)
        return DEVICE_NO_MEMORY;
    *pinned = (struct use_survey){0};
    int status = evict_survey(call, p, pinned);
    if (status == 0)
        status = device_stream_wait(call->store->stream);
    *out = *pinned;
    buffer_free(pinned, sizeof *out);
    return status;
}

static int let_go(struct call *call, struct evict_pass *p, uint64_t n, uint64_t n_may_go)
{
    struct store *store = call->store;
    int status = launch_choose(store->view, cuda_use(store), p->view, n, n_may_go, store->stream);
    if (status == 0)
        status = evict_chosen(call, p, n);
    return status ? status : insert_plan_start(call);
}

/* Decides how many rows go, and takes the memory for that. EMBD_FULL. */
static int find(struct call *call, struct evict_pass *p, uint64_t most, bool may_drop,
                struct use_survey *found, uint64_t *n_out, struct embd__error *e)
{
    struct store *store = call->store;
    int status = survey(call, p, found);
    if (status != 0)
        return cuda_error(store, status, "to choose rows to evict", e);
    uint64_t n = least(most, found->n_may_go), room = cuda_room(store) + n;
    evict_note_survey(store, found);
    if (call->report->n_leaders > room && !may_drop)
        return insert_plan_refuse(call, room, e);
    *n_out = n;
    if (n == 0)
        return EMBD_OK;
    status = evict_reserve(call, p, n, least(call->report->n_leaders, room));
    return status ? cuda_error(store, status, "to evict rows", e) : EMBD_OK;
}

static bool is_short(const struct call *call)
{
    return call->store->evicts && call->report->n_leaders > cuda_room(call->store);
}

int evict_decide(struct call *call, bool may_drop, uint64_t *n_out, struct embd__error *e)
{
    struct evict_pass p = {.survey_memory = NULL};
    struct use_survey found;
    uint64_t most = is_short(call) ? most_to_go(call) : 0;
    int status = EMBD_OK;
    *n_out = 0;
    if (most > 0)
        status = find(call, &p, most, may_drop, &found, n_out, e);
    evict_free(call->store, &p);
    return status;
}

static int run_pass(struct call *call, struct evict_pass *p, uint64_t most, bool *again,
                    struct embd__error *e)
{
    struct use_survey found;
    uint64_t n = 0;
    if (find(call, p, most, call->may_drop, &found, &n, e) != EMBD_OK || n == 0)
        return e->status;
    *again = true;
    int status = let_go(call, p, n, found.n_may_go);
    return status ? cuda_error(call->store, status, "evicting rows", e) : EMBD_OK;
}

int evict_others(struct call *call, bool *again, struct embd__error *e)
{
    struct evict_pass p = {.survey_memory = NULL};
    if (call->state == CALL_REPLANNED || !is_short(call))
        return EMBD_OK;
    uint64_t most = most_to_go(call);
    int status = most ? run_pass(call, &p, most, again, e) : EMBD_OK;
    evict_free(call->store, &p);
    return status;
}
