/* prepare.c - tickets: memory for a push or insert, and what it would be refused for.
 *
 * To decide, it runs the plan of a push on the table as it is after all calls under way, and
 * creates nothing. The host waits for that, unless the keys fit whatever they are. */
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
        if (call->state != CALL_ENDED && call->kind != CALL_PULL)
            n += call->change->in.n_keys;
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

/* With the report. */
static int decide(struct call *call, struct store_change *change, struct embd__error *e)
{
    bool may_drop = store_may_drop(change);
    uint64_t n_gone = 0;
    if (evict_decide(call, may_drop, &n_gone, e) != EMBD_OK)
        return e->status;
    if (n_gone == 0 && insert_plan_reserve(call, may_drop, e) != EMBD_OK)
        return e->status;
    uint64_t n = call->report->n_leaders;
    change->n_inserted =
        n_gone == 0 ? call->n_inserted : (uint32_t)least(n, cuda_room(call->store) + n_gone);
    change->n_full = (uint32_t)n - change->n_inserted;
    change->n_filtered = call->report->n_filtered;
    change->n_evicted = (uint32_t)n_gone;
    return EMBD_OK;
}

static int look(struct store *store, struct store_change *change, struct embd__error *e)
{
    struct store_change insert = {
        .kind = STORE_INSERT, .in = change->in, .seconds = change->seconds};
    insert.in.weights = insert.in.scores = NULL;
    e->status = EMBD_OK;
    int status = device_use(store->device);
    if (status != 0)
        return cuda_error(store, status, "planning a request", e);
    cuda_wait_all(store);
    if (store->failed)
        return embd__error_set(e, EMBD_INTERNAL, "%s", store->why);
    struct call *call = call_new(store);
    if (call == NULL)
        return cuda_error(store, DEVICE_NO_MEMORY, "for a plan", e);
    call->kind = CALL_INSERT;
    call->change = &insert;
    status = push_start(call);
    int ended = device_stream_wait(store->stream);
    if (status == 0)
        status = ended;
    if (status != 0)
        cuda_error(store, status, "planning a request", e);
    else
        decide(call, change, e);
    call_free(call);
    return e->status;
}

/* Keys are looked at only where it is not certain otherwise that they fit. */
static int prepare_outcome(struct store *store, struct store_change *change, struct embd__error *e)
{
    uint32_t n = change->in.n_keys;
    bool may_drop = store_may_drop(change);
    if ((may_drop || fits_anyway(store, n)) &&
        cuda_reserve(store, n, may_drop, e) != EMBD_NO_MEMORY)
        return e->status;
    return look(store, change, e);
}

/* If there is no memory for all keys, reserves for those that need it. A bounded table drops
 * none. */
static int reserve_memory(struct store *store, struct store_change *change, struct embd__error *e)
{
    uint32_t n = change->in.n_keys;
    uint64_t others = store->n_promised - change->ticket.n_keys;
    bool may_drop = store_may_drop(change) && store->room == UINT64_MAX;
    struct embd__error uncounted;
    if (cuda_reserve(store, others + n, may_drop, e) == EMBD_NO_MEMORY && n > 0 &&
        look(store, change, &uncounted) == EMBD_OK) {
        e->status = EMBD_OK;
        cuda_reserve(store, others + change->n_inserted + change->n_filtered, may_drop, e);
    }
    if (e->status != EMBD_OK)
        return e->status;
    change->ticket.n_keys = n;
    store->n_promised = others + n;
    return EMBD_OK;
}

static int prepare_memory(struct store *store, struct store_change *change, struct embd__error *e)
{
    change->needed = 0;
    cuda_bound(store, change->is_bounded && change->in.n_keys > 0 ? change->room : UINT64_MAX);
    reserve_memory(store, change, e);
    if (!cuda_unbound(store, change) || e->status != EMBD_NO_MEMORY)
        return e->status;
    e->status = EMBD_OK;
    return embd__error_set(e, EMBD_FULL, "table %s: no room for %u keys", store->schema->s.name,
                           change->in.n_keys);
}

int cuda_prepare(struct store *store, struct store_change *change, enum store_prepare what,
                 struct embd__error *e)
{
    e->status = EMBD_OK;
    change->n_inserted = change->n_full = change->n_filtered = change->n_evicted = 0;
    if (what == STORE_PREPARE_KEYS)
        return EMBD_OK;
    if (store->failed)
        return embd__error_set(e, EMBD_INTERNAL, "%s", store->why);
    return what == STORE_PREPARE_OUTCOME ? prepare_outcome(store, change, e)
                                         : prepare_memory(store, change, e);
}
