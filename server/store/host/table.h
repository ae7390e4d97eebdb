/* table.h - one table of one shard in the memory of this machine: its struct, and what the files of
 * this folder share. From the bottom up:
 *
 *   memory          huge pages and heap
 *   rows            row number -> record; sets of rows
 *   index           key -> row number
 *   merge           a request's keys -> distinct keys, their occurrences and their index entries
 *   values          what a record holds: a first value, copies out
 *   cow             copies of what changes while a cut is read; what changed since earlier cuts
 *   eviction_queue  the rows to evict next, found before room runs out
 *   evict           which rows go where room is missing, and their removal bit by bit
 *   candidates      keys that wait for a row are forgotten
 *   keys            keys get rows (admission, capacity, all or nothing) and lose them
 *   push            gradients -> one optimizer step of each distinct key
 *   late            pushes of many keys, in slices
 *   sweep           the step of all other rows, in slices
 *   shrink          rows go where the capacity is set below them, in slices
 *   pull            records -> the answer
 *   scan            copies out and in
 *   frozen          copies out of a cut
 *   list            which keys have rows
 *   host            the table of functions
 *
 * Owner: the shard's thread. All calls complete before they return; what a push that steps all rows
 * leaves to do shows in no call. */
#ifndef EMBD_HOST_TABLE_H
#define EMBD_HOST_TABLE_H

#include "server/store/host/cow.h"
#include "server/store/host/evict.h"
#include "server/store/host/index.h"
#include "server/store/host/merge.h"
#include "server/store/host/rows.h"
#include "server/store/host/sweep.h"
#include "proto/initializer.h"
#include "server/store/optimizer.h"
#include "server/store/slice.h"
#include "server/store/store.h"

/* The decisions of a request that may create rows, by distinct key. */
struct created {
    uint32_t n_inserted, n_full, n_filtered, n_evicted;
};

struct store {
    const struct table_schema *schema; /* the caller's */
    uint32_t dim;
    embd_dtype dtype;
    uint32_t value_bytes; /* of a row, without padding */
    uint32_t state_at;    /* where the state starts in a record */
    uint32_t state_floats;
    uint32_t optimizer_floats; /* the first of them; stamps follow */
    uint32_t master_at;        /* of state floats: has_master */
    /* The features that the table uses; their code runs only for such tables. */
    bool is_global;      /* pushes step all rows */
    bool is_wholerow;    /* steps need the whole row: wholerow.c */
    bool has_master;     /* rows are rounded from master values in their state */
    bool evicts;         /* on_full is an evict policy */
    uint64_t bound;      /* of its rows, when the schema was last looked at */
    bool has_candidates; /* admits keys after several sights, did, or was loaded with such keys */

    struct index index;
    struct rows rows;
    uint64_t step;       /* pushes so far */
    bool is_timed;       /* rows expire by seconds: */
    uint64_t clock, now; /* store_stats.clock; that of the request at hand */
    struct initializer initializer;
    float *slot_bounds; /* [slots], uniform_slot only */
    struct merge merge;
    /* Tickets. The keys of store->merge are those of merge.ticket. */
    uint64_t n_promised;    /* keys that tickets keep memory for */
    bool is_decided;        /* what happens to the keys of merge.ticket: */
    struct created decided; /* this */

    uint64_t n_candidates;
    uint32_t generation;  /* of the candidates: INDEX_GENERATION or 0; others are forgotten */
    bool forgets;         /* the request at hand forgets all of them first */
    bool is_swept;        /* entries of forgotten ones may be left, */
    uint64_t sweep_at;    /* from this address on */
    struct row_set named; /* rows of the request at hand; is_global, and evicts */

    /* evicts only */
    uint32_t use_at; /* of state floats: where a row's use stands */
    struct use_rule use_rule;
    uint64_t none_expire_before; /* ttl: no row can have expired before the table's step is that */
    uint64_t n_evicted, n_forgotten; /* rows; candidates */
    struct eviction_queue queue;
    struct pending_removal pending;

    struct sweep sweep;    /* is_global */
    struct late *late;     /* a push that is applied in slices: late.c; NULL: none is */
    struct shrink *shrink; /* while rows go: shrink.c; NULL: none do */
    struct cow cow;
    struct changes changes;
};

static inline float *host_state(const struct store *store, uint8_t *record)
{
    return (float *)(void *)(record + store->state_at);
}

/* The number that stands for the time of a row's use. */
static inline uint64_t host_use_time(const struct store *store)
{
    return store->is_timed ? store->now : store->step;
}

static inline uint64_t host_lifetime(const struct store *store)
{
    const embd_schema *s = &store->schema->s;
    return store->is_timed ? s->ttl_seconds : s->ttl;
}

/* Rows that keys have. */
static inline uint64_t host_rows(const struct store *store)
{
    return rows_used(&store->rows) - store->pending.n_left;
}

/* Rows the table may still get: its capacity where that is a bound, and what the index can number.
 */
static inline uint64_t host_room(const struct store *store)
{
    const embd_schema *s = &store->schema->s;
    uint64_t most = INDEX_ROWS_MAX;
    if (s->on_full != EMBD_ON_FULL_GROW && s->capacity != 0 && s->capacity < most)
        most = s->capacity;
    uint64_t used = host_rows(store);
    return most > used ? most - used : 0;
}

/* Of a bounded table, numbers of rows are below this, also after its capacity was lowered. */
static inline uint64_t host_row_numbers(const struct store *store)
{
    uint64_t capacity = store->schema->s.capacity;
    return capacity > store->rows.n ? capacity : store->rows.n;
}

/* ---- values ---- */

/* The bounds of a table whose initializer is uniform_slot. Out of memory: false. */
bool values_open(struct store *store);
void values_close(struct store *store);
uint64_t values_bytes(const struct store *store);

/* The first value of a key's row, rounded to the table's dtype, as f32 and as stored. */
void values_first(const struct store *store, uint64_t key, uint32_t slot, float *value);
/* Sets all of a new row's record. */
void values_begin(const struct store *store, uint64_t key, uint32_t slot, uint8_t *record);

/* The end of the used part of a scan's arrays. */
void values_copy_row(const struct store *store, uint64_t key, uint32_t slot, uint8_t *record,
                     struct store_scan *out);
void values_copy_candidate(const struct store *store, uint64_t key, uint32_t slot, uint32_t count,
                           struct store_scan *out);

/* ---- candidates ---- */

/* A candidate that was forgotten. */
static inline bool host_is_stale(const struct store *store, uint32_t ref)
{
    return (ref & INDEX_CANDIDATE) != 0 && (ref & INDEX_GENERATION) != store->generation;
}

/* The entry's content, or 0 if that is forgotten, or about to be. */
static inline uint32_t host_known(const struct store *store, uint32_t ref)
{
    if (index_has_row(ref) || ref == 0)
        return ref;
    return store->forgets || host_is_stale(store, ref) ? 0 : ref;
}

/* With admit_after: decides whether the request of store->merge forgets all candidates. */
void candidates_decide(struct store *store);
/* It does. */
void candidates_forget(struct store *store);
/* Removes entries of forgotten ones, in step with the new ones. */
void candidates_sweep(struct store *store);

/* ---- keys ---- */

/* Memory for n more rows and keys, as far as there is capacity. EMBD_NO_MEMORY. */
int keys_reserve_more(struct store *store, uint64_t n, struct embd__error *e);
/* Bytes that so many rows, as far as there is capacity, and new keys would add. */
uint64_t keys_growth(const struct store *store, uint64_t n_rows, uint64_t n_keys);
/* How many the keys of store->merge will be of either. */
void keys_count(struct store *store, uint32_t *n_rows_out, uint32_t *n_keys_out);
/* Decides what happens to the keys of store->merge, and takes memory for it; `may_drop`: as
 * store_may_drop. Nothing shows yet. EMBD_FULL, EMBD_NO_MEMORY. */
int keys_reserve(struct store *store, bool may_drop, struct created *created,
                 struct embd__error *e);
/* Does it, before any other call: rows, at their first value, for those that have none and may have
 * one now. Afterwards `ref` of a distinct key is its row + 1, or 0 where it has none. statuses as
 * for store_change. */
void keys_create(struct store *store, const struct store_keys *in, uint8_t *statuses,
                 const struct created *created);
/* The same in several steps, of distinct keys begin .. end. */
void keys_begin_create(struct store *store, const struct store_keys *in, uint8_t *statuses,
                       const struct created *created);
void keys_create_some(struct store *store, const struct store_keys *in, uint8_t *statuses,
                      uint32_t begin, uint32_t end);
void keys_end_create(struct store *store);

/* ---- steps ---- */

/* is_global: memory that steps of the rows of store->merge, and of all others, need. Out of memory:
 * false. */
bool sweep_reserve(struct store *store);
/* Each key of store->merge that has a row takes its step; where pushes step all rows, the others
 * begin to (sweep.h). */
void steps_apply(struct store *store, const struct store_change *push);
/* The same in several steps, of distinct keys begin .. end; neither is_global nor `evicts`. */
void steps_begin(struct store *store);
void steps_some(struct store *store, const struct store_change *push, uint32_t begin, uint32_t end);

/* ---- tickets ---- */

/* Decides what happens to the keys, and takes all that the change may fail of. EMBD_FULL,
 * EMBD_NO_MEMORY. */
int tickets_decide(struct store *store, const struct store_change *change, struct embd__error *e);
/* The keys of store->merge are this ticket's. */
void tickets_give_number(struct store *store, struct store_ticket *ticket);
void tickets_set_counts(struct store_change *change, const struct created *created);
uint64_t tickets_clock(const struct store *store, const struct store_change *change);
bool tickets_is_merged(const struct store *store, const struct store_ticket *ticket);

/* Bytes that are not rows; and these with all rows that were ever taken. */
static inline uint64_t host_overhead_bytes(const struct store *store)
{
    uint64_t bytes = sizeof *store + index_bytes(&store->index) + merge_bytes(&store->merge) +
                     rows_overhead_bytes(&store->rows) + row_set_bytes(&store->named) +
                     eviction_queue_bytes(&store->queue) + pending_bytes(&store->pending);
    bytes += store->changes.n > 0 ? changes_bytes(&store->changes) : 0;
    bytes += store->slot_bounds != NULL ? values_bytes(store) : 0;
    return bytes + (store->cow.is_on ? cow_bytes(store) : 0);
}

static inline uint64_t host_memory_bytes(const struct store *store)
{
    return store->rows.n * store->rows.stride + host_overhead_bytes(store);
}

/* ---- pushes of many keys ---- */

/* Columns of a slice that a key costs, and how many slices a push takes that is worth dividing. */
#define LATE_COLUMNS      16u
#define LATE_LEAST_SLICES 16u

/* Whether such a push is divided. */
static inline bool late_takes(const struct store *store, const struct store_change *change)
{
    return change->kind == STORE_PUSH &&
           change->in.n_keys / LATE_LEAST_SLICES > store_slice / LATE_COLUMNS && !store->evicts &&
           !store->is_global && !store->cow.is_on && store->late == NULL;
}

/* Begins it; its done is called by the last slice. Out of memory: false. */
bool late_begin(struct store *store, struct store_change *change, struct store_done *done);
/* A slice of it; behind the last one, its done. Whether there is more to do. */
bool late_collect(struct store *store);
/* Whether it has that ticket. The rest of it is done, and its status returned: its done is not
 * called. */
bool late_is_of(const struct store *store, const struct store_ticket *ticket);
int late_cancel(struct store *store);
/* Bytes that the table takes when it has ended; 0: there is none, or its keys are not counted. */
uint64_t late_memory_bytes(const struct store *store);
/* All slices that are left, as whoever reads or changes the table needs it; not its done. */
void late_finish(struct store *store);

static inline void host_end_late(struct store *store)
{
    if (store->late != NULL)
        late_finish(store);
}

/* All rows have stepped, as a change of them needs it. */
static inline void host_end_sweep(struct store *store)
{
    while (store->sweep.phase != SWEEP_NONE)
        sweep_go_on(store);
}

/* One step of one row, f32 [dim]. */
struct wholerow_step;
void wholerow_apply(const struct wholerow_step *p, float *w, float *state, const float *g);

/* ---- the calls of store_ops ---- */

void host_pull(struct store *store, struct store_pull *pull, struct store_done *done);
int host_prepare(struct store *store, struct store_change *change, enum store_prepare what,
                 struct embd__error *e);
void host_apply(struct store *store, struct store_change *change, struct store_done *done);
void host_cancel(struct store *store, struct store_ticket *ticket);
int host_scan(struct store *store, uint64_t *cursor, uint32_t max_rows, struct store_scan *out,
              struct embd__error *e);
int host_list(struct store *store, uint64_t *cursor, uint32_t max_keys, struct store_scan *out,
              struct embd__error *e);
int host_read(struct store *store, const struct store_read *read, struct embd__error *e);
int host_load(struct store *store, const struct row_block *block, struct embd__error *e);
int host_erase(struct store *store, struct store_erase *erase, struct embd__error *e);

int host_shrink(struct store *store, struct store_shrink *shrink, struct embd__error *e);
void host_end_shrink(struct store *store);

int host_freeze(struct store *store, struct store_cut *cut, struct embd__error *e);
void host_forget(struct store *store, uint64_t cut);
int host_scan_frozen(struct store *store, uint32_t max_rows, struct store_scan *out, bool *done_out,
                     struct embd__error *e);
void host_thaw(struct store *store);

#endif
