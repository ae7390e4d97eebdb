/* lookup.h - what pulls found, kept for the pushes of the same keys. A trainer pulls a batch and
 * then pushes its gradients: that push need not look its keys up and sort them again.
 *
 * A push finds its lookup by a print of a few of its keys, and of the set of those that take part.
 * The device then compares all of them, so a lookup of other keys costs time and changes nothing.
 * Rows that move or go away take all lookups with them (lookup_drop_all). Pulls are kept only while
 * pushes of the same keys come.
 *
 * Owner: the shard's thread. */
#ifndef EMBD_CUDA_LOOKUP_H
#define EMBD_CUDA_LOOKUP_H

#include "server/store/cuda/kernels/kernels.h"

struct call;
struct store;

#define LOOKUPS_MAX       16u
#define LOOKUPS_SEEN      LOOKUPS_MAX /* pulls that are remembered: older ones are kept no more */
#define LOOKUP_KEYS_MIN   4097u       /* smaller pushes go in one launch (batch_push.h) */
#define LOOKUPS_BYTES_MAX ((uint64_t)256 << 20) /* of device memory, a table */

struct lookup {
    uint64_t print;
    uint32_t n_keys; /* 0: there is none */
    bool has_own;    /* only keys of `own` took part */
    struct key_set own;
    uint64_t bytes;
    void *memory; /* of the device */
    struct found_view found;
};

struct lookups {
    struct lookup at[LOOKUPS_MAX]; /* the oldest first */
    uint32_t n;
    uint64_t bytes;
    uint64_t seen[LOOKUPS_SEEN]; /* a ring */
    uint32_t n_seen;
    uint32_t n_trusted; /* pulls to be kept before the next push of a pull's keys */
    uint32_t n_resting; /* such pushes that change nothing: a lookup was of no use */
    uint64_t n_used;    /* pushes that had use for one */
};

/* A pull begins: takes memory for its lookup, if it is to be kept, and sets call->found. The
 * kernels of the pull fill it in; lookup_sort comes behind them. */
void lookup_begin(struct call *call);
int lookup_sort(struct call *call);
/* The pull has not been enqueued: nothing will fill its lookup in. */
void lookup_give_up(struct call *call);

/* A push begins: sets call->found to the lookup of its keys, which is the call's from now on.
 * False: there is none. */
bool lookup_take(struct call *call);
/* Its keys are others, or have lost their rows. */
void lookup_reject(struct call *call);

/* Forgets all. Returns whether there were any. */
bool lookup_drop_all(struct store *store);

#endif
