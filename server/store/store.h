/* store.h - where the rows of one table of one shard live: a small table of functions that every
 * store (host memory, one GPU, all GPUs of a process) fills in. None is optional but those that
 * store_caps names, which says where stores differ.
 *
 * Called by the shard's thread only. Requests reach a store validated: known table, counts within
 * limits, offsets rising, slots in range, finite weights and gradients (unless admitted). Keys
 * carry their slot offsets. Arrays are aligned to 8 bytes and stay the caller's; they live until
 * `done` was called.
 *
 * A push or insert has a ticket: prepare takes what it will need, once or several times on its way,
 * apply makes it, cancel gives it up. prepare is never required.
 *
 * A store may work asynchronously: pull and apply end by calling done->fn on the shard's thread,
 * from inside the call (caps.is_async is false: but for pushes of very many keys) or later, from
 * inside collect. Calls on one store take effect in the order made. Every store gives the same bits
 * for the same calls (proto/combine.h, initializer.h, optimizer.h). */
#ifndef EMBD_STORE_H
#define EMBD_STORE_H

#include "proto/key_set.h"
#include "proto/message.h"
#include "proto/schema.h"

struct store;

struct store_done {
    void (*fn)(struct store_done *done,
               int status); /* EMBD_OK, or negative: then the error below says why */
    struct embd__error error;
};

/* The keys of one request: CSR or single. As struct part, which see. */
struct store_keys {
    uint32_t n_keys, n_rows;
    const uint64_t *keys;    /* [n_keys] */
    const uint32_t *offsets; /* [n_rows + 1] or NULL: n_rows = n_keys */
    const uint16_t *slots;   /* [n_rows], slot tables only, else NULL */
    const float *weights;    /* [n_keys] or NULL */
    const float *scores;     /* [n_keys] or NULL: of a push to a table with evict_score (use.h) */
    /* caps.takes_device: the keys, and a pull's values or a push's gradients, lie in memory of a
     * device, each aligned to 16 bytes. Its owner may write there meanwhile: the store looks at
     * a copy, and uses that. No other arrays, and no statuses. A push whose gradients are to be
     * finite, and are not, is refused with EMBD_NOT_FINITE before any effect. */
    bool on_device;
    /* With on_device: only keys of this set take part. Those outside are as if the request did not
     * have them, but for their places: their rows are not written, and their gradients not read.
     * A push whose keys are all outside is one without keys. NULL: all do. */
    const struct key_set *own;
};

/* A store's state of one request: all zero for a new one, then the store's. It may be moved
 * between two calls of prepare, and not from pull or apply on. */
struct store_ticket {
    uint64_t number; /* of keys that were looked up; 0: none were */
    uint64_t n_keys; /* that memory is kept for */
};

static inline bool store_has_ticket(const struct store_ticket *ticket)
{
    return ticket->number != 0 || ticket->n_keys != 0;
}

struct store_pull {
    struct store_ticket ticket; /* first */
    struct store_keys in;
    embd_dtype dtype; /* of `values` */
    bool zero_missing, scale;
    /* Output rows first .. first + count; a request may be answered in several calls, ascending. */
    uint32_t first, count;
    void *values;      /* [count][dim] of dtype */
    uint8_t *statuses; /* [n_keys] or NULL; entries of the keys of these rows are set */
    /* Called from inside collect, any number of times before done: the first n_rows of `values`,
     * fewer than count, have the result, and stay as they are. A store need not call it. NULL:
     * nobody asks. */
    void (*made)(struct store_pull *pull, uint32_t n_rows);
    bool is_sure; /* set by the store: nothing but a failure of its device ends it with an error */
};

enum store_change_kind {
    STORE_PUSH,   /* one optimizer step: merges duplicate keys, creates missing rows (create_on),
                     applies; an empty push counts a step too */
    STORE_INSERT, /* rows at their first value for keys without one (create_on = pull); one sight
                     for admit_after */
};

/* A push or insert. */
struct store_change {
    struct store_ticket ticket; /* first */
    enum store_change_kind kind;
    struct store_keys in;
    embd_dtype dtype;  /* of a push's */
    const void *grads; /* [n_rows][dim] of dtype */
    float lr;          /* of a push's step; 0: the table's */
    uint64_t seconds;  /* UNIX time of the change; tables whose rows expire by seconds set their
                          clocks to it, where it is later than these */
    /* [n_keys] or NULL. A change without statuses that would need room beyond capacity, also after
     * evicting all that may go, is refused with EMBD_FULL before any effect. With statuses the keys
     * without room answer EMBD_KEY_FULL: the first of the request get the room. */
    uint8_t *statuses;
    bool is_whole; /* it is refused as without statuses */
    /* STORE_PREPARE_MEMORY and STORE_PREPARE_ROOM. is_bounded: the table may take `room` bytes more
     * (memory_bytes of its stats); `needed` is set where the change needs more than that. */
    bool is_bounded;
    uint64_t room, needed;
    /* Of a push that is applied in slices: called when its keys are counted, before the table
     * changes, with the bytes that it will add (from then on in memory_bytes of the stats). False,
     * with the error of `done`: it is to be refused with EMBD_FULL. NULL: it never is. */
    bool (*claim)(struct store_change *change, uint64_t bytes);
    /* Set at done: distinct keys, and other keys that lost their row. prepare sets them where it
     * has looked at the keys, else to 0. */
    uint32_t n_inserted, n_full, n_filtered, n_evicted;
};

static inline bool store_may_drop(const struct store_change *change)
{
    return change->statuses != NULL && !change->is_whole;
}

/* The task of prepare. */
enum store_prepare {
    /* Keys may be looked up already, while the gradients are on their way. Never fails. Only `in`
     * is read, and not kept: the same contents come again. */
    STORE_PREPARE_KEYS,
    /* Memory for all of its keys, beside that of all other tickets, as far as there is capacity: so
     * a change finds it that is acknowledged to a journal first. One comparison where there is that
     * memory; where there is not, keys that have rows are not counted. A store that has no memory
     * for a change that may drop keys may answer some EMBD_KEY_FULL. EMBD_FULL: as below.
     * EMBD_NO_MEMORY, of a device EMBD_INTERNAL. Only then a store that works asynchronously may
     * wait. */
    STORE_PREPARE_MEMORY,
    /* That there is room for it, where it is bounded. A store may take memory for that, as above.
     * EMBD_FULL: it needs more than change->room, at the peak of growing, also where keys that have
     * rows are not counted. */
    STORE_PREPARE_ROOM,
    /* Decides what happens to each key, by the code that applies changes, after all calls that were
     * made before, and takes memory for that. Applied before any other call that changes this
     * store, the change decides the same: it does not fail for want of room, and on the host not
     * for want of memory. So requests that concern several stores are prepared in all of them
     * before the first is changed. A store that works asynchronously may wait for its device here,
     * where keys have to be looked at. EMBD_FULL, EMBD_NO_MEMORY: as apply; EMBD_INTERNAL of a
     * device. */
    STORE_PREPARE_OUTCOME,
};

/* Keys to be forgotten: their rows, and sights for admit_after. */
struct store_erase {
    struct store_keys in; /* no weights */
    uint8_t *statuses; /* [n_keys] or NULL: EMBD_KEY_EVICTED, or EMBD_KEY_MISSING where there was no
                          row */
    uint32_t n_erased; /* set on success: distinct keys that had a row */
};

/* Which keys whoever reads a cut has no use for. */
struct store_skip {
    bool (*has)(const struct store_skip *skip, uint64_t key, uint32_t slot);
};

/* The arrays that a scan fills: as struct row_block, but writable. `rows` NULL: neither rows nor
 * states are wanted. `states` NULL: they are not, of a store that is not async, or the table has
 * none. */
struct store_scan {
    uint32_t n_rows, n_candidates;
    const struct store_skip *skip; /* a store need not read these; NULL: all are wanted */
    uint64_t *keys;
    uint16_t *slots; /* slot tables only */
    void *rows;
    float *states;
    uint64_t *candidate_keys;
    uint16_t *candidate_slots;
    uint32_t *candidate_counts;
};

/* Rows of given keys, as they are stored: what a lazy_global row still owes is not paid. */
struct store_read {
    struct store_keys in; /* one key a row, no offsets and weights; keys may repeat */
    /* [n_keys] of each, zeros where there is no row. `states` NULL: they are not wanted, or the
     * table has none. */
    void *rows;
    float *states;
    uint8_t *statuses; /* [n_keys] EMBD_KEY_HIT or EMBD_KEY_MISSING */
};

/* A cut of a table: of all of it, or of what has changed since an earlier one. */
struct store_cut {
    uint64_t id; /* what changes from now on is noted as since this; 0: it is not */
    uint64_t
        since; /* only rows that changed since that cut, and keys that lost theirs; 0: all rows */
    bool has_all; /* set: the cut has all rows, also because nothing, or not enough, is known since
                     that cut */
    bool no_states;      /* nobody reads states of it: a store need not copy them */
    uint64_t copy_bytes; /* the host: memory for copies of what changes meanwhile, without which the
                            cut is given up; 0: as much as there is */
};

/* Rows that go because there are more than a lower capacity lets be. */
enum store_shrink_phase {
    STORE_SHRINK_CHOOSES, /* nothing shows */
    STORE_SHRINK_CHOSEN,  /* likewise; with the next slice all of them are gone at once */
    STORE_SHRINK_REMOVES, /* their memory is given back */
    STORE_SHRINK_DONE,
};

struct store_shrink {
    const embd_schema *to;         /* by whose policy (use.h) they go */
    uint64_t n;                    /* as many, at least 1; the table has as many rows or more */
    bool only_counts;              /* ends when n_may_go is set */
    enum store_shrink_phase phase; /* 0 at first, then the store's */
    uint64_t n_may_go;             /* set before rows are chosen: of all rows, those that may go */
};

struct store_stats {
    uint64_t rows, candidates, capacity; /* capacity: rows there is memory for now */
    uint64_t row_bytes;   /* of values and optimizer state of all rows there is memory for */
    uint64_t index_bytes; /* everything else */
    uint64_t steps;
    uint64_t clock;        /* of a table whose rows expire by seconds: the latest time that it was
                              told, or that a loaded row has */
    uint64_t evicted;      /* rows, since the store was opened */
    uint64_t forgotten;    /* candidates that were too many, likewise (candidates.h) */
    uint64_t slices;       /* of work that pushes left for collect, about: store_ops.collect */
    uint64_t memory_bytes; /* that rows, keys and copies for cuts take now; of rows there is memory
                              for, the host counts those that were taken once, and those to come
                              of a push that is applied in slices */
};

#define STORE_PLACES 64u /* numbers of memories are below */

/* Where stores differ. */
struct store_caps {
    bool is_async; /* pull and apply may return before they have ended; else pushes of very many
                      keys may */
    /* Bytes of values one pull call should be asked for so that they are still in cache when they
     * are sent; is_async: the whole request at once. */
    uint64_t pull_bytes;
    bool shrinks;      /* has `shrink`; elsewhere rows are scanned and erased */
    bool takes_device; /* store_keys.on_device, and device_open, device_close and device_read */
};

/* Memory of a GPU that another process of this host, or this one, has and lends. */
#define STORE_DEVICE_HANDLE 64u /* bytes of cudaIpcMemHandle_t */
#define STORE_DEVICE_UUID   16u
struct store_device_lent {
    const uint8_t *handle; /* [STORE_DEVICE_HANDLE] of a whole allocation, which may have more */
    const uint8_t *uuid;   /* [STORE_DEVICE_UUID] of its device */
    uint64_t bytes;
    uint64_t address; /* of memory of this process, without a handle; 0: it is of another */
};
struct store_device_memory {
    uint8_t *base; /* where kernels of the thread's device reach it; NULL: it is not open */
    uint64_t bytes;
    bool takes_turns; /* it is on the thread's device, whose processes are not served together */
    bool is_own;      /* this process has it, whatever the store does */
};

struct store_ops {
    const char *name; /* "host" */
    struct store_caps caps;

    /* An empty table. `schema` stays the caller's and outlives the store. EMBD_NO_MEMORY,
     * EMBD_UNSUPPORTED, EMBD_IO (no random numbers): *out is NULL. */
    int (*open)(const struct table_schema *schema, struct store **out, struct embd__error *e);
    void (*close)(
        struct store *store); /* NULL is allowed; calls in flight end first, as collect would */

    /* Reads; never changes the table. Cannot fail on the host. */
    void (*pull)(struct store *store, struct store_pull *pull, struct store_done *done);

    /* Takes what the change will need, and shows nothing. An error leaves the ticket as it was. */
    int (*prepare)(struct store *store, struct store_change *change, enum store_prepare what,
                   struct embd__error *e);

    /* Makes the change; its ticket is used up. EMBD_FULL, EMBD_NO_MEMORY: nothing changed. */
    void (*apply)(struct store *store, struct store_change *change, struct store_done *done);

    /* The request will not be made, and the ticket is all zero again; a ticket all zero is allowed.
     * Of a pull or change under way: waits for it, and its done will not be called. Returns the
     * status that it would have been called with, and its error is set; of others EMBD_OK. */
    int (*cancel)(struct store *store, struct store_ticket *ticket);

    /* Calls the done of calls that have ended; they may make new ones. Never waits. Returns whether
     * calls are still under way: then it is to be called again soon.
     *
     * On the host all have ended but a push of very many keys, whose slices are made here: whoever
     * reads or changes the table does all that is left first. And a push that steps all rows of a
     * large table leaves most of that to be done here, in slices of less than a millisecond each
     * (store_stats.slices). It does not show: what reads has the rows it reads stepped first.
     * What changes the table does all that is left first: apply, load, erase, set_step, alter, and
     * prepare but for STORE_PREPARE_KEYS. Returns whether something is left. */
    bool (*collect)(struct store *store);

    /* Copies rows out. *cursor starts at 0 and is the store's; ends when *cursor is UINT64_MAX
     * afterwards. At most max_rows rows and candidates together, into arrays the caller sized for
     * that many. The table must not change between the first and last call of a scan. Blocks.
     * EMBD_INTERNAL: the device failed; what is in the arrays is to be thrown away. */
    int (*scan)(struct store *store, uint64_t *cursor, uint32_t max_rows, struct store_scan *out,
                struct embd__error *e);

    /* Keys that have a row, at most max_keys, into keys and slots of `out`, whose other arrays are
     * not touched. *cursor starts at 0; ends when it is UINT64_MAX afterwards; no keys with another
     * cursor: go on. Any cursor is safe, as a peer may send it. The table may change between two
     * calls: a key that has a row from the first call to the last comes once, on GPUs at least
     * once; a key that gets or loses its row meanwhile comes or does not. Sees all calls made
     * before. Blocks. EMBD_TOO_LARGE: more than max_keys stand at one place, `e` says how many;
     * 131072 always fit. EMBD_INTERNAL of a device. */
    int (*list)(struct store *store, uint64_t *cursor, uint32_t max_keys, struct store_scan *out,
                struct embd__error *e);

    /* Copies out the rows of keys. Changes nothing, and no key counts as seen or used. Sees all
     * calls made before. Blocks. EMBD_NO_MEMORY, EMBD_INTERNAL of a device: what is in the arrays
     * is to be thrown away. */
    int (*read)(struct store *store, const struct store_read *read, struct embd__error *e);

    /* A cut: from freeze to thaw scan_frozen gives the table as it was at freeze, part by part,
     * while calls change it; nothing where the next part is on its way from a device. *done_out
     * tells that there is no more. An error ends the cut, but for the thaw. A table has one at a
     * time. EMBD_NO_MEMORY, and of a device EMBD_INTERNAL. A cut without all rows begins with the
     * keys that were erased or evicted, as candidates that were seen 0 times, in blocks of their
     * own; any of them may have a row again, which comes behind. It has all candidates: those
     * of the earlier cut do not count any more. */
    int (*freeze)(struct store *store, struct store_cut *cut, struct embd__error *e);
    int (*scan_frozen)(struct store *store, uint32_t max_rows, struct store_scan *out,
                       bool *done_out, struct embd__error *e);
    void (*thaw)(struct store *store); /* not frozen is allowed */
    /* Nobody will ask what changed since the cut: its changes become those of the cut before it.
     * Not while frozen; an unknown cut is allowed. Where that takes memory or a device that is not
     * there, the next cuts have all rows. */
    void (*forget)(struct store *store, uint64_t cut);

    /* Rows with given values and states, replacing those of the same keys; candidates likewise. A
     * clock is set to the latest time of the states, where it is earlier.
     * EMBD_FULL, EMBD_NO_MEMORY: nothing changed. Blocks. */
    int (*load)(struct store *store, const struct row_block *block, struct embd__error *e);
    void (*set_step)(struct store *store, uint64_t step);

    /* Rows given back are the first to be taken again. No calls are under way. EMBD_NO_MEMORY
     * (never on the host), EMBD_UNSUPPORTED: nothing changed. Blocks. */
    int (*erase)(struct store *store, struct store_erase *erase, struct embd__error *e);

    /* Where caps.shrinks: one slice, of some milliseconds at most. Called again until shrink->phase
     * is STORE_SHRINK_DONE. Between two calls the table is read, and nothing changes it but
     * `alter`, once the rows are gone. EMBD_FULL: fewer rows may go; EMBD_NO_MEMORY: both before
     * rows are chosen, it is over and nothing has changed. */
    int (*shrink)(struct store *store, struct store_shrink *shrink, struct embd__error *e);

    /* Fields of the schema have changed: of schema_fields.h those that may, except its
     * initializer's kind. Calls from now on go by them. The table has no more rows than its
     * capacity, and no candidates if admit_after is 0 or 1. Where the capacity was higher, the next
     * cut has all rows: those before it may be too many. No calls are under way; tickets may be. */
    void (*alter)(struct store *store);

    void (*stats)(const struct store *store, struct store_stats *out);

    /* Where the stores have their rows that the calling thread opens: number of the memory, and
     * how many of its bytes are free; 0: the machine's memory, whose size the caller knows. */
    uint64_t (*memory)(uint32_t *place_out);

    /* Where caps.takes_device. Makes memory reachable for the thread's device until device_close,
     * when no call that names it is under way. Handle and address may be anything. EMBD_INVALID:
     * it is not of memory of so many bytes; EMBD_UNSUPPORTED: the device cannot reach it. */
    int (*device_open)(const struct store_device_lent *lent, struct store_device_memory *out,
                       struct embd__error *e);
    void (*device_close)(struct store_device_memory *memory);
    /* Copies from there into the host's memory. Blocks. EMBD_INTERNAL of a device. */
    int (*device_read)(void *to, const void *from, uint64_t bytes, struct embd__error *e);

    /* Memory for received bins and answers, aligned to 64; NULL: out of memory. Any thread. */
    void *(*buffer_new)(size_t bytes);
    void (*buffer_free)(void *buffer, size_t bytes);
};

/* store_cuda and store_nccl are compiled in where stores.c says so. */
extern const struct store_ops store_host, store_cuda, store_nccl;
/* How store_nccl uses the GPUs of the process. To be set before the first table is opened. */
enum store_way {
    STORE_WAY_AUTO,
    STORE_WAY_PEER,
    STORE_WAY_NCCL
}; /* auto: the faster one, measured */
extern struct store_gpus {
    enum store_way way;
    bool partial_sums; /* pooled pulls of hash and modulo tables: a GPU adds the rows it has, in CSR
                        * order; these sums are added in the order of the GPUs. Else all rows are
                        * added in CSR order. */
} store_gpus;
/* How many devices store_cuda may use; 0: *why_out says why there is none. */
int store_cuda_devices(const char **why_out);

/* The store of that name, or NULL with `e` naming those compiled in, or why a device cannot be
 * used. "auto" is a device's store where there is a device, else the host's; e->text then says why,
 * or is empty where no other store is compiled in. stores.c alone knows which there are. */
const struct store_ops *store_find(const char *name, struct embd__error *e);

#endif
