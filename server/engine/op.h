/* op.h - an operation: what it is to do, as plain data; the store calls it makes; what came of it.
 *
 * Whoever makes an operation keeps its memory, and reuses it: with the same struct op the next
 * operation allocates nothing. Arrays that it points to stay the caller's until it has ended. */
#ifndef EMBD_ENGINE_OP_H
#define EMBD_ENGINE_OP_H

#include <string.h>

#include "proto/assert.h"
#include "proto/key_set.h"
#include "proto/load.h"
#include "proto/opening.h"
#include "proto/placement.h"
#include "proto/schema_change.h"
#include "proto/streamsfile.h"
#include "server/engine/pushers.h"
#include "server/engine/tables.h"

struct commit;
struct engine;
struct sources;

enum op_kind {
    OP_PULL, /* rows, made where the table makes them at their first pull */
    OP_PUSH,
    OP_ERASE,
    OP_TABLE_CREATE,
    OP_TABLE_DROP,
    OP_LOAD,        /* rows with given values, or keys to be forgotten */
    OP_STREAM_OPEN, /* a stream of numbered pushes */
    OP_STREAMS,     /* streams with given positions */
    OP_TABLE_SET,   /* fields of a table's definition */
    OP_STAGE,       /* a table that is loaded to replace another */
    OP_UNSTAGE,     /* no replacement will come of those staged */
    OP_PUT,         /* rows with given values, and states or their first ones */
    OP_REPLACE,     /* staged tables take the places of others, all at once */
    OP_PREPARE,     /* they will, or will not, as shard 0 decides */
};

/* One table's share of a pull, push or erase. */
struct op_part {
    struct part in;
    struct table *table; /* NULL once nothing of it is needed: it may be dropped then */
    uint8_t *statuses;   /* [in.n_keys] in op->statuses, or NULL */
    void *values;        /* of a pull that is made as a whole: [in.n_rows][dim] of in.dtype */
    uint32_t n_made;     /* of these rows, so far; all: its statuses are there, too */
    /* In the first part of a pull for a table whose rows it creates: the keys to insert there. */
    uint32_t n_joined; /* parts of the table; 0: the part is not the first, or creates nothing */
    struct store_keys inserted;
    uint8_t *inserted_statuses;
    bool wants_statuses, may_drop; /* any of the parts; all of them */
    struct store_ticket ticket;    /* of its push or insert, until that is made */
    /* Set when it is applied. */
    uint64_t step; /* of the table, after a push */
    uint32_t n_inserted, n_full, n_filtered, n_evicted, n_erased;
};

/* One store call of an operation, from when it is made until it returns. */
struct op_call {
    struct store_done done; /* first: the call is found by it */
    struct op *op;
    struct op_part *part;
    struct store *store; /* NULL: it has returned */
    union {
        struct store_ticket ticket; /* of any */
        struct store_pull pull;
        struct store_change change;
    } as;
};

struct op_load {
    struct load_fields fields; /* the step and is_gone; the rest is said by: */
    struct table *table;
    struct row_block block;
};

struct op_put {
    struct table *table;
    struct row_block block; /* no candidates; states NULL: the first ones of a row */
    uint64_t step;          /* the table's from then on, no lower than it was; 0: as it is */
    uint64_t n_inserted;    /* set when it is applied: rows that there were not */
};

struct op_table_set {
    struct table *table; /* NULL: the journal does not have it; of a record */
    /* Of the table, then. */
    uint32_t id;
    char name[EMBD_NAME_MAX + 1];
    struct schema_change change;
};

struct op_streams {
    const struct push_stream *list; /* [n] */
    const struct table_set *sets;   /* [n] tables that each has pushed to; NULL: not known */
    const uint32_t *ids; /* [n_ids] of the tables by number, 0: none; of a record that has `sets` */
    uint32_t n_ids;      /* of 64 */
    const uint64_t *packed; /* [n][n_ids / 64 + 1] the sets, as the record has them */
    uint32_t n;
    /* [n_clients] of a base: how far the pushes of each client had come */
    const uint64_t *clients;
    const uint32_t *places;
    uint32_t n_clients;
    bool is_journaled;
    bool may_replace; /* as an earlier version did: other streams go if there is no room */
};

/* Bytes that the tables of the one who asked take, and may take. */
struct op_quota {
    const char *who; /* the name of a token; NULL: there is no limit. Valid until it is submitted */
    uint64_t used, limit; /* bytes of rows */
};

struct op_create {
    struct table_schema schema; /* `auto` is resolved */
    uint32_t id;                /* of a record: the table's; 0: the first free one of its name */
};

struct op_stage {
    uint64_t id;                /* of the replacement */
    struct table_schema schema; /* `auto` is resolved */
    uint32_t table;             /* as op_create.id */
};

/* How far a replacement is; a record says it. */
enum replace_step {
    REPLACE_DONE,      /* OP_REPLACE */
    REPLACE_PREPARED,  /* OP_PREPARE: prepared.h */
    REPLACE_WITHDRAWN, /* OP_PREPARE: it is not made */
    REPLACE_DECIDED,   /* OP_PREPARE of a base, or without tables: it was made */
    REPLACE_PLACED,    /* OP_PREPARE: the map that the shard has, as a base or a start says it */
    REPLACE_STEPS,
};

struct op_replace {
    uint64_t id;
    uint64_t decision; /* the number of the attempt; 0: one shard alone, or an earlier version */
    enum replace_step step;
    struct rollback back[2]; /* [1]: of streams of journaled tables */
    /* The map of keys to shards from then on, in the place of tables; NULL: it stays. The caller's
     * until the operation has ended; of a record, the reader's. */
    const struct placement *place;
    bool is_moving; /* REPLACE_PLACED: rows of other shards' keys may be here */
};

struct op_record {
    struct commit *commit;       /* NULL: none has it */
    void (*turn)(struct op *op); /* the owner's: it waits no more for its record, and is applied or
                                    ended next; or NULL */
    void (*then)(struct op *op); /* the owner's `done` */
    bool is_waiting;             /* for its record, or for its turn */
    bool is_long;                /* meanwhile: a push to a table that is (struct table) */
    bool is_replicated, is_synced; /* what the table's durability has the answer wait for */
    bool is_written;               /* as this one: */
    uint64_t position, checksum;
};

/* Owner: the shard's thread. */
struct op {
    struct engine *engine;
    enum op_kind kind;
    const void *origin; /* the connection, for engine.before_change; NULL: none */
    uint64_t *spent_ns; /* a journal adds the time that applying it took; or NULL */
    uint64_t now_ns;    /* 0: it is of the past, and nothing is idle since */
    uint64_t seconds; /* UNIX time when it came, where a table of it is timed; its record has it, so
                         that a replay expires the same rows. 0: the tables' clocks stay */
    void (*done)(struct op *op); /* called once by engine_apply, when it has ended; or NULL */
    /* Of a pull that is made as a whole, before that: n_made of a part has risen; or NULL. */
    void (*made)(struct op *op);
    bool is_unnamed; /* an erase or a load of keys that no request names, where stores are not
                        is_async: its record is written beside those of pushes, and waits for no
                        sync */

    /* Pull, push, erase. */
    struct op_part *parts; /* [parts_capacity] */
    uint32_t n_parts, parts_capacity;
    uint8_t *statuses; /* [statuses_capacity], of all parts */
    uint64_t statuses_capacity;
    void *memory;   /* malloc'd, of this operation alone */
    void *unpacked; /* the same: gradients that came as i8 or i4 */

    struct push_number number;         /* of a push or put; sequence 0: it has none */
    struct push_source source;         /* of a push; client 0: it did not say */
    uint64_t connection;               /* of a push; rises with the connections of its client */
    const struct push_source *sources; /* [n_sources] of a step made of several; NULL: `source` */
    uint32_t n_sources;
    bool is_left_out; /* a record's, without parts: its tables are left out, its number counts */
    bool is_foreign;  /* the number is of a stream of tables of the other kind: foreign.h */
    bool is_number_alone;  /* a record's: it changed tables that the journal does not have */
    bool begins_old;       /* an unknown stream begins with its push 1: earlier versions */
    struct op_quota quota; /* of a push or pull; never of what a journal has */

    /* Set when it is applied. */
    uint32_t n_applied;  /* of a push or erase, parts that were; of a set, 1: rows have gone */
    bool is_again;       /* a push or put that was applied before */
    bool created;        /* a create: there was none; an opening: the stream was not open */
    struct table *table; /* of a create */
    uint64_t n_slices;   /* of a push: that it left for tables_sweep */
    uint64_t last;       /* of an opening: the last push applied */

    /* A journal's, while it takes the operation: journal/commit.h. */
    struct op_record record;

    /* The engine's. */
    void (*ended)(struct op *op); /* called before `done`; or NULL */
    struct pushers *noted;        /* where a push counts as applied; NULL: nowhere */
    struct op *next_unsure;       /* of engine->unsure */
    struct sources *reached;      /* where its place is noted when it has ended */
    bool in_flight;        /* left with calls that have not returned, or a set with rows that go */
    struct op_call *calls; /* [2 * parts_capacity]: n_calls made, n_out have not returned */
    uint32_t at, n_calls, n_out;
    uint32_t n_sure; /* calls of a pull, from the first, that pull_is_sure looks at no more */

    /* op_begin sets neither of these, but the error's status. */
    struct embd__error error; /* of the first that failed: nothing is done behind it */
    union {
        struct op_create create;
        struct table *dropped;
        struct op_load load;
        struct op_put put;
        struct stream_opening opening;
        struct op_streams streams;
        struct op_table_set set;
        struct op_stage stage;
        uint64_t unstaged; /* id */
        struct op_replace replace;
    } as;
};

/* Memory that was zeroed once becomes an operation of `kind` without parts; what it has allocated
 * before stays. op->as is the caller's to set. */
void op_begin(struct op *op, struct engine *engine, enum op_kind kind);
/* Frees what it has allocated; zeroed memory is allowed. */
void op_fini(struct op *op);

/* Memory for more parts than it has had. */
int op_grow_parts(struct op *op, uint32_t n, struct embd__error *e);
/* Room for n parts, all zero. EMBD_NO_MEMORY. */
static inline int op_size_parts(struct op *op, uint32_t n, struct embd__error *e)
{
    if (n > op->parts_capacity && op_grow_parts(op, n, e) != EMBD_OK)
        return e->status;
    if (n > 0)
        memset(op->parts, 0, n * sizeof *op->parts);
    op->n_parts = n;
    op->at = op->n_applied = op->n_calls = op->n_sure = 0;
    return EMBD_OK;
}
/* Reserves the statuses of the parts that ask for them; sets their `statuses`. EMBD_NO_MEMORY. */
int op_size_statuses(struct op *op, struct embd__error *e);

/* Whether the operation must be journaled before it is applied, and how: EMBD_DURABILITY_SNAPSHOT:
 * not at all. EMBD_INVALID: some of its tables are journaled, others are not. */
int op_durability(const struct op *op, embd_durability *out, struct embd__error *e);

/* Whether it names a table whose rows expire by seconds: then op->seconds is to be set. */
static inline bool op_is_timed(const struct op *op)
{
    if (op->kind == OP_PUT)
        return embd__schema_is_timed(&op->as.put.table->schema.s);
    for (uint32_t i = 0; i < op->n_parts; i++)
        if (op->parts[i].table != NULL && embd__schema_is_timed(&op->parts[i].table->schema.s))
            return true;
    return false;
}

/* The step of a put's new rows, or their second. */
uint64_t op_put_time(const struct op *op, const struct store_stats *stats);

/* Whether it is a push to a table that is_swept, or that is_long; or an erase or load beside pushes
 * to one that is_swept. Its parts' tables are set. */
static inline bool op_is_behind_sweep(const struct op *op)
{
    if (op->kind == OP_LOAD && op->is_unnamed)
        return op->as.load.table->is_swept;
    for (uint32_t i = 0; i < op->n_parts && (op->kind == OP_PUSH || op->is_unnamed); i++)
        if (op->parts[i].table->is_swept)
            return true;
    return false;
}

static inline bool op_is_long(const struct op *op)
{
    for (uint32_t i = 0; i < op->n_parts && op->kind == OP_PUSH; i++)
        if (op->parts[i].table->is_long)
            return true;
    return false;
}

/* Whether its tables are journaled. */
static inline bool op_is_of_journaled(const struct op *op)
{
    switch (op->kind) {
    case OP_STREAM_OPEN:
        return op->as.opening.is_journaled;
    case OP_STREAMS:
        return op->as.streams.is_journaled;
    case OP_PUT:
        return table_is_journaled(op->as.put.table);
    default:
        return op->n_parts > 0 ? table_is_journaled(op->parts[0].table) : op->is_left_out;
    }
}

/* ---- the engine's, while it applies: all calls of an operation are made one right behind the
 * other, so that no other operation's come between them ---- */

/* The next call of at most two a part; the caller fills it in and makes it at once. `fn` calls
 * op_returned after it has taken the result. */
static inline struct op_call *op_call_new(struct op *op, struct op_part *part,
                                          void (*fn)(struct store_done *done, int status))
{
    EMBD_ASSERT(op->n_calls < 2 * op->parts_capacity);
    struct op_call *call = &op->calls[op->n_calls++];
    call->done.fn = fn;
    call->done.error.status = EMBD_OK;
    call->op = op;
    call->part = part;
    call->store = part->table->store;
    op->n_out++;
    return call;
}

void op_returned(struct op_call *call, int status);
/* Makes calls while `next` gives one and none has failed; ends now, or when the last one returns.
 * `op` may be freed afterwards. */
void op_run(struct op *op, bool (*next)(struct op *op));
/* It has ended: done. */
static inline void op_end(struct op *op)
{
    if (op->ended != NULL)
        op->ended(op);
    if (op->done != NULL)
        op->done(op);
}

/* A push whose number is noted is in flight, and may be refused for lack of room: then its number
 * is free again. */
void op_begin_unsure(struct op *op);
void op_end_unsure(struct op *op);
/* Whether the stream of that number has such a push. */
bool op_is_unsure(const struct engine *engine, const struct push_number *number);

/* ---- its owner's ---- */

/* Waits until all calls have returned; op->done is called. */
void op_wait(struct op *op);
/* The calls in flight end without anybody hearing of them: the owner is going. */
void op_leave(struct op *op);
static inline void op_forget(struct op *op)
{
    if (op->in_flight)
        op_leave(op);
}

static inline struct store_keys op_keys(const struct part *in)
{
    return (struct store_keys){
        in->n_keys,  in->n_rows, in->keys,      in->offsets, in->slots,
        in->weights, in->scores, in->on_device, in->own,
    };
}

/* About how many keys take part, which a device alone knows where there is a set of them. */
static inline uint32_t op_n_keys(const struct part *in)
{
    return in->own == NULL ? in->n_keys : embd__key_set_share(in->own, in->n_keys);
}

/* Those of whom a push is; n 0: nobody said. */
static inline const struct push_source *op_sources(const struct op *op, uint32_t *n_out)
{
    *n_out = op->sources != NULL ? op->n_sources : op->source.client != 0;
    return op->sources != NULL ? op->sources : &op->source;
}

#endif
