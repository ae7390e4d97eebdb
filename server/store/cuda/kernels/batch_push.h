/* batch_push.h - small pushes of a table that are done together: what batch_push.c and its kernels
 * share.
 *
 * The keys of all of them stand one after the other, in the order of the pushes. Two kernels do the
 * rest. batch_plan finds the rows, while some of its blocks fetch the gradients from the host's
 * memory; the block that finds last gives new keys their rows and sorts. batch_apply makes each
 * row's steps, push after push, as they would have come one by one. */
#ifndef EMBD_CUDA_BATCH_PUSH_H
#define EMBD_CUDA_BATCH_PUSH_H

#include "server/store/cuda/kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BATCH_PUSHES_MAX 16u   /* pushes */
#define BATCH_KEYS_MAX   4096u /* of all of them: one block sorts these */
/* Bytes that one block fetches. */
#define BATCH_FETCH_BYTES 8192u

/* Bytes that go from the host's memory, or the device's, into the block: `from` is aligned to 8,
 * `at` to 16. */
struct batch_fetch {
    const uint8_t *from;
    uint64_t bytes, at;
    uint32_t first_block; /* of those that fetch */
};

struct batch_state {
    uint32_t n_found; /* blocks of batch_plan that have found their keys; 0 between two launches */
    uint32_t is_done;
};

/* What the host gets to know; starts at 0. is_done 0: keys had no row, could not be given one, and
 * nothing has changed. */
struct batch_report {
    uint32_t is_done, n_new;
    uint32_t n_inserted[BATCH_PUSHES_MAX];
};

struct batch_view {
    uint32_t n, n_keys;
    uint32_t first_key[BATCH_PUSHES_MAX];           /* of each push */
    struct batch_fetch fetch[BATCH_PUSHES_MAX + 1]; /* its gradients; last, row_of and weights */
    uint32_t n_fetches, n_fetch_blocks;
    embd_dtype dtype;      /* of the gradients */
    uint64_t first_row;    /* of new keys: rows there are */
    bool may_create;       /* there is room for as many rows and entries as there are keys */
    uint8_t set;           /* what rows are noted in where t.row_sets is (change_sets.c) */
    const uint64_t *keys;  /* [n_keys] in pinned memory, as are */
    const uint16_t *slots; /* [n_keys], slot tables only */
    uint8_t *statuses;     /* [n_keys] or NULL, and */
    struct batch_report *report;

    /* Of the device: */
    struct batch_state *state;
    uint8_t *block;         /* that fetches go to */
    const uint32_t *row_of; /* [n_keys] the key's gradient among those of its push; NULL: in turn */
    const float *weights;   /* [n_keys] or NULL */
    uint64_t *d_keys;       /* [n_keys] */
    uint32_t *d_slots;      /* [n_keys], slot tables only */
    uint32_t *refs;         /* [n_keys] */
    uint32_t *groups;       /* [n_keys] of keys without a row, then ranks of the new ones */
    uint32_t *ranks;        /* [n_keys] */
    uint64_t *sorted;       /* [n_keys] ref, push, place among the keys: 32, 16, 16 bits; rising */
};

/* The optimizer's numbers for each push. */
struct batch_steps {
    struct optimizer_step at[BATCH_PUSHES_MAX];
};

/* `use` matters where has_use says so: the table evicts. */
int launch_batch_plan(struct table_view t, struct batch_view j, void *stream);
int launch_batch_apply(struct table_view t, struct batch_view j, embd_optimizer_kind kind,
                       struct batch_steps steps, struct use_view use, bool has_use, void *stream);

#ifdef __cplusplus
}
#endif
#endif
