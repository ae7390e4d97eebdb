/* engine.h - the tables of one shard, and all that operations change: rows, streams of numbered
 * pushes, jobs and their rounds.
 *
 * An engine is a state machine. Operations (op.h) come in one order. The same operations in the
 * same order give the same bits, whether a request, a replayed journal or a test applies them. The
 * engine knows no frame, connection, token or file, and reads no clock: an operation brings its
 * time.
 *
 * There are two steps, so that an operation can be journaled between them: engine_admit() refuses
 * what is sure to be refused, and engine_apply() applies it. Decisions that depend on the
 * operations before it (a push's number, room) are made when it is applied, and a replay makes the
 * same.
 *
 * Reading order: tables.h, op.h, check.h (keys and gradients against schemas), push.c, insert.c and
 * pull.c, apply.c (the rest), capacity.c, pushers.h, sources.h; rounds/ (trainers in step).
 *
 * Owner: the shard's thread. */
#ifndef EMBD_ENGINE_H
#define EMBD_ENGINE_H

#include "server/engine/op.h"
#include "server/engine/prepared.h"
#include "server/engine/rounds/jobs.h"
#include "server/engine/rounds/rounds.h"
#include "server/engine/rounds/step.h"
#include "server/engine/pushers.h"
#include "server/engine/sources.h"
#include "server/engine/table_setting.h"

/* The effect of an operation on a table. */
enum change {
    CHANGE_INSERTS, /* first values get rows: visible only if zeros were requested */
    CHANGE_ROWS,
    CHANGE_DROP, /* the table goes */
};

struct engine_counters {
    uint64_t keys_pushed, keys_inserted, keys_filtered, keys_full, keys_evicted, keys_erased;
    uint64_t round_steps, pushes_again;
};

/* A set that takes rows from its table, slice by slice. */
struct engine_set {
    struct setting_owner owner; /* first */
    bool is_on, was_journaled;
    struct op *op;    /* that waits for it: */
    struct op orphan; /* this one, where its owner has gone */
};

/* The map of keys to shards that the records say, as a base is to say it. */
struct engine_placed {
    bool is_set;       /* false: the even one, version 1 */
    uint64_t decision; /* by which it came; 0: by none */
    bool is_foreign;   /* the owner's: rows of other shards' keys may be here */
    struct placement map;
};

struct engine {
    struct tables tables;
    struct pushers pushers, journaled_pushers; /* of pushes to snapshot tables, and to the others */
    /* How far the pushes of each client have come, likewise. */
    struct sources sources, journaled_sources;
    struct jobs jobs;
    struct rounds rounds;
    struct round_step *steps; /* being made of rounds */
    struct engine_set set;
    struct engine_counters counters;
    struct op *unsure;          /* pushes in flight that may be refused: op_begin_unsure */
    uint64_t n_were_unsure;     /* of them, that have ended */
    uint32_t n_in_flight;       /* operations with store calls that have not returned */
    uint32_t n_recorded;        /* operations that a journal takes, and that are not applied yet */
    bool is_replaying;          /* a start applies what a journal has */
    struct push_stream *behind; /* [n_behind] foreign.h; malloc'd */
    uint32_t n_behind;
    struct prepared prepared; /* it waits for the decision of shard 0 */
    uint64_t decided;         /* the last replacement made, as its decision; 0: none */
    struct engine_placed placed;
    bool replicates_maps; /* what all shards do together waits for followers */
    bool is_read;         /* the owner's: answers on their way need what tables have */
    /* Set by the owner; NULL: no callback. Called before `origin`'s operation changes a table while
     * is_read. EMBD_NO_MEMORY, EMBD_BUSY: it must not change it. */
    int (*before_change)(void *arg, const void *origin, const struct table *table,
                         enum change change, struct embd__error *e);
    /* Before that, of a table that is about to go. */
    void (*before_drop)(void *arg, const struct table *table);
    /* An operation has ended that was left with calls in flight. */
    void (*on_returned)(void *arg);
    /* Keys are on other shards from now on, or are found to be by a replay: `place` of it. */
    void (*on_placed)(void *arg, const struct op_replace *replace);
    /* Rows are loaded. */
    void (*on_loaded)(void *arg, const struct op_load *load);
    void *arg;
};

void engine_init(struct engine *engine, const struct store_ops *ops);
/* No operation may be under way. */
void engine_fini(struct engine *engine);

/* Whether an operation can be applied, as far as that is known now. Its parts and tables are
 * checked (check.h) and set. EMBD_OK: it can, or its turn decides; or op->is_again is set: it was
 * applied before. Else op->error says why not, and nothing has changed. */
int engine_admit(struct op *op);

int engine_ask(const struct op *op, struct embd__error *e);
/* Asks before_change for all tables of the operation; not for a push whose tables nobody reads.
 * engine_admit does. EMBD_BUSY and EMBD_NO_MEMORY: not now; op->error stays as it is. */
static inline int engine_make_way(const struct op *op, struct embd__error *e)
{
    bool is_free = op->kind == OP_PUSH && !op->engine->is_read;
    return is_free ? EMBD_OK : engine_ask(op, e);
}

/* Applies it, now or when a device has: then op->done is called, where it is not NULL, with the
 * results in `op`, or op->error. Refused, it has changed nothing, except that of several parts some
 * may be applied (op->n_applied) where a device fails. */
void engine_apply(struct op *op);

/* The streams of numbered pushes that the operation belongs to. */
static inline struct pushers *op_pushers(const struct op *op)
{
    return op_is_of_journaled(op) != op->is_foreign ? &op->engine->journaled_pushers
                                                    : &op->engine->pushers;
}

/* Begins a look at its parts, for tables_first. */
static inline uint64_t op_look(const struct op *op)
{
    return ++op->engine->tables.n_looks;
}

#endif
