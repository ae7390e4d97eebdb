/* rounds.h - synchronous SGD: the pushes of a job's workers that belong to one clock become one
 * step.
 *
 * A round is known by its job and the tables that are pushed to, in their order. It waits until
 * every worker of the job has been seen, and each live one has pushed for the clock or for a later
 * one. A worker that does not push for its lease is dropped, and not waited for until it pushes
 * again; one whose push is waiting is never dropped. Whatever the order in which pushes arrive,
 * they are handed out in the order of their workers.
 *
 * Here is who is waited for; making the step is round_step.c's. Kept in memory alone. Owner: the
 * shard's thread. */
#ifndef EMBD_SHARD_ROUNDS_H
#define EMBD_SHARD_ROUNDS_H

#include "clocks.h"
#include "message.h"

#define ROUNDS_MAX 256u

struct request;

struct round_worker {
    enum worker_state state;
    uint64_t next;        /* the least clock it may push for */
    uint64_t deadline_ns; /* live and not waiting: dropped after it */
    uint64_t lease_ns;
    struct request *push; /* waits; NULL: none */
    uint64_t clock;       /* of that push */
};

struct round {
    char job[EMBD_NAME_MAX + 1];
    uint32_t tables[LIMIT_PARTS]; /* ids */
    uint32_t n_tables;
    uint32_t n_workers, n_waiting;
    uint64_t next;                 /* the least clock that no step has been made for */
    struct round_worker workers[]; /* [n_workers] */
};

struct rounds {
    struct round *rounds[ROUNDS_MAX]; /* NULL where there is none */
    uint32_t n_waiting;               /* pushes, of all rounds */
    uint64_t look_ns;                 /* when leases are looked at next */
};

void rounds_fini(struct rounds *rounds);

/* Takes a worker's push, which waits from now on. *replaced_out is the worker's earlier push that
 * waited, of a connection it has lost, or NULL: it waits no more. EMBD_INVALID: the round has
 * another number of workers, or its step for this clock has been made; EMBD_FULL: there are
 * ROUNDS_MAX rounds with live workers; EMBD_NO_MEMORY. Then nothing waits that did not before. */
int rounds_join(struct rounds *rounds, const struct push_round *push, const uint32_t *tables,
                uint32_t n_tables, uint64_t now_ns, struct request *request,
                struct request **replaced_out, struct embd__error *e);

/* A push that waits is withdrawn: its connection is gone. Its worker is still waited for. */
void rounds_withdraw(struct rounds *rounds, const struct request *request);

/* Nobody shall wait for this worker of the job any more. */
void rounds_leave(struct rounds *rounds, const char *job, uint32_t worker);

/* Drops workers whose leases have run out, every 10 ms where pushes wait. True: it has looked. */
bool rounds_look(struct rounds *rounds, uint64_t now_ns);

/* Takes the pushes of one step, in the order of their workers, out of a round that waits for nobody
 * and whose pushes may all go on by `may` (NULL: they may). requests_out [EMBD_WORKERS_MAX]. Returns
 * how many; 0: all rounds wait. */
uint32_t rounds_take(struct rounds *rounds, uint64_t now_ns,
                     bool (*may)(const void *arg, const struct request *push), const void *arg,
                     struct request **requests_out);

/* Takes any push that waits, to be refused; NULL: none waits. */
struct request *rounds_take_any(struct rounds *rounds);

#endif
