/* work.h - what the shard keeps for one request from its handling to its last sent byte, in a pool,
 * so that a pull or push allocates nothing once the pool is warm. */
#ifndef EMBD_SHARD_WORK_H
#define EMBD_SHARD_WORK_H

#include "proto/opening.h"
#include "server/journal/record.h"
#include "server/shard/shard.h"
#include "server/engine/tables.h"

/* One table's share of a pull or push. */
struct work_part {
    struct part in;
    struct table *table; /* NULL once nothing of it is needed: it may be dropped then */
    uint8_t *statuses;   /* [in.n_keys] in work->statuses, or NULL */
    /* Pull. */
    uint32_t bin;    /* of the values in the answer */
    uint32_t n_made; /* rows made so far */
    uint64_t row_bytes;
    uint8_t *values; /* rows made before they are sent, from store_ops.buffer_new; NULL: none */
    bool is_settled; /* by settle.c */
    uint64_t values_bytes, values_at; /* size, and how much shard_fill has handed on */
    /* Of a pull's first part of a table whose rows it creates: what that table is to insert. */
    uint32_t n_joined; /* parts of the table; 0: the part is not the first, or creates nothing */
    struct store_keys inserted;
    uint8_t *inserted_statuses;
    bool wants_statuses, may_drop; /* any of the parts; all of them */
    /* Push. */
    uint64_t step;
    uint32_t n_inserted, n_full, n_filtered, n_evicted;
};

/* One store call of a request, from when it is made until it returns. */
struct work_call {
    struct store_done done; /* first: the call is found by it */
    struct shard_work *work;
    struct work_part *part;
    struct store *store; /* NULL: it has returned */
    union {
        struct store_pull pull;
        struct store_push push;
        struct store_insert insert;
    } as;
};

/* Owner: the shard's thread. */
struct shard_work {
    struct shard *shard;
    struct request *request;
    struct work_part *parts; /* [parts_capacity] */
    uint32_t n_parts, parts_capacity;
    uint8_t *statuses; /* [statuses_capacity], of all parts */
    uint64_t statuses_capacity;
    void *memory;  /* malloc'd, of this request alone: arrays its answer points to */
    uint32_t fill; /* part that shard_fill is at */
    uint64_t began_ns;

    struct push_writer writer;     /* of a push; sequence 0: none */
    struct writers *noted;         /* where it counts as applied; NULL: nowhere */
    struct stream_opening opening; /* where it is one */
    bool is_opening;         /* no push, but the opening of a stream; its record is being written */
    bool is_coming;          /* its keys count in its tables' n_coming */
    bool is_prepared;        /* its parts' stores are, for the calls that come next */
    bool is_recorded;        /* it is in the journal, */
    struct record_id record; /* as this one */

    /* The store calls of a request: all are made at once, so that no other request's come between
     * them. */
    bool (*next_call)(struct shard_work *work); /* makes the next one; false: there is none */
    void (*end)(struct shard_work *work);       /* answers; called once, when all have returned */
    uint32_t at;                                /* where next_call stands; its own */
    uint32_t n_applied;                         /* of a push, parts that were */
    struct work_call
        *calls; /* [2 * parts_capacity], the first n_calls are made, n_out have not returned */
    uint32_t n_calls, n_out;
    bool in_flight;           /* left with calls that have not returned */
    struct embd__error error; /* of the first that failed: none is made behind it */

    bool is_streaming;
    bool is_begun;                    /* rows of the answer were made for sending */
    struct shard_work *next, *before; /* streaming pulls, or (next) the pool */
};

struct work_pool {
    struct shard_work *free;
    uint32_t n_free;
};

/* A work of no parts, as request->work. NULL: out of memory. */
struct shard_work *work_new(struct shard *shard, struct request *request);
/* Takes back everything. */
void work_free(struct shard_work *work);
void work_pool_fini(struct work_pool *pool);

/* Room for n parts, all zero. */
int work_size_parts(struct shard_work *work, uint32_t n, struct embd__error *e);
/* Room for the statuses of the parts that want them; sets their `statuses`. */
int work_size_statuses(struct shard_work *work, struct embd__error *e);

/* Makes the store calls, and ends now or when the last returns. `work` may be gone afterwards. */
void work_run(struct shard_work *work);
/* For next_call: the next call of at most two a part, to be filled in and made right away. `fn`
 * calls work_returned when it has taken what it needs from it. */
struct work_call *work_call_new(struct shard_work *work, struct work_part *part,
                                void (*fn)(struct store_done *done, int status));
void work_returned(struct work_call *call, int status);

/* Waits until all calls have returned. `work` may be gone afterwards, unless its request is the
 * caller's. */
void work_wait(struct shard_work *work);
/* The calls in flight end without anybody hearing of them: the request is going. */
void work_forget(struct shard_work *work);

#endif
