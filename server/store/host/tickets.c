/* tickets.c - pushes and inserts from their preparation to their end.
 *
 * A ticket keeps memory, or the merged keys and what was decided of them, for a change to come.
 * Applying the change uses the ticket up: keys that have no row get one, then each distinct key
 * takes its step (push.c). All that can fail is decided before. */
#include "server/store/host/table.h"

#include "server/store/contract.h"

/* The keys of store->merge are the ticket's. */
bool tickets_is_merged(const struct store *store, const struct store_ticket *ticket)
{
    return ticket->number != 0 && ticket->number == store->merge.ticket;
}

/* For all tables of a thread: a ticket that outlives its table finds nothing in the next one. */
static _Thread_local uint64_t n_tickets;

void tickets_give_number(struct store *store, struct store_ticket *ticket)
{
    ticket->number = store->merge.ticket = ++n_tickets;
}

/* The table's clock when the change has come. */
uint64_t tickets_clock(const struct store *store, const struct store_change *change)
{
    return store->is_timed && change->seconds > store->clock ? change->seconds : store->clock;
}

int tickets_decide(struct store *store, const struct store_change *change, struct embd__error *e)
{
    e->status = EMBD_OK;
    store->now = tickets_clock(store, change);
    if (tickets_is_merged(store, &change->ticket) ||
        merge_keys(&store->merge, &change->in, &store->index)) {
        if (store->evicts)
            pending_remove_merged(store);
        if (store->cow.is_on)
            cow_keep_merged(store);
        if (change->kind == STORE_INSERT || !store->is_global || sweep_reserve(store))
            return keys_reserve(store, store_may_drop(change), &store->decided, e);
    }
    return embd__error_set(e, EMBD_NO_MEMORY, "table %s: no memory to merge %u keys",
                           store->schema->s.name, change->in.n_keys);
}

void tickets_set_counts(struct store_change *change, const struct created *created)
{
    change->n_inserted = created->n_inserted;
    change->n_full = created->n_full;
    change->n_filtered = created->n_filtered;
    change->n_evicted = created->n_evicted;
}

/* Unless a change that comes before waits for the keys that are merged. */
static void prepare_keys(struct store *store, struct store_change *change)
{
    if (store->merge.ticket != 0 || !merge_keys(&store->merge, &change->in, &store->index))
        return;
    tickets_give_number(store, &change->ticket);
    store->is_decided = false;
}

static int prepare_outcome(struct store *store, struct store_change *change, struct embd__error *e)
{
    if (tickets_decide(store, change, e) != EMBD_OK) {
        merge_forget(&store->merge);
        merge_end(&store->merge);
        return e->status;
    }
    tickets_give_number(store, &change->ticket);
    store->is_decided = true;
    tickets_set_counts(change, &store->decided);
    return EMBD_OK;
}

/* More than n keys can add, made without looking at the index. */
static uint64_t most_growth(const struct store *store, uint64_t n)
{
    return n * store->rows.stride + (n / 4096 + 4) * MEMORY_HUGE_PAGE;
}

/* `others`: what other tickets keep memory for. */
static bool has_room(const struct store *store, struct store_change *change, uint64_t others,
                     uint64_t n_rows, uint64_t n_keys)
{
    if (most_growth(store, others + (n_rows > n_keys ? n_rows : n_keys)) <= change->room)
        return true;
    change->needed = keys_growth(store, others + n_rows, others + n_keys);
    return change->needed <= change->room;
}

/* There is no room for all keys: takes memory for those that need it. */
static int prepare_counted(struct store *store, struct store_change *change, uint64_t others,
                           struct embd__error *e)
{
    uint32_t n_rows, n_keys;
    if (!tickets_is_merged(store, &change->ticket)) {
        if (!merge_keys(&store->merge, &change->in, &store->index))
            return embd__error_set(e, EMBD_NO_MEMORY, "table %s: no memory to merge %u keys",
                                   store->schema->s.name, change->in.n_keys);
        tickets_give_number(store, &change->ticket);
        store->is_decided = false;
    }
    if (store->evicts)
        pending_remove_merged(store);
    keys_count(store, &n_rows, &n_keys);
    if (n_rows + n_keys > 0 && !has_room(store, change, others, n_rows, n_keys)) {
        merge_forget(&store->merge);
        merge_end(&store->merge);
        return embd__error_set(e, EMBD_FULL, "table %s: no room for %u rows and %u keys",
                               store->schema->s.name, n_rows, n_keys);
    }
    uint64_t n = n_rows > n_keys ? n_rows : n_keys;
    if (keys_reserve_more(store, others + n, e) != EMBD_OK)
        return e->status;
    change->ticket.n_keys = n;
    store->n_promised = others + n;
    return EMBD_OK;
}

/* If there is no memory for all keys, reserves for those that need it. */
static int prepare_memory(struct store *store, struct store_change *change, struct embd__error *e)
{
    uint64_t others = store->n_promised - change->ticket.n_keys, n = change->in.n_keys;
    struct embd__error uncounted = {.status = EMBD_OK};
    if (change->is_bounded && !has_room(store, change, others, n, n))
        return prepare_counted(store, change, others, e);
    if (keys_reserve_more(store, others + change->in.n_keys, e) != EMBD_OK) {
        if (change->in.n_keys == 0 || prepare_outcome(store, change, &uncounted) != EMBD_OK)
            return e->status;
        e->status = EMBD_OK;
        if (keys_reserve_more(store, others + change->n_inserted + change->n_filtered, e) !=
            EMBD_OK)
            return e->status;
    }
    change->ticket.n_keys = change->in.n_keys;
    store->n_promised = others + change->in.n_keys;
    return EMBD_OK;
}

static int prepare_room(struct store *store, struct store_change *change, struct embd__error *e)
{
    uint64_t others = store->n_promised - change->ticket.n_keys, n = change->in.n_keys;
    if (!change->is_bounded || has_room(store, change, others, n, n))
        return EMBD_OK;
    return prepare_counted(store, change, others, e);
}

int host_prepare(struct store *store, struct store_change *change, enum store_prepare what,
                 struct embd__error *e)
{
    contract_keys(&change->in);
    change->n_inserted = change->n_full = change->n_filtered = change->n_evicted = 0;
    if (what != STORE_PREPARE_KEYS)
        host_end_sweep(store); /* rows that were evicted may be freed */
    if (what == STORE_PREPARE_OUTCOME)
        return prepare_outcome(store, change, e);
    if (what == STORE_PREPARE_MEMORY)
        return prepare_memory(store, change, e);
    if (what == STORE_PREPARE_ROOM)
        return prepare_room(store, change, e);
    prepare_keys(store, change);
    return EMBD_OK;
}

void host_cancel(struct store *store, struct store_ticket *ticket)
{
    if (tickets_is_merged(store, ticket))
        merge_forget(&store->merge);
    store->n_promised -= ticket->n_keys;
    *ticket = (struct store_ticket){0};
}

/* Fills the queue further; not in the request that evicted, which had enough to do. */
static void go_on_evicting(struct store *store, const struct created *created)
{
    if (store->evicts && created->n_evicted == 0)
        eviction_queue_go_on(store, created->n_inserted, store->merge.n);
}

void host_apply(struct store *store, struct store_change *change, struct store_done *done)
{
    int status = EMBD_OK;
    contract_change(change);
    host_end_sweep(store);
    if (!store->is_decided || !tickets_is_merged(store, &change->ticket))
        status = tickets_decide(store, change, &done->error);
    host_cancel(store, &change->ticket); /* it is used up */
    merge_forget(&store->merge);
    if (status == EMBD_OK) {
        store->clock = store->now = tickets_clock(store, change);
        keys_create(store, &change->in, change->statuses, &store->decided);
        if (change->kind == STORE_PUSH)
            steps_apply(store, change);
        go_on_evicting(store, &store->decided);
        tickets_set_counts(change, &store->decided);
    }
    merge_end(&store->merge);
    done->fn(done, status);
}
