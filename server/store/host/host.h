/* host.h - one table of one shard in the memory of this machine: what the files of this folder
 * share.
 *
 *   memory   huge pages and heap
 *   index    key -> row number
 *   rows     row number -> record
 *   walk     a request's keys -> records, with many cache misses at a time
 *   pull     records -> the answer
 *   merge    a request's keys -> distinct keys, their occurrences and what the index says of them
 *   evict    which rows go where there is no room
 *   victims  the lowest of many rows
 *   shortlist the rows that go next, found before they must
 *   doomed   rows that went and are still there
 *   create   rows for keys that have none: admission, capacity, all or nothing
 *   push     gradients -> one optimizer step of each distinct key
 *   marks    which rows a request names
 *   sweep    a step of all rows it does not name, where the table wants that
 *   erase    keys forgotten
 *   scan     copies out and in
 *   frozen   copies of what changes while a cut is read
 *   changes  which rows changed since earlier cuts
 *
 * Owner: the shard's thread. All calls complete before they return. */
#ifndef EMBD_HOST_HOST_H
#define EMBD_HOST_HOST_H

#include "server/store/host/changes.h"
#include "server/store/host/doomed.h"
#include "server/store/host/frozen.h"
#include "server/store/host/index.h"
#include "server/store/initializer.h"
#include "server/store/host/marks.h"
#include "server/store/host/merge.h"
#include "server/store/optimizer.h"
#include "server/store/host/rows.h"
#include "server/store/host/shortlist.h"
#include "server/store/store.h"
#include "server/store/host/victims.h"

/* What a request that may create rows does to its distinct keys. */
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
    uint32_t optimizer_floats;   /* the first of them; stamps follow */
    bool is_global;              /* pushes step all rows */
    bool evicts;                 /* on_full is an evict policy */
    uint32_t use_at;             /* of state floats: where a row's use stands, evict only */
    uint64_t none_expire_before; /* ttl: no row can have expired before the table's step is that */
    uint64_t n_evicted;
    struct index index;
    struct rows rows;
    uint64_t n_candidates;
    uint64_t step; /* pushes so far */
    struct initializer initializer;
    float *slot_bounds; /* [slots], uniform_slot only */
    struct merge merge;
    struct created prepared; /* of host_prepare's keys, which are those of store->merge */
    struct marks marks;      /* is_global, and evict */
    struct shortlist shortlist;
    struct doomed doomed;
    struct frozen frozen;
    struct changes changes;
};

/* The first value of a key's row, rounded to the table's dtype, as f32 and as stored. */
void host_first_value(const struct store *store, uint64_t key, uint32_t slot, float *value);

static inline float *host_state(const struct store *store, uint8_t *record)
{
    return (float *)(void *)(record + store->state_at);
}

/* ---- walk ---- */

#define WALK_BLOCK  16u
#define WALK_BLOCKS 4u

struct walk_block {
    uint32_t n; /* keys; less than WALK_BLOCK in the last block, then 0 */
    uint64_t hash[WALK_BLOCK];
    uint32_t slot[WALK_BLOCK];
    uint32_t ref[WALK_BLOCK];
    const uint8_t *record[WALK_BLOCK]; /* NULL: the key has no row */
};

/* Goes through keys begin .. end of a request in blocks. While the caller uses one block, the
 * records of the next are on their way to the cache, of the one after the second buckets, and of
 * the one after that the first. The stages take turns key by key: a core keeps few misses in
 * flight, and asking for a block at once would stall. */
struct walk {
    const struct store *store;
    const struct store_keys *in;
    uint32_t hashed, end; /* next key to be hashed, key to end before */
    uint32_t row;         /* of key `hashed`; slot tables with offsets only */
    uint32_t block;       /* to be used next */
    struct walk_block blocks[WALK_BLOCKS];
};

void walk_begin(struct walk *walk, const struct store *store, const struct store_keys *in,
                uint32_t begin, uint32_t end);
/* The next block of keys, or NULL after the last. Valid until the next call. */
const struct walk_block *walk_next(struct walk *walk);

/* ---- create ---- */

/* What will be done to the keys of store->merge, and memory for it; `may_drop`: statuses are
 * wanted. Nothing shows yet. Errors as for store_push. */
int create_reserve(struct store *store, bool may_drop, struct created *created,
                   struct embd__error *e);
/* Does it, before any other call: rows, at their first value, for those that have none and may have
 * one now. Afterwards `ref` of a distinct key is its row + 1, or 0 where it has none. statuses as
 * for store_push. */
void create_rows(struct store *store, const struct store_keys *in, uint8_t *statuses,
                 const struct created *created);

/* Of all occurrences of a key. */
void host_set_statuses(const struct merge *merge, const struct distinct *d, uint8_t *statuses,
                       embd_key_status status);

/* ---- evict ---- */

/* Finds rows to be taken from keys that are not in store->merge, as many as are missing or more, or
 * all that may go. Changes nothing that shows. Out of memory: false. */
bool evict_choose(struct store *store, uint64_t missing, uint64_t *n_out);
/* The n rows just found are taken. */
void evict_rows(struct store *store, uint64_t n);

/* The rows of store->merge have been pushed, at store->step. */
void evict_note_use(struct store *store);

/* The parts of a row's rank that lie in its record. */
struct row_use {
    uint64_t count, stamp;
};
struct row_use host_use(const struct store *store, uint32_t row);
struct victim host_victim(const struct index_entry *entry, struct row_use use);

/* Rows that keys have. */
static inline uint64_t host_rows(const struct store *store)
{
    return rows_used(&store->rows) - store->doomed.n_left;
}

/* Visits all keys that have rows, doomed ones too, in the segment of the index that has `hash`, the
 * rows' uses being on their way to the cache. Returns the first hash of the segment behind, 0 after
 * the last. */
typedef void host_visit(struct store *store, const struct index_entry *entry, void *arg);
uint64_t host_visit_segment(struct store *store, uint64_t hash, host_visit *visit, void *arg);

/* ---- sweep ---- */

/* After the keys were merged, before anything changes. Out of memory: false. */
bool sweep_reserve(struct store *store);
/* A step with gradient 0 of every row that is not in store->merge. */
void sweep_others(struct store *store, const struct optimizer_step *step);

/* ---- the calls of store_ops ---- */

void host_pull(struct store *store, struct store_pull *pull, struct store_done *done);
void host_push(struct store *store, struct store_push *push, struct store_done *done);
int host_reserve(struct store *store, uint64_t n, bool may_drop, struct embd__error *e);
int host_prepare(struct store *store, struct store_plan *plan, struct embd__error *e);
void host_foresee(struct store *store, const struct store_keys *in, uint64_t number);
void host_unforesee(struct store *store, uint64_t number);
void host_insert(struct store *store, struct store_insert *insert, struct store_done *done);
int host_scan(struct store *store, uint64_t *cursor, uint32_t max_rows, struct store_scan *out,
              struct embd__error *e);
int host_load(struct store *store, const struct row_block *block, struct embd__error *e);
int host_erase(struct store *store, struct store_erase *erase, struct embd__error *e);

int host_freeze(struct store *store, struct store_cut *cut, struct embd__error *e);
int host_scan_frozen(struct store *store, uint32_t max_rows, struct store_scan *out, bool *done_out,
                     struct embd__error *e);
void host_thaw(struct store *store);

/* Behind what is there in a scan's arrays. */
void host_copy_row(struct store *store, uint64_t key, uint32_t slot, uint8_t *record,
                   struct store_scan *out);
void host_copy_candidate(const struct store *store, uint64_t key, uint32_t slot, uint32_t count,
                         struct store_scan *out);

/* Rows the table may still get: its capacity where that is a bound, and what the index can number.
 */
uint64_t host_room(const struct store *store);

#endif
