/* cuda_store.h - one table of one shard in the memory of one GPU: what the C files of this folder
 * share.
 *
 *   device    memory, streams and events of the device
 *   kernels/  the table as kernels see it, and what they can do
 *   memory    arenas; pinned memory for frames and answers
 *   table     its failure, its bound, room for more rows and entries
 *   call      one call: its memory, and its arrays' way to the device
 *   queue     the calls, from the shard's call to its done
 *   pull      enqueues pulls
 *   insert_plan   what a request will create, then its rows and entries
 *   push      enqueues pushes and inserts
 *   batch_push    small pushes that go together
 *   prepare   what a push or insert would be refused for, before it is made
 *   compact   rows are removed; the last rows take their places
 *   evict     rows that are removed to make room
 *   erase     keys are forgotten
 *   change_sets   what changed since the last cuts
 *   frozen    the table as it was at one moment, while calls change it
 *   cut       what is read of that
 *   scan, load   copy rows out and in; these and erase block
 *
 * Calls take effect in the order made, because one stream runs them. A pull is enqueued at once,
 * but that small ones wait while the device has enough to do, and then go together in one launch.
 * What a push or insert creates is counted on the device first; the host then makes room and
 * enqueues the rest, and calls behind it wait in the queue meanwhile; small pushes then go together
 * and, where there is room, in one go. The host never waits for the device but in scan, load, a
 * pull that says `now`, and a prepare that has to look at keys.
 *
 * Owner: the shard's thread. */
#ifndef EMBD_CUDA_CUDA_STORE_H
#define EMBD_CUDA_CUDA_STORE_H

#include "server/store/cuda/device.h"
#include "server/store/cuda/frozen.h"
#include "server/store/gone.h"
#include "server/store/cuda/kernels/kernels.h"
#include "server/store/store.h"

/* Past so many bytes of rows touched at random, the device loses most of its time finding out where
 * they are: a pull of many keys then takes the rows window by window. */
#define WINDOW_BYTES ((uint64_t)64 << 30)
#define WINDOW_KEYS  ((uint32_t)1 << 17)

enum call_kind { CALL_PULL, CALL_PUSH, CALL_INSERT };
enum call_state {
    CALL_WAITING,  /* for those before it */
    CALL_PLANNED,  /* its plan is on its way from the device */
    CALL_ENQUEUED, /* all of it is */
    CALL_ENDED,    /* with `status`; done is to be called */
};

/* An array that a call brings: where it is, where it lies in the call's input block and staging
 * memory, where it has to go there, and where kernels read it. */
struct input {
    const void *from;
    uint64_t bytes, at, staged_at;
    enum memory_kind kind;
    const void *on_device;
};
enum { IN_KEYS, IN_OFFSETS, IN_SLOTS, IN_WEIGHTS, IN_VALUES, IN_STATES, IN_COUNT };

struct call {
    struct call *next;
    struct store *store;
    enum call_kind kind;
    enum call_state state;
    int status;
    struct store_pull *pull; /* of these three, the one of its kind */
    struct store_push *push;
    struct store_insert *insert;
    struct store_done *done; /* NULL: a load's, which asks for the result itself */
    struct device_flag *flag;

    struct input inputs[IN_COUNT];
    uint64_t in_bytes, staged_bytes; /* of the input block, and of what has to be staged */
    bool is_small;
    struct keys_view in;
    uint8_t *values;  /* pull: where the kernel writes them */
    uint8_t *staging; /* pinned */
    size_t staging_bytes;
    uint8_t *statuses, *statuses_out; /* in staging, and the caller's; or NULL */
    uint8_t *values_out;              /* the caller's, where it is not pinned */
    uint64_t values_bytes;
    bool can_batch;     /* pull, push: it may go in one launch with others of its kind */
    bool is_follower;   /* it did, and is not the first of them */
    uint32_t n_batched; /* push: it and so many behind it went together, with it; else 0 */
    struct batch_report *batch_report; /* in staging, of all of them */
    bool is_untold;                    /* its step is one of store->n_untold */
    void *scratch;                     /* device memory until all is enqueued */

    struct plan_view plan;
    struct plan_report *report; /* in staging */
    void *select_temp;
    size_t select_bytes;
    uint32_t n_inserted, n_full, n_evicted;
    bool has_evicted; /* or could not */
    void *second;     /* device memory of a push's second half, once it is reserved */
    bool is_sorted;   /* it has the refs in order, unless the report tells of keys without a row */
};

/* What has changed since one cut, until the next. */
struct change_set {
    uint64_t cut; /* its id */
    struct gone gone;
};
#define CHANGE_SETS_MAX           8u
#define CHANGE_SETS_EVICTED_BYTES (sizeof(uint64_t) + sizeof(uint16_t))

/* Zeroed: nothing is noted. */
struct change_sets {
    struct change_set sets[CHANGE_SETS_MAX]; /* [n], the newest last */
    uint32_t n;
    struct device_range rows; /* view.row_sets, while n > 0 */
    uint8_t *evicted;         /* pinned: keys, then slots, that the device lists; or NULL */
    uint64_t n_evicted;
};

struct store {
    const struct table_schema *schema; /* the caller's */
    int device;
    void *stream;
    struct table_view view;
    struct device_range values, states, row_keys, row_slots;
    void *slot_memory; /* slot_bounds and slot_starts */
    uint64_t n_rows, n_candidates, capacity, step;
    uint64_t n_entries_max;      /* that the entries have room for, */
    uint64_t n_removed;          /* of which so many went since all were placed anew */
    bool is_global;              /* pushes step all rows */
    bool evicts;                 /* on_full is an evict policy */
    uint64_t none_expire_before; /* ttl: no row can have expired before the table's step is that */
    uint64_t n_evicted;
    uint64_t window_bytes; /* WINDOW_BYTES, and */
    uint32_t window_keys;  /* WINDOW_KEYS */
    struct change_sets changes;
    struct frozen frozen;
    bool misses;          /* the last push had keys without a row */
    uint64_t n_untold;    /* steps of pushes whose done is still to come */
    void *batch_block;    /* memory of those launches, */
    uint64_t batch_bytes; /* of so many bytes */
    bool is_member;       /* of a group: it may have n_rows_max rows for now, not the schema's */
    uint64_t n_rows_max;
    struct call *first, *last; /* the queue */
    struct call *spare;
    bool failed; /* the device is not to be trusted any more */
    char why[200];
};

/* ---- memory ---- */

/* Takes a piece of a block; with a base of NULL it only counts. */
struct arena {
    uint8_t *base;
    uint64_t bytes;
};
void *arena_take(struct arena *arena, uint64_t bytes);

void *buffer_new(size_t bytes);
void buffer_free(void *buffer, size_t bytes);

/* ---- table ---- */

/* Sets the error of a device's status, which is not 0: EMBD_NO_MEMORY, or EMBD_INTERNAL for good.
 */
int cuda_error(struct store *store, int device_status, const char *what, struct embd__error *e);
/* How the table records the use of its rows. Only where it evicts. */
struct use_view cuda_use(const struct store *store);
/* Rows the table may still get: its capacity where that is a bound, and what a ref can number. */
uint64_t cuda_room(const struct store *store);
/* Memory for n rows, entries for n keys, in all. DEVICE_NO_MEMORY: as before. */
int grow_rows(struct store *store, uint64_t n);
int grow_entries(struct store *store, uint64_t n);
/* Memory for n_rows more rows, entries for n more keys, whatever is under way. The device is in
 * use. */
int grow_by(struct store *store, uint64_t n_rows, uint64_t n);

/* ---- call ---- */

/* The arrays of keys begin .. end, rows first .. first + n_rows. */
void call_set_keys(struct call *call, const struct store_keys *in, uint32_t first, uint32_t n_rows);
void call_set_input(struct call *call, int which, const void *from, uint64_t bytes);
/* After the last of them: in_bytes and staged_bytes. */
void call_lay_out_inputs(struct call *call);
/* Copies the inputs to the device's `block`; or, is_in_place, leaves them in pinned memory, which
 * the kernels then read. What is in device memory already stays there. Sets on_device of all, and
 * call->in. `staging` begins with staged_bytes for it. */
int call_upload(struct call *call, uint8_t *block, bool is_in_place);

struct call *call_new(struct store *store);
void call_free(struct call *call);

/* ---- queue ---- */

void cuda_submit(struct store *store, enum call_kind kind, void *request, struct store_done *done);
bool cuda_collect(struct store *store);
void cuda_forget(struct store *store, struct store_done *done);
/* Waits until all calls have ended. Their dones are collected later. */
void cuda_wait_all(struct store *store);

/* ---- pull, plan, push: 0 or a device's status ---- */

/* Before anything of it is enqueued, at any time. Sets can_batch. */
int pull_prepare(struct call *call);
int pull_start(struct call *call);
/* Pulls that can, GATHER_MOST at most, in one launch. */
int pull_start_together(struct call *const *calls, uint32_t n);

/* Lays out and enqueues the search for missing keys, up to the report. */
void insert_plan_lay_out(struct call *call, struct arena *arena);
int insert_plan_start(struct call *call);
/* With the report: EMBD_FULL, EMBD_NO_MEMORY in e, nothing changed; else room for rows and entries
 * (insert_plan_reserve), which are then enqueued. */
int insert_plan_reserve(struct call *call, bool want_statuses, struct embd__error *e);
/* `first`, or NULL: a push that insert_plan_is_all_new says it of, which is then stepped as well.
 */
int insert_plan_commit(struct call *call, bool want_statuses, const struct first_push *first,
                       struct embd__error *e);
/* After insert_plan_reserve: every key of the request gets a row, and none was seen before. */
bool insert_plan_is_all_new(const struct call *call);
int insert_plan_refuse(const struct call *call, uint64_t room,
                       struct embd__error *e); /* EMBD_FULL */

int push_start(struct call *call);
/* After push_start: sorts while the report is on its way. Not needed, and may do nothing. */
void push_presort(struct call *call);
int push_take_memory(struct call *call);
/* With the report: all that the commit may fail of for want of room or memory, taken beforehand. */
int push_reserve(struct call *call, struct embd__error *e);
int push_commit(struct call *call, struct embd__error *e);

/* ---- batch_push ---- */

/* Before anything of a push is enqueued, at any time. Sets can_batch. */
void batch_push_prepare(struct call *call);
/* This push and those right behind it that can go together, BATCH_PUSHES_MAX at most. 0: it is
 * better alone. */
uint32_t batch_push_choose(struct call *first, struct call **calls);
/* All of them is enqueued but the flag. DEVICE_NO_MEMORY: nothing is, or what is changes nothing.
 */
int batch_push_start(struct call *const *calls, uint32_t n);
/* With the report: what each of them is to answer. False: they are to go one by one. */
bool batch_push_end(struct call *first);

/* ---- compact ---- */

/* Rows that no entry names any more go. lay_out: memory for n of them at most, of which the caller
 * fills `rows`, in any order; close_up: rows from the end take their places. */
struct removal {
    uint32_t *rows;
    uint32_t *sorted, *order, *numbers, *movers, *n_movers;
    uint8_t *is_mover;
    void *temp;
    size_t sort_bytes, select_bytes;
};
void compact_lay_out(struct removal *removal, uint32_t n, struct arena *arena);
int compact_rows(struct store *store, const struct removal *removal, uint32_t n_gone);

/* ---- evict ---- */

/* With the report: where keys need more rows than there is room, others go, once; the plan is then
 * enqueued anew, and *again set. EMBD_FULL, EMBD_NO_MEMORY: nothing changed. */
int evict_others(struct call *call, bool *again, struct embd__error *e);
/* The same up to what changes: how many rows would go, and the memory for it. Waits. */
int evict_foresee(struct call *call, bool want_statuses, uint64_t *n_out, struct embd__error *e);

/* The steps of that, which a group takes on all of its devices. They enqueue, and return 0 or a
 * device's status. */
struct evict_pass {
    struct evict_view view;
    uint32_t *marks;
    struct removal removal;
    void *first, *second; /* memory: of the survey, of the rows that go */
};
/* With the report. The rows that the request does not name. */
int evict_survey(const struct call *call, struct evict_pass *pass, struct use_survey *pinned);
/* With the survey: before which step no row can expire; before it, no pass can find any. */
void evict_note_survey(struct store *store, const struct use_survey *found);
bool evict_is_vain(const struct store *store);
/* How many rows a pass takes, if it finds so many, where so many are missing. */
uint64_t evict_most(const embd_schema *s, uint64_t missing);
/* All that may fail of n rows going and n_new coming. */
int evict_reserve(struct call *call, struct evict_pass *pass, uint64_t n, uint64_t n_new);
/* The rows of view.choice, which are n > 0, go; then the plan is to be enqueued anew. */
int evict_chosen(struct call *call, struct evict_pass *pass, uint64_t n);
void evict_free(const struct store *store, struct evict_pass *pass);

/* ---- change_sets ---- */

/* Those that return a number return 0 or a device's status, and do nothing while nothing is noted.
 */
int change_sets_note_refs(struct store *store, const uint32_t *refs,
                          uint32_t n); /* as launch_note_rows */
int change_sets_note_rows(struct store *store, uint64_t first, uint64_t n);
/* Keys whose refs, on the host, are not 0. Only where changes.n > 0. */
void change_sets_note_erased(struct store *store, const struct store_keys *in,
                             const uint32_t *refs);
/* These rows, numbers on the device, are about to go; after change_sets_take_evicted. */
int change_sets_note_evicted(struct store *store, const uint32_t *rows, uint32_t n);
/* The stream was waited for: evicted keys that it told of are taken over. */
void change_sets_take_evicted(struct store *store);
void change_sets_grow(struct store *store); /* there is memory for more rows */

/* The oldest set goes where there is no place for one more. */
int change_sets_make_room(struct store *store);
/* There is room: what changes from now on is noted as since this cut, if there is memory for it. */
int change_sets_begin(struct store *store, uint64_t cut);
/* The first set of those since the cut; changes.n: it is not known what changed. */
uint32_t change_sets_find(const struct store *store, uint64_t cut);
void change_sets_fini(struct store *store);
uint64_t change_sets_bytes(const struct store *store);

/* ---- cut ---- */

/* The next keys that are gone; false: there are no more of them. */
bool cuda_read_gone(struct store *store, uint32_t max_rows, struct store_scan *out);
/* The steps of cuda_freeze, which a group takes on all of its devices: the second may find no
 * memory, and sets has_all; nothing is noted before the third. */
int cuda_cut_prepare(struct store *store, const struct store_cut *cut, struct embd__error *e);
int cuda_cut_freeze(struct store *store, struct store_cut *cut, struct embd__error *e);
int cuda_cut_note(struct store *store, const struct store_cut *cut, struct embd__error *e);

/* ---- the calls of store_ops ---- */

int cuda_open_on(const struct table_schema *schema, int device, struct store **out,
                 struct embd__error *e);
void cuda_close(struct store *store);

int cuda_reserve(struct store *store, uint64_t n, bool may_drop, struct embd__error *e);
int cuda_prepare(struct store *store, struct store_plan *plan, struct embd__error *e);
int cuda_scan(struct store *store, uint64_t *cursor, uint32_t max_rows, struct store_scan *out,
              struct embd__error *e);
int cuda_load(struct store *store, const struct row_block *block, struct embd__error *e);
int cuda_erase(struct store *store, struct store_erase *erase, struct embd__error *e);

int cuda_freeze(struct store *store, struct store_cut *cut, struct embd__error *e);
int cuda_scan_frozen(struct store *store, uint32_t max_rows, struct store_scan *out, bool *done_out,
                     struct embd__error *e);
void cuda_thaw(struct store *store);

#endif
