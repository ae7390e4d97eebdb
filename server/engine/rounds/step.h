/* step.h - one step made of the pushes of several workers.
 *
 * A push of a round waits: round_enter. When its round waits for no worker (rounds.h), round_take
 * merges the pushes into one operation, which is admitted and applied like any other; round_spread
 * gives each of them the result. Members that leave meanwhile are forgotten: their arrays are
 * copied.
 *
 * A push may come again, by another connection or to a server that has started since: it is known
 * by its place among its client's pushes. If it is in a step that is being made, it gets that one's
 * result; if it is in one that was made (sources.h), it is answered as applied. Otherwise it waits
 * in its round as it did before. */
#ifndef EMBD_ENGINE_STEP_H
#define EMBD_ENGINE_STEP_H

#include "server/engine/op.h"

/* Arrays of a part, from store_ops.buffer_new. */
struct round_buffer {
    void *data;
    uint64_t bytes;
};

struct round_member {
    struct op *push; /* NULL: withdrawn */
    struct push_source source;
};

struct round_step {
    struct op op;            /* first */
    struct round_step *next; /* of engine.steps */
    uint64_t began_ns;       /* the owner's */
    uint32_t n_members;
    struct round_buffer *buffers; /* [n_buffers], one a part */
    uint32_t n_buffers;
    struct push_source sources[PUSH_SOURCES_MAX];
    uint32_t *keys_at; /* [n_members][parts], where a worker's keys begin among the step's */
    struct round_member members[]; /* [n_members] in the order of workers */
};

/* The checked push waits, in its round or for a step that is being made; its tables are NULL,
 * and looked up again where its round makes a step. *replaced_out is the worker's earlier push,
 * which waits no more, or NULL. `may_come_again`: its source is known by an order. PUSH_AGAIN:
 * it is in a step that was made: answer it, and refuse those of rounds_take_late. EMBD_CLOSED:
 * the same push waits, or is in a step that is being made, and came by a later connection.
 * Errors of rounds_join, and EMBD_INVALID where some of its tables are journaled and others are
 * not, or where its learning rates are not those of pushes that wait for the same step. */
int round_enter(struct op *op, const struct push_round *push, bool may_come_again, uint64_t now_ns,
                struct op **replaced_out, struct embd__error *e);

/* Whether a step that was made has the push, whose source is known by an order. Its tables are set.
 */
bool round_has_made(const struct op *op);

/* The step of a round that waits for no worker and whose pushes may all go on by `may` (NULL: they
 * may). NULL: there is none. If it cannot be made, step->op.error says why: round_spread then
 * passes it to the members. */
struct round_step *round_take(struct engine *engine, uint64_t now_ns,
                              bool (*may)(const void *arg, const struct op *push), const void *arg);

/* The step has ended, or was not made: each member has its results or the error, and is done. Frees
 * the step. */
void round_spread(struct round_step *step);

/* The push is withdrawn: it waits no more, and gets no result of a step. */
void round_forget(struct op *op, uint64_t now_ns);

/* Ends steps that are being made, without a result for anyone. */
void round_close(struct engine *engine);

#endif
