/* prepare.c - decides what a push or insert would be refused for, before it is made.
 *
 * It runs the plan of a push on the table as it is after all calls under way, and creates nothing.
 * The host waits for that, unless the keys fit whatever they are. */
#include "server/store/cuda/evict.h"
#include "server/store/cuda/insert_plan.h"
#include "server/store/cuda/push.h"
#include "server/store/cuda/queue.h"

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The most rows that calls under way may create. */
static uint64_t most_coming(const struct store *store)
{
    uint64_t n = 0;
    for (const struct call *call = store->first; call != NULL; call = call->next)
        if (call->state != CALL_ENDED && call->kind == CALL_PUSH)
            n += call->push->in.n_keys;
        else if (call->state != CALL_ENDED && call->kind == CALL_INSERT)
            n += call->insert->in.n_keys;
    return n;
}

/* Whether n_keys keys fit whatever they are. A request may evict all rows that it does not name,
 * except where rows have to expire first. */
static bool fits_anyway(const struct store *store, uint64_t n_keys)
{
    uint64_t room = cuda_room(store);
    if (most_coming(store) + n_keys <= room)
        return true;
    return store->evicts && store->schema->s.on_full != EMBD_ON_FULL_EVICT_TTL &&
           n_keys <= store->n_rows + room;
}

/* Sets the results of the plan. With the report. */
static int decide(struct call *call, struct store_plan *plan, struct embd__error *e)
{
    uint64_t n_gone = 0;
    if (evict_foresee(call, plan->may_drop, &n_gone, e) != EMBD_OK)
        return e->status;
    if (n_gone == 0 && insert_plan_reserve(call, plan->may_drop, e) != EMBD_OK)
        return e->status;
    uint64_t n = call->report->n_leaders;
    plan->n_inserted =
        n_gone == 0 ? call->n_inserted : (uint32_t)least(n, cuda_room(call->store) + n_gone);
    plan->n_full = (uint32_t)n - plan->n_inserted;
    plan->n_filtered = call->report->n_filtered;
    plan->n_evicted = (uint32_t)n_gone;
    return EMBD_OK;
}

static int look(struct store *store, struct store_plan *plan, struct embd__error *e)
{
    struct store_insert insert = {.in = plan->in};
    insert.in.weights = NULL;
    cuda_wait_all(store);
    if (store->failed)
        return embd__error_set(e, EMBD_INTERNAL, "%s", store->why);
    struct call *call = call_new(store);
    if (call == NULL)
        return cuda_error(store, DEVICE_NO_MEMORY, "for a plan", e);
    call->kind = CALL_INSERT;
    call->insert = &insert;
    int status = push_start(call), ended = device_stream_wait(store->stream);
    if (status == 0)
        status = ended;
    if (status != 0)
        cuda_error(store, status, "planning a request", e);
    else
        decide(call, plan, e);
    call_free(call);
    return e->status;
}

int cuda_prepare(struct store *store, struct store_plan *plan, struct embd__error *e)
{
    e->status = EMBD_OK;
    plan->n_inserted = plan->n_full = plan->n_filtered = plan->n_evicted = 0;
    if (store->failed)
        return embd__error_set(e, EMBD_INTERNAL, "%s", store->why);
    bool is_spared = plan->may_drop || fits_anyway(store, plan->in.n_keys);
    if (is_spared && !plan->is_counted &&
        cuda_reserve(store, plan->in.n_keys, plan->may_drop, e) != EMBD_NO_MEMORY)
        return e->status;
    e->status = EMBD_OK;
    int status = device_use(store->device);
    return status ? cuda_error(store, status, "planning a request", e) : look(store, plan, e);
}
