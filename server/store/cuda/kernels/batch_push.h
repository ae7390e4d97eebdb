/* batch_push.h - a batch of small pushes of one table: what batch_push.c and its kernels share.
 *
 * The keys of all pushes are concatenated in the order of the pushes. Two kernels do the rest.
 * batch_plan looks the keys up, while some of its blocks fetch the gradients from the host's
 * memory; its last block creates rows for new keys and sorts. batch_apply makes each row's steps,
 * push after push, with the results of one push at a time. */
#ifndef EMBD_CUDA_KERNELS_BATCH_PUSH_H
#define EMBD_CUDA_KERNELS_BATCH_PUSH_H

#include "server/store/cuda/kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BATCH_PUSHES_MAX 16u   /* pushes */
#define BATCH_KEYS_MAX   4096u /* of the batch: one block sorts them */
/* Bytes that one block fetches. */
#define BATCH_FETCH_BYTES 8192u

/* Bytes to copy from memory of the host or the device into the block: `from` is aligned to 8, `at`
 * to 16. */
struct batch_fetch {
    const uint8_t *from;
    uint64_t bytes, at;
    uint32_t first_block; /* among the fetching blocks */
};

struct batch_state {
    uint32_t n_found; /* blocks of batch_plan that finished their lookup; 0 between launches */
    uint32_t is_done;
};

/* Report to the host; starts at 0. is_done 0: nothing has changed, because the batch cannot create
 * a row that some key needs, or because a gradient is bad. */
struct batch_report {
    uint32_t is_done, n_new;
    uint32_t bad; /* set before the plan, where the gradients are looked at: checked_copy.cu */
    uint32_t n_inserted[BATCH_PUSHES_MAX];
};

struct batch_view {
    uint32_t n, n_keys;
    uint32_t first_key[BATCH_PUSHES_MAX]; /* first key of each push */
    struct batch_fetch
        fetch[BATCH_PUSHES_MAX + 1]; /* gradients of each push; last, row_of and weights */
    uint32_t n_fetches, n_fetch_blocks;
    embd_dtype dtype;     /* of the gradients */
    uint64_t first_row;   /* number of the first new row */
    bool may_create;      /* there is a free row and entry for each key */
    uint8_t set;          /* change set of changed rows, or unused */
    bool checks;          /* report->bad is to be looked at */
    const uint64_t *keys; /* [n_keys] pinned, as are slots, statuses, report; or lent, read once */
    const struct key_set *own; /* as of keys_view; `keys` are d_keys then */
    const uint16_t *slots;     /* [n_keys], slot tables only */
    uint8_t *statuses;         /* [n_keys] or NULL */
    struct batch_report *report;

    /* Device memory. */
    struct batch_state *state;
    uint8_t *block;         /* destination of the fetches */
    const uint32_t *row_of; /* [n_keys] the key's gradient in its push; NULL: in turn */
    const float *weights;   /* [n_keys] or NULL */
    uint64_t *d_keys;       /* [n_keys] */
    uint32_t *d_slots;      /* [n_keys], slot tables only */
    uint32_t *refs;         /* [n_keys] */
    uint32_t *groups;       /* [n_keys] groups of keys without a row, or GROUP_OUTSIDE */
    uint32_t *ranks;        /* [n_keys] */
    uint64_t *sorted;       /* [n_keys] ref, push, place among the keys: 32, 16, 16 bits; rising */
};

/* The optimizer's step values for each push. */
struct batch_steps {
    struct optimizer_step at[BATCH_PUSHES_MAX];
};

/* `use` is read only if has_use: the table evicts. */
int launch_batch_plan(struct table_view t, struct batch_view j, void *stream);
int launch_batch_apply(struct table_view t, struct batch_view j, embd_optimizer_kind kind,
                       struct batch_steps steps, struct use_view use, bool has_use, void *stream);

#ifdef __cplusplus
}
#endif
#endif
