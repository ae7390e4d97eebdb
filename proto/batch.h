/* batch.h - keys, rows and gradients as plain arrays: what requests carry and what an engine's
 * operations take. No bytes of a message are here. */
#ifndef EMBD_PROTO_BATCH_H
#define EMBD_PROTO_BATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "embd/embd.h"
#include "embd/sync.h"

struct key_set;

/* ---- one table's share of a pull, push or erase ---- */

/* An erase has no offsets: slots are those of its keys. */
enum parts_kind { PARTS_PULL, PARTS_PUSH, PARTS_ERASE };

/* Dtypes on the wire: those before this one. */
#define PART_DTYPES 5

struct part {
    uint32_t table;   /* embd__table_id */
    embd_dtype dtype; /* of values on the wire */
    uint32_t n_keys;
    uint32_t n_rows; /* CSR rows; n_keys when offsets is NULL */
    bool want_status;
    bool zero_missing; /* pull: zeros for keys without a row */
    bool scale; /* with offsets, of mean and sqrtn: the server divides, by the keys of this message
                 * alone: a pull's rows, a push's gradients */
    float lr;   /* push: the learning rate of its step; 0: the table's */
    uint64_t into;           /* pull: where in shared memory its rows go; 0: into the answer */
    const uint64_t *keys;    /* [n_keys], slot offsets added */
    const uint32_t *offsets; /* [n_rows + 1] or NULL: one key per row */
    const uint16_t *slots;   /* [n_rows], slot tables only */
    const float *weights;    /* [n_keys] or NULL; needs offsets */
    const float *scores;     /* push: [n_keys] or NULL, of evict_score; -inf: the key gets none */
    const void *grads;       /* push: [n_rows][dim] of dtype; values_bytes */
    uint64_t grads_bytes;
    bool on_device;            /* a server's: keys, rows and gradients lie in memory of a GPU */
    const struct key_set *own; /* with on_device: only these keys take part; NULL: all do */
};

/* Parts that lie `stride` bytes apart. */
struct part_list {
    const struct part *first;
    size_t stride;
    uint32_t n;
};

/* How long a worker's sign of life lasts, in ticks and rounds. */
#define LEASE_MIN_MS     100u
#define LEASE_MAX_MS     3600000u
#define LEASE_DEFAULT_MS 10000u

/* A push that becomes one step together with those of the other workers of its job. */
struct push_round {
    char job[EMBD_NAME_MAX + 1];
    uint32_t worker,
        n_workers;  /* worker < n_workers <= EMBD_WORKERS_MAX; n_workers 0: a push by itself */
    uint64_t clock; /* below UINT64_MAX */
    uint32_t lease_ms;
    uint64_t incarnation; /* of the worker's process; 0: none */
    uint64_t epoch;       /* of the job that it belongs to; 0: it joins */
};

/* The pusher and number of a push: with them a repeated push is applied once. */
struct push_number {
    uint64_t high, low; /* the pusher's id */
    uint64_t sequence;  /* 1, 2, ... of a pusher's stream, on each shard; 0: a push of no pusher */
    uint64_t stream;    /* u32 */
};

/* The client of a push, and the push's place among that client's: the low 32 bits of its order. */
struct push_source {
    uint64_t client; /* 0: it did not say */
    uint32_t place;
};

#define PUSH_SOURCES_MAX 128u /* of the pushes of one step that a record names */

/* The fields of a push besides its parts. */
struct push_extra {
    struct push_round round;
    struct push_number number;
    uint64_t order; /* of the push among those of its client, one on all shards; 0: none */
    const struct push_source *sources; /* [n_sources] of a record, which alone has them */
    uint32_t n_sources;                /* PUSH_SOURCES_MAX at most; set by a writer alone */
    uint64_t seconds;   /* of a record: UNIX time when its shard took it; 0: none; see op.h */
    bool is_foreign;    /* of a record: see op.h */
    uint64_t placement; /* written only: version of the map that split the keys; 0: the even one */
    bool asks_lag;      /* of a pull, written only: its answer says how far behind the server is, */
    uint64_t max_behind_ms; /* which refuses where that is more than this; 0: it does not */
};

/* ---- rows in bulk ---- */

/* `rows` have the table's dtype, `states` f32. Candidates are keys that wait for a row
 * (admit_after). */
struct row_block {
    uint32_t n_rows, n_candidates;
    const uint64_t *keys;            /* [n_rows] */
    const uint16_t *slots;           /* [n_rows], slot tables only, else NULL */
    const void *rows;                /* [n_rows][dim] */
    const float *states;             /* [n_rows][state_floats]; NULL when state_floats is 0 */
    const uint64_t *candidate_keys;  /* [n_candidates] */
    const uint16_t *candidate_slots; /* [n_candidates], slot tables only */
    const uint32_t *candidate_counts;
};
/* Whether a block is of keys that lost their rows: candidates that were seen 0 times, and nothing
 * else. */
static inline bool embd__block_is_gone(const struct row_block *block)
{
    return block->n_rows == 0 && block->n_candidates > 0 && block->candidate_counts[0] == 0;
}

/* Of a block from a part that another one of the chain follows, which has all candidates there are
 * then: only its rows, or the keys to be forgotten, count. */
static inline void embd__block_drop_candidates(struct row_block *block)
{
    if (!embd__block_is_gone(block))
        block->n_candidates = 0;
}

#endif
