/* work.h - what the shard keeps for one request from its handling to its last sent byte, in a pool,
 * so that a pull or push allocates nothing once the pool is warm. */
#ifndef EMBD_SERVICE_WORK_H
#define EMBD_SERVICE_WORK_H

#include "proto/key_set.h"
#include "server/engine/op.h"
#include "server/service/shard.h"

/* The rows that answer one part of a pull. */
struct answer_rows {
    uint32_t bin;    /* of the values in the answer */
    uint32_t n_made; /* rows made so far */
    uint64_t row_bytes;
    uint8_t *values; /* rows made before they are sent, from store_ops.buffer_new; NULL: none */
    uint64_t values_bytes, values_at; /* size, and how much shard_fill has handed on */
    uint64_t room_bytes;              /* of `values`, with what follows them: pull_wide_bytes */
    bool is_materialized;             /* by materialize.c */
};

/* Owner: the shard's thread. */
struct shard_work {
    struct op op;       /* first: the work is found by it */
    struct key_set own; /* of a part in memory of a GPU that has a set */
    struct shard *shard;
    struct request *request;
    uint64_t parts_bytes;     /* of many parts, counted in the pool */
    uint64_t unpacked_bytes;  /* of rows of i8 or i4, as f32: charged to the peers' memory */
    struct answer_rows *rows; /* of a pull: [rows_capacity], one a part */
    uint32_t rows_capacity;
    void *memory;           /* malloc'd, of this request alone: arrays its answer points to */
    uint64_t charged_bytes; /* of it, to the peers' memory: work_memory */
    void (*result)(const struct shard_work *work, struct msg *m); /* of submit() */
    uint32_t fill;                                                /* part that shard_fill is at */
    uint64_t began_ns;
    bool is_begun; /* rows of the answer were made for sending */
    bool is_streaming;
    struct shard_work *next, *before; /* streaming pulls, or (next) the pool */
};

struct work_pool {
    struct shard_work *free;
    uint32_t n_free;
    uint64_t parts_bytes; /* of works in use that have many parts */
};

/* A work of nothing, as request->work. NULL: out of memory. */
struct shard_work *work_new(struct shard *shard, struct request *request);
/* Takes back everything. */
void work_free(struct shard_work *work);
void work_pool_fini(struct work_pool *pool);

/* Room for n parts of work->op. EMBD_BUSY: requests of many parts that are in progress take as much
 * as they may; EMBD_NO_MEMORY. */
int work_size_parts(struct shard_work *work, uint32_t n, struct embd__error *e);
/* The gradients of a push as f32, where they came as i8 or i4, charged to what peers may take until
 * it is answered. EMBD_BUSY: peers have all of it now; EMBD_TOO_LARGE, EMBD_NO_MEMORY: unpack_push.
 */
int work_unpack(struct shard_work *work, struct embd__error *e);
/* Charges rows of i8 or i4, which take so many bytes as f32, to what peers may take until the
 * request's end. `what` they are. EMBD_BUSY: peers have all of it now. */
int work_charge_unpacked(struct shard_work *work, uint64_t bytes, const char *what,
                         struct embd__error *e);

/* work->memory of that size, charged to what peers may take until the answer is sent. NULL:
 * EMBD_BUSY, peers have all of it now; EMBD_NO_MEMORY. */
void *work_memory(struct shard_work *work, uint64_t bytes, struct embd__error *e);

/* The work's operation, of this kind, for the request's connection. */
struct op *work_op(struct shard_work *work, enum op_kind kind);

/* Frees the rows of a part that were made before they were sent. */
void work_free_rows(struct shard *shard, struct answer_rows *rows);

static inline struct shard_work *work_of(const struct op *op)
{
    return (struct shard_work *)(uintptr_t)op;
}

#endif
