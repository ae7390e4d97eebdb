/* rounds.h - synchronous SGD: the pushes of a job's workers that belong to one clock become one
 * step.
 *
 * A round is known by its job and the tables that are pushed to, in their order. It waits until
 * every worker of the job has been seen, and each live one has pushed for the clock or for a later
 * one. Who is live is the job's (jobs.h): a push is a sign of life, and its worker is not dropped
 * while it waits. A push for a clock whose step was made without the worker comes late, and is in
 * no step: there is one for each clock. Whatever the order in which pushes arrive, they are handed
 * out in the order of their workers.
 *
 * Here is who is waited for; making the step is step.c's. Kept in memory alone: after a start a
 * round begins with the least clock that is pushed for, and learns from pushes that come again
 * which steps were made. Owner: the shard's thread. */
#ifndef EMBD_ENGINE_ROUNDS_H
#define EMBD_ENGINE_ROUNDS_H

#include "server/engine/rounds/jobs.h"
#include "proto/message.h"

#define ROUNDS_MAX 256u

struct op;

struct round_worker {
    uint64_t next;   /* the least clock it may push for */
    struct op *push; /* waits; NULL: none */
    uint64_t clock;  /* of that push */
};

struct round {
    uint64_t serial;  /* of its job */
    struct job *job;  /* while pushes wait: those are of live workers, so that it stays */
    uint32_t *tables; /* [n_tables] ids, behind the workers */
    uint32_t n_tables;
    uint32_t n_workers, n_waiting;
    uint64_t next;                 /* the least clock that no step has been made for */
    struct round_worker workers[]; /* [n_workers] */
};

struct rounds {
    struct round *rounds[ROUNDS_MAX]; /* NULL: none */
    uint32_t n_waiting;               /* pushes, of all rounds */
};

void rounds_fini(struct rounds *rounds);

/* Takes a worker's push, which waits from now on. *replaced_out is the worker's earlier push that
 * waited, of a connection it has lost, or NULL: it waits no more. EMBD_LATE: its step was made
 * without the worker; EMBD_INVALID: the worker has pushed for the clock, and errors of jobs_enter;
 * EMBD_FULL: there are ROUNDS_MAX rounds of jobs with live workers; EMBD_NO_MEMORY. Then nothing
 * waits that did not before. */
int rounds_join(struct rounds *rounds, struct jobs *jobs, const struct push_round *push,
                const uint32_t *tables, uint32_t n_tables, uint64_t now_ns, struct op *request,
                struct op **replaced_out, struct embd__error *e);

/* A worker sends the push of a step again that was made with it, or is being made: after a start
 * the shard learns by it that the step was made, if `is_last`: it is the last of its client in a
 * step. The clock of an earlier one says nothing. A worker that has left, or was dropped, does not
 * become live. Errors of jobs_enter; EMBD_FULL, EMBD_NO_MEMORY. */
int rounds_repeat(struct rounds *rounds, struct jobs *jobs, const struct push_round *push,
                  bool is_last, const uint32_t *tables, uint32_t n_tables, uint64_t now_ns,
                  struct embd__error *e);

/* Takes a push that waits for a step which was made without it, and says so in e (EMBD_LATE);
 * NULL: none does. */
struct op *rounds_take_late(struct rounds *rounds, uint64_t now_ns, struct embd__error *e);

/* A push of another worker that waits for the same step; NULL: none does. */
const struct op *rounds_beside(const struct rounds *rounds, const struct push_round *push,
                               const uint32_t *tables, uint32_t n_tables);

/* The worker's own push that waits there, for any clock; NULL: none does. */
const struct op *rounds_own(const struct rounds *rounds, const struct push_round *push,
                            const uint32_t *tables, uint32_t n_tables);

/* Withdraws a push whose connection is closed. The others still wait for its worker, for its lease.
 * False: the push does not wait. */
bool rounds_withdraw(struct rounds *rounds, const struct op *request, uint64_t now_ns);

/* Takes a waiting push of a worker, to be refused; NULL: none waits. Then rounds of the job know
 * nothing of the worker. */
struct op *rounds_take_out(struct rounds *rounds, const struct job *job, uint32_t worker);

/* Whether the job has a round in which that table is pushed to. */
bool rounds_push_to(const struct rounds *rounds, const struct job *job, uint32_t table);

/* The worker other than the asker that pushes of the job wait for. False: none. */
bool rounds_awaited(const struct rounds *rounds, const struct job *job, uint32_t asker,
                    uint32_t *worker_out);

/* Takes the pushes of one step, in the order of their workers, out of a round that waits for no
 * worker and whose pushes may all go on by `may` (NULL: they may). requests_out [EMBD_WORKERS_MAX].
 * Returns their number; 0: all rounds wait. */
uint32_t rounds_take(struct rounds *rounds, uint64_t now_ns,
                     bool (*may)(const void *arg, const struct op *push), const void *arg,
                     struct op **requests_out);

/* Takes any waiting push, to be refused; NULL: none waits. */
struct op *rounds_take_any(struct rounds *rounds);

#endif
