/* store.h - where the rows of one table of one shard live: a small table of functions that every
 * store (host memory, one GPU, all GPUs of a process) fills in. All but prepare, foresee and
 * unforesee are there.
 *
 * Called by the shard's thread only. Requests reach a store validated: known table, counts within
 * limits, offsets rising, slots in range, finite weights and gradients (unless admitted). Keys
 * carry their slot offsets. Arrays are aligned to 8 bytes and stay the caller's; they live until
 * `done` was called.
 *
 * A store may work asynchronously: pull, push and insert end by calling done->fn on the shard's
 * thread, from inside the call (host store, always) or later, from inside collect. Calls on one
 * store take effect in the order made. Every store gives the same bits for the same calls
 * (proto/combine.h, initializer.h, optimizer.h). */
#ifndef EMBD_STORE_H
#define EMBD_STORE_H

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
};

struct store_pull {
    struct store_keys in;
    embd_dtype dtype; /* of `values` */
    bool zero_missing, scale;
    /* Output rows first .. first + count; a request may be answered in several calls, ascending. */
    uint32_t first, count;
    void *values;      /* [count][dim] of dtype */
    uint8_t *statuses; /* [n_keys] or NULL; entries of the keys of these rows are set */
    bool now;          /* done is to be called from inside the call, also by a store that works
                          asynchronously */
};

struct store_push {
    struct store_keys in;
    embd_dtype dtype;
    const void *grads; /* [n_rows][dim] of dtype */
    uint8_t *statuses; /* [n_keys] or NULL */
    uint64_t foreseen; /* the number given to foresee with these keys, or 0 */
    bool is_prepared;  /* prepare was called with these keys, and no other call that changes this
                          store since */
    /* With NULL statuses: a push that would need room beyond capacity, also after evicting all that
     * may go, is refused with EMBD_FULL before any effect. With statuses the keys without room
     * answer EMBD_KEY_FULL: the first of the request get the room. */
    uint32_t n_inserted, n_full, n_filtered; /* set at done: distinct keys */
    uint32_t n_evicted;                      /* other keys that lost their row */
};

/* Rows at their first value for keys without one (create_on = pull); one sight for admit_after. */
struct store_insert {
    struct store_keys in;
    uint8_t *statuses; /* as above */
    bool is_prepared;  /* as above */
    uint32_t n_inserted, n_full, n_filtered, n_evicted;
};

/* A push or insert that may come: what becomes of its keys. */
struct store_plan {
    struct store_keys in;
    uint64_t foreseen; /* as in store_push */
    bool may_drop;     /* it asks for statuses: it is not refused for want of room */
    bool is_counted;   /* the numbers below are wanted: else a store need not look at keys that fit,
                          whatever they are */
    /* Set on EMBD_OK, as that push or insert would set them; 0 where they are not wanted and were
     * not looked at. */
    uint32_t n_inserted, n_full, n_filtered, n_evicted;
};

/* Keys to be forgotten: their rows, and sights for admit_after. */
struct store_erase {
    struct store_keys in; /* no weights */
    uint8_t *statuses; /* [n_keys] or NULL: EMBD_KEY_EVICTED, or EMBD_KEY_MISSING where there was no
                          row */
    uint32_t n_erased; /* set on success: distinct keys that had a row */
};

/* What a scan fills: as struct row_block, but writable. `rows` NULL: neither rows nor states are
 * wanted. */
struct store_scan {
    uint32_t n_rows, n_candidates;
    uint64_t *keys;
    uint16_t *slots; /* slot tables only */
    void *rows;
    float *states;
    uint64_t *candidate_keys;
    uint16_t *candidate_slots;
    uint32_t *candidate_counts;
};

/* A cut of a table: of all of it, or of what has changed since an earlier one. */
struct store_cut {
    uint64_t id; /* what changes from now on is noted as since this; 0: it is not */
    uint64_t
        since; /* only rows that changed since that cut, and keys that lost theirs; 0: all rows */
    bool has_all; /* set: the cut has all rows, also because nothing, or not enough, is known since
                     that cut */
};

struct store_stats {
    uint64_t rows, candidates, capacity; /* capacity: rows there is memory for now */
    uint64_t row_bytes;   /* of values and optimizer state of all rows there is memory for */
    uint64_t index_bytes; /* everything else */
    uint64_t steps;
    uint64_t evicted; /* rows, since the store was opened */
};

struct store_ops {
    const char *name; /* "host" */

    /* Bytes of values one pull call should be asked for so that they are still in cache when they
     * are sent; UINT64_MAX: the whole request at once. */
    uint64_t pull_bytes;

    /* An empty table. `schema` stays the caller's and outlives the store. EMBD_NO_MEMORY,
     * EMBD_UNSUPPORTED: *out is NULL. */
    int (*open)(const struct table_schema *schema, struct store **out, struct embd__error *e);
    void (*close)(
        struct store *store); /* NULL is allowed; calls in flight end first, as collect would */

    /* Reads; never changes the table. Cannot fail on the host. */
    void (*pull)(struct store *store, struct store_pull *pull, struct store_done *done);

    /* One optimizer step: merges duplicate keys, creates missing rows (create_on), applies. Also an
     * empty push counts a step. EMBD_FULL, EMBD_NO_MEMORY: nothing changed. */
    void (*push)(struct store *store, struct store_push *push, struct store_done *done);

    void (*insert)(struct store *store, struct store_insert *insert, struct store_done *done);

    /* Memory for n more rows and keys, as far as there is capacity, so that pushes of so many find
     * it; called before they are acknowledged to a journal. One comparison where there is that
     * memory. `may_drop`: they ask for statuses, and a store that has no memory for all of them may
     * answer some EMBD_KEY_FULL. EMBD_NO_MEMORY, of a device EMBD_INTERNAL: nothing changed that
     * shows. Never blocks. */
    int (*reserve)(struct store *store, uint64_t n, bool may_drop, struct embd__error *e);

    /* Decides what becomes of these keys, by the code that makes pushes and inserts, after all
     * calls that were made before; and takes memory for it, as reserve does. Shows nothing. The
     * push or insert of the same keys, made with is_prepared before any other call that changes
     * this store, decides the same: it does not fail for want of room, and on the host not for want
     * of memory. It need not be made. So requests that concern several stores are prepared in all
     * of them before the first is changed. Only a store that works asynchronously may wait for its
     * device here, where keys have to be looked at. EMBD_FULL, EMBD_NO_MEMORY: as push;
     * EMBD_INTERNAL of a device. */
    int (*prepare)(struct store *store, struct store_plan *plan, struct embd__error *e);

    /* Calls the done of calls that have ended; they may make new ones. Never waits. Returns whether
     * calls are still under way: then it is to be called again soon. */
    bool (*collect)(struct store *store);

    /* These keys will be pushed soon: a store may look them up now, while the gradients are on
     * their way. Shows nothing and changes nothing; `in` is not kept, but the push gives it again
     * with the same contents, and `number` (not 0, never given twice) as store_push.foreseen.
     * unforesee: that push will not come. Both are NULL in a store that has no use for them. */
    void (*foresee)(struct store *store, const struct store_keys *in, uint64_t number);
    void (*unforesee)(struct store *store, uint64_t number);

    /* Waits for the call with this done, which will not be called: its caller is gone. */
    void (*forget)(struct store *store, struct store_done *done);

    /* Copies rows out. *cursor starts at 0 and is the store's; ends when *cursor is UINT64_MAX
     * afterwards. At most max_rows rows and candidates together, into arrays the caller sized for
     * that many. The table must not change between the first and last call of a scan. Blocks.
     * EMBD_INTERNAL: the device failed; what is in the arrays is to be thrown away. */
    int (*scan)(struct store *store, uint64_t *cursor, uint32_t max_rows, struct store_scan *out,
                struct embd__error *e);

    /* A cut: from freeze to thaw scan_frozen gives the table as it was at freeze, part by part,
     * while calls change it; nothing where the next part is on its way from a device. *done_out
     * tells that there is no more. An error ends the cut, but for the thaw. A table has one at a
     * time. EMBD_NO_MEMORY, and of a device EMBD_INTERNAL. A cut without all rows begins with the
     * keys that were erased or evicted, as candidates that were seen 0 times, in blocks of their
     * own; any of them may have a row again, which comes behind. It has all candidates. */
    int (*freeze)(struct store *store, struct store_cut *cut, struct embd__error *e);
    int (*scan_frozen)(struct store *store, uint32_t max_rows, struct store_scan *out,
                       bool *done_out, struct embd__error *e);
    void (*thaw)(struct store *store); /* not frozen is allowed */

    /* Rows with given values and states, replacing those of the same keys; candidates likewise.
     * EMBD_FULL, EMBD_NO_MEMORY: nothing changed. Blocks. */
    int (*load)(struct store *store, const struct row_block *block, struct embd__error *e);
    void (*set_step)(struct store *store, uint64_t step);

    /* Rows given back are the first to be taken again. No calls are under way. EMBD_NO_MEMORY
     * (never on the host), EMBD_UNSUPPORTED: nothing changed. Blocks. */
    int (*erase)(struct store *store, struct store_erase *erase, struct embd__error *e);

    void (*stats)(const struct store *store, struct store_stats *out);

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
