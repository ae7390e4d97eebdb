/* late.c - a push of so many keys that others would wait for it is applied in slices.
 *
 * Its keys are merged and looked up, memory is claimed and taken, rows are made, and rows step,
 * some keys a slice, in the order in which they do at once: the table has the same bits. The call
 * ends with the last slice. Until then nobody may see half of it: who reads the table, or changes
 * it, does all that is left first. (The shard lets them wait.) Not divided are what is decided of
 * all keys together, and pushes to tables that evict, that step all rows, or that a cut is read of.
 * */
#include "server/store/host/table.h"

#include "server/store/contract.h"

#include "server/store/host/memory.h"
#include "server/store/slice.h"

enum late_phase {
    LATE_MERGE,
    LATE_COUNT,
    LATE_CLAIM,
    LATE_GROW,
    LATE_DECIDE,
    LATE_CREATE,
    LATE_STEP,
    LATE_DONE, /* collect calls its done */
};

struct late {
    enum late_phase phase;
    struct store_change *change; /* the caller's */
    struct store_done *done;     /* likewise */
    int status;                  /* that it ends with */
    struct merging merging;
    uint32_t at;           /* the next of the phase's */
    uint32_t n_new;        /* keys that the index has not heard of, and will get */
    uint64_t memory_bytes; /* of the table when it has ended; 0: not known */
};

static uint32_t keys_of_slice(void)
{
    uint64_t n = store_slice / LATE_COLUMNS / MERGE_BLOCK * MERGE_BLOCK;
    return n < MERGE_BLOCK ? MERGE_BLOCK : n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

bool late_begin(struct store *store, struct store_change *change, struct store_done *done)
{
    contract_change(change);
    host_end_sweep(store);
    bool is_merged = tickets_is_merged(store, &change->ticket);
    bool is_decided = is_merged && store->is_decided;
    struct late *late = memory_new(sizeof *late);
    if (late == NULL)
        return false;
    if (!is_merged && !merge_begin(&late->merging, &store->merge, &change->in, &store->index)) {
        memory_free(late, sizeof *late);
        return false;
    }
    late->change = change;
    late->done = done;
    late->phase = is_decided ? LATE_CREATE : is_merged ? LATE_CLAIM : LATE_MERGE;
    store->n_promised -= change->ticket.n_keys;
    change->ticket.n_keys = 0;
    if (!is_merged)
        tickets_give_number(store, &change->ticket);
    if (is_decided)
        late->memory_bytes = host_memory_bytes(store) +
                             keys_growth(store, store->decided.n_inserted,
                                         store->decided.n_inserted + store->decided.n_filtered);
    if (is_decided)
        keys_begin_create(store, &change->in, change->statuses, &store->decided);
    store->late = late;
    return true;
}

/* ---- phases ---- */

static void next(struct late *late)
{
    late->phase++;
    late->at = 0;
}

/* The next of n; with the last one the phase ends. */
static uint32_t end_of(const struct late *late, uint32_t n)
{
    return n - late->at > keys_of_slice() ? late->at + keys_of_slice() : n;
}

static void merge_slice(struct store *store)
{
    struct late *late = store->late;
    uint32_t n = late->change->in.n_keys, end = end_of(late, n);
    merge_some(&late->merging, end);
    late->at = end;
    if (end == n)
        next(late);
}

/* Keys without room get none. */
static uint32_t new_entries(const struct store *store, uint32_t n_new)
{
    uint64_t room = host_room(store);
    if (store->has_candidates || n_new <= room)
        return n_new;
    return store_may_drop(store->late->change) ? (uint32_t)room : 0;
}

static void count_slice(struct store *store)
{
    struct late *late = store->late;
    uint32_t end = end_of(late, store->merge.n);
    for (; late->at < end; late->at++)
        late->n_new += store->merge.distinct[late->at].ref == 0;
    if (end < store->merge.n)
        return;
    late->n_new = new_entries(store, late->n_new);
    next(late);
}

static void reserve_rows(struct store *store, uint64_t n)
{
    uint64_t room = host_room(store);
    rows_reserve(&store->rows, host_rows(store) + (n < room ? n : room));
}

static void end(struct store *store, int status)
{
    struct late *late = store->late;
    late->phase = LATE_DONE;
    late->status = status;
    if (status == EMBD_OK)
        tickets_set_counts(late->change, &store->decided);
    merge_forget(&store->merge);
    merge_end(&store->merge);
}

/* Others take memory between slices: all that it will take is asked for at once. */
static void claim(struct store *store)
{
    struct late *late = store->late;
    struct store_change *change = late->change;
    uint32_t n_rows = late->n_new, n_keys = late->n_new;
    if (change->claim != NULL)
        keys_count(store, &n_rows, &n_keys);
    uint64_t bytes = keys_growth(store, n_rows, n_keys);
    if (change->claim != NULL && !change->claim(change, bytes)) {
        end(store, EMBD_FULL);
        return;
    }
    late->memory_bytes = host_memory_bytes(store) + bytes;
    next(late);
}

/* Segments of the index grow until all keys have room but those that fall together: for these what
 * is decided then makes it. Without memory that says so. */
static void grow_slice(struct store *store)
{
    struct late *late = store->late;
    late->at = end_of(late, late->n_new);
    if (!store->has_candidates)
        reserve_rows(store, late->at);
    if (!index_reserve_more(&store->index, late->at) || late->at == late->n_new)
        next(late);
}

static void decide(struct store *store)
{
    struct late *late = store->late;
    struct store_change *change = late->change;
    if (tickets_decide(store, change, &late->done->error) != EMBD_OK) {
        end(store, late->done->error.status);
        return;
    }
    store->clock = store->now = tickets_clock(store, change);
    keys_begin_create(store, &change->in, change->statuses, &store->decided);
    next(late);
}

static void create_slice(struct store *store)
{
    struct late *late = store->late;
    const struct created *c = &store->decided;
    bool has_new = c->n_inserted + c->n_full + c->n_filtered > 0;
    uint32_t n = has_new ? store->merge.n : 0, last = end_of(late, n);
    keys_create_some(store, &late->change->in, late->change->statuses, late->at, last);
    late->at = last;
    if (last < n)
        return;
    keys_end_create(store);
    steps_begin(store);
    next(late);
}

static void step_slice(struct store *store)
{
    struct late *late = store->late;
    uint32_t n = store->merge.n, last = end_of(late, n);
    steps_some(store, late->change, late->at, last);
    late->at = last;
    if (last == n)
        end(store, EMBD_OK);
}

static void go_on(struct store *store)
{
    static void (*const slices[])(struct store *) = {
        [LATE_MERGE] = merge_slice, [LATE_COUNT] = count_slice, [LATE_CLAIM] = claim,
        [LATE_GROW] = grow_slice,   [LATE_DECIDE] = decide,     [LATE_CREATE] = create_slice,
        [LATE_STEP] = step_slice,
    };
    slices[store->late->phase](store);
}

void late_finish(struct store *store)
{
    while (store->late->phase != LATE_DONE)
        go_on(store);
}

uint64_t late_memory_bytes(const struct store *store)
{
    return store->late->memory_bytes;
}

/* ---- ends ---- */

static struct late take(struct store *store)
{
    struct late late = *store->late;
    memory_free(store->late, sizeof *store->late);
    store->late = NULL;
    late.change->ticket = (struct store_ticket){0};
    return late;
}

bool late_collect(struct store *store)
{
    if (store->late->phase != LATE_DONE)
        go_on(store);
    if (store->late->phase != LATE_DONE)
        return true;
    struct late late = take(store);
    late.done->fn(late.done, late.status);
    return store->late != NULL || store->sweep.phase != SWEEP_NONE;
}

bool late_is_of(const struct store *store, const struct store_ticket *ticket)
{
    return store->late != NULL && &store->late->change->ticket == ticket;
}

int late_cancel(struct store *store)
{
    late_finish(store);
    return take(store).status;
}
