/* call.h - one call of a store: what it asks for, its memory, its arrays. queue.h runs it.
 * Functions that return a number return 0 or a device's status. Owner: the shard's thread. */
#ifndef EMBD_CUDA_CALL_H
#define EMBD_CUDA_CALL_H

#include "server/store/cuda/cuda_store.h"

enum call_kind { CALL_PULL, CALL_PUSH, CALL_INSERT };

/* A call's progress. queue.c has the allowed moves. */
enum call_state {
    CALL_WAITING,   /* for the calls before it */
    CALL_LOOKED_UP, /* the device looks whether it creates anything at all */
    CALL_PLANNED,   /* the device counts what it creates */
    CALL_REPLANNED, /* it counts again, after the one eviction that a call may cause */
    CALL_ENQUEUED,  /* nothing is left but to wait */
    CALL_ENDED,     /* with `status`; call done */
    CALL_STATES
};

/* A small pull or push may go in one launch with the calls of its kind right behind it. */
enum call_batching { CALL_ALONE, CALL_CAN_BATCH, CALL_BATCH_FIRST, CALL_BATCH_FOLLOWER };

/* An array of the request. */
struct input {
    const void *from; /* the caller's; NULL: absent */
    uint64_t bytes;
    uint64_t at;        /* its place in the call's input block, on the device */
    uint64_t staged_at; /* its place in the staging memory */
    enum memory_kind kind;
    const void *on_device; /* where kernels read it */
};
enum {
    IN_KEYS,
    IN_OFFSETS,
    IN_SLOTS,
    IN_WEIGHTS,
    IN_SCORES,
    IN_VALUES,
    IN_STATES,
    IN_COUNT,
};

struct call {
    struct call *next;
    struct store *store;
    enum call_kind kind;
    enum call_state state;
    int status;
    struct store_pull *pull;     /* of a pull, or */
    struct store_change *change; /* of a push or insert */
    struct store_done *done;     /* NULL: a load or a plan, which waits for the result itself */
    struct device_flag *flag;

    struct input inputs[IN_COUNT];
    uint64_t in_bytes, staged_bytes; /* of the input block; of the staged inputs */
    bool is_small;                   /* its inputs are cheaper to stage than to send one by one */
    bool is_lent;  /* its inputs, and a pull's values, are device memory of others: lent.h */
    uint32_t *bad; /* in staging, of a lent push's gradients: launch_checked_copy; or NULL */
    struct keys_view in;
    uint8_t *values;  /* pull: where the kernel writes the rows */
    uint8_t *staging; /* pinned */
    size_t staging_bytes;
    uint8_t *statuses, *statuses_out; /* in staging, and the caller's; or NULL */
    uint8_t *values_out;              /* the caller's, where it is not pinned */
    uint64_t values_bytes;
    uint64_t handed_bytes;     /* of values, already there */
    uint32_t n_pieces, n_told; /* of a pull that is under way; pieces whose end was told */
    enum call_batching batching;
    uint32_t n_batched;                /* CALL_BATCH_FIRST: calls of the batch */
    struct batch_report *batch_report; /* of the whole batch, in staging */
    bool is_unreported;                /* its step counts in store->n_unreported */
    void *scratch;                     /* device memory until all is enqueued */

    struct plan_view plan;
    struct plan_report *report; /* in staging */
    void *select_temp;
    size_t select_bytes;
    uint32_t n_inserted, n_full, n_evicted;
    bool forgets;      /* all candidates, before it is planned: server/store/candidates.h */
    bool may_drop;     /* keys without room are reported; else the call is refused */
    void *step_memory; /* of the device, for the step of a push, once it is reserved */
    bool is_light;     /* its keys are looked up, and nothing is planned unless one has no row */
    bool is_expected;  /* its keys are expected to be new, and have rows that nobody counts yet */
    bool is_whole;     /* it is light, and its step stands behind the lookup already */
    bool is_sorted;    /* the items are sorted ahead */
    struct run_counts *counts; /* of the step, in scratch */
    struct found_view found;   /* of a pull that is kept, or of a push: lookup.h */
    void *found_memory;        /* of a push */
};

/* NULL: out of memory. */
struct call *call_new(struct store *store);
void call_free(struct call *call);

/* Sets the arrays of keys begin .. end, rows first .. first + n_rows. */
void call_set_keys(struct call *call, const struct store_keys *in, uint32_t first, uint32_t n_rows);
void call_set_input(struct call *call, int which, const void *from, uint64_t bytes);
/* Sets in_bytes and staged_bytes. After all inputs are set. */
void call_lay_out_inputs(struct call *call);
/* Copies the inputs to the device's `block`, or leaves them where they are for kernels to read, who
 * read each once (is_in_place). Device memory stays where it is, unless others may write there.
 * Sets on_device of all inputs, and call->in.
 * `staging` begins with staged_bytes bytes for it. */
int call_upload(struct call *call, uint8_t *block, bool is_in_place);

#endif
