/* cuda_store.h - one table of one shard in the memory of one GPU.
 *
 *   device       memory, streams and events of the device
 *   kernels/     the table as kernels see it, and their launchers
 *   memory       arenas; pinned memory for frames and answers
 *   table        the table's failure, its bound, memory for rows and entries (this header)
 *   call         one call: its memory, and its arrays' way to the device
 *   lent         memory of GPUs that other processes lend
 *   imports      as this process has it open
 *   queue        the calls, from submission to done
 *   pull         enqueues pulls
 *   insert_plan  counts what a request creates, then creates its rows and entries
 *   push         enqueues pushes and inserts
 *   lookup       what pulls found, kept for the pushes of the same keys
 *   batch_push   small pushes that go in one launch
 *   prepare      decides what a push or insert would be refused for, before it is made
 *   compact      removes rows; the last rows take their places
 *   evict        removes rows to make room
 *   erase        removes keys
 *   change_sets  rows that changed since the last cuts
 *   frozen       the table as it was at one moment, while calls change it
 *   cut          reads a frozen table
 *   scan, load   copy rows out and in
 *   cuda_store   opens and closes; the table of store.h's functions
 *
 * Calls take effect in the order made, because one stream runs them. Most pulls are enqueued at
 * once; small ones wait while the device has enough to do, and then go together in one launch.
 * The device first counts what a push or insert creates; the host then makes room and enqueues
 * the rest. Calls behind it wait in the queue meanwhile. A push whose keys probably all have rows
 * is enqueued as a whole, and the device skips its step if they have not, or if a gradient is not
 * finite. Small pushes go together, in one step where there is room. The host waits for the device
 * only in scan, load, erase, cancel, and a prepare that has to look keys up.
 *
 * Of a call in lent memory that has a set of keys (kernels/own.cuh) the others stay in their
 * places, as keys that were dropped: nobody counts them.
 *
 * Owner: the shard's thread. */
#ifndef EMBD_CUDA_CUDA_STORE_H
#define EMBD_CUDA_CUDA_STORE_H

#include "server/store/cuda/change_sets.h"
#include "server/store/cuda/device.h"
#include "server/store/cuda/frozen.h"
#include "server/store/cuda/kernels/kernels.h"
#include "server/store/cuda/lookup.h"
#include "server/store/store.h"

/* Beyond WINDOW_BYTES of rows touched at random, address translation takes most of the device's
 * time: a pull of WINDOW_KEYS keys or more then reads the rows window by window. */
#define WINDOW_BYTES ((uint64_t)64 << 30)
#define WINDOW_KEYS  ((uint32_t)1 << 17)

/* The first piece of a large pull that is told of while the rest is made; each further one is twice
 * as large. A device makes rows some five times as fast as a socket takes them: so the socket waits
 * for the first alone, and few launches are added. */
#define PIECE_BYTES ((uint64_t)512 << 10)

struct call;

struct store {
    const struct table_schema *schema; /* the caller's */
    int device;
    void *stream;
    struct table_view view;
    struct device_range values, states, row_keys, row_slots;
    void *slot_memory; /* slot_bounds and slot_starts */
    uint64_t n_rows, n_candidates, capacity, step;
    uint64_t n_entries_max;          /* used entries at the load limit */
    uint64_t n_tombstones;           /* entries removed since the last rehash */
    bool is_global;                  /* pushes step all rows */
    bool is_wholerow;                /* steps need the whole row: kernels/wholerow.cu */
    bool evicts;                     /* on_full is an evict policy */
    bool is_timed;                   /* rows expire by seconds: */
    uint64_t clock, now;             /* store_stats.clock; that of the call at hand */
    uint64_t bound;                  /* of its rows, when the schema was last looked at */
    uint64_t none_expire_before;     /* ttl: no row expires before the table's step is that */
    uint64_t n_evicted, n_forgotten; /* rows; candidates */
    uint64_t n_promised;             /* keys that tickets keep memory for */
    /* While a prepare that is bounded grows the table: bytes left to it, else UINT64_MAX; what it
     * would have needed where they were too few, else 0. */
    uint64_t room, needed;
    uint64_t window_bytes; /* WINDOW_BYTES; tests make it small */
    uint32_t window_keys;  /* WINDOW_KEYS; likewise */
    uint64_t piece_bytes;  /* PIECE_BYTES; likewise */
    struct lookups lookups;
    uint32_t lookup_keys_min; /* LOOKUP_KEYS_MIN; likewise */
    struct change_sets changes;
    struct frozen frozen;
    bool misses;                       /* the last push had keys without a row */
    bool all_new;                      /* the last push or insert had no others, each once */
    uint64_t n_expected, n_unexpected; /* calls whose keys were expected to be; and were not */
    uint64_t n_whole;                  /* pushes that had no way back to the host */
    uint64_t n_unreported;             /* steps of pushes whose done was not called yet */
    void *batch_block;                 /* device memory of batch_push, of batch_bytes bytes */
    uint64_t batch_bytes;
    bool is_member;            /* of a group: n_rows_max bounds its rows, not the schema */
    uint64_t n_rows_max;       /* for now */
    struct call *first, *last; /* the queue */
    struct call *spare;        /* ended calls, for reuse */
    bool failed;               /* for good: `why` is the answer to every call */
    char why[200];
};

/* Bits of the refs of n rows. */
static inline int ref_bits(uint64_t n_rows)
{
    int bits = 1;
    while (n_rows >> bits)
        bits++;
    return bits;
}

/* ---- table.c ---- */

/* Sets the error of a device's status, which is not 0: EMBD_NO_MEMORY, or EMBD_INTERNAL, after
 * which the store has failed for good. Returns e->status. */
int cuda_error(struct store *store, int device_status, const char *what, struct embd__error *e);
/* A push or insert of that time begins. */
static inline void cuda_set_now(struct store *store, uint64_t seconds)
{
    store->now = store->is_timed && seconds > store->clock ? seconds : store->clock;
}

/* How the table records the use of its rows. Only where it evicts. */
struct use_view cuda_use(const struct store *store);
/* Rows that the table may still get, within its capacity and the range of refs. */
uint64_t cuda_room(const struct store *store);
/* Device memory of a call. Lookups make room for it. 0 or a device's status. */
int cuda_new(struct store *store, void **memory_out, uint64_t bytes);
/* Memory for n rows, entries for n keys, in all. DEVICE_NO_MEMORY: nothing changed. */
int grow_rows(struct store *store, uint64_t n);
int grow_entries(struct store *store, uint64_t n);
/* Memory for n_rows more rows and entries for n more keys, also while calls are under way. The
 * device is in use. */
int grow_by(struct store *store, uint64_t n_rows, uint64_t n);
/* Until cuda_unbound growing takes no more than a bounded change has room for. */
void cuda_bound(struct store *store, uint64_t room);
/* True: it would have. */
bool cuda_unbound(struct store *store, struct store_change *change);
/* Memory for n more rows and keys, as far as there is capacity. `may_drop`: it may lack. */
int cuda_reserve(struct store *store, uint64_t n, bool may_drop, struct embd__error *e);

/* ---- functions of store_ops, which the nccl store calls for its members ---- */

int cuda_open_on(const struct table_schema *schema, int device, struct store **out,
                 struct embd__error *e);
void cuda_close(struct store *store);
void cuda_alter(struct store *store);

int cuda_prepare(struct store *store, struct store_change *change, enum store_prepare what,
                 struct embd__error *e);
int cuda_list(struct store *store, uint64_t *cursor, uint32_t max_keys, struct store_scan *out,
              struct embd__error *e);
int cuda_scan(struct store *store, uint64_t *cursor, uint32_t max_rows, struct store_scan *out,
              struct embd__error *e);
int cuda_read(struct store *store, const struct store_read *read, struct embd__error *e);
int cuda_load(struct store *store, const struct row_block *block, struct embd__error *e);
int cuda_erase(struct store *store, struct store_erase *erase, struct embd__error *e);

#endif
