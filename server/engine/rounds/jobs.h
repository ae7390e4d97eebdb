/* jobs.h - who takes part in a job: one list of workers, for its clocks and for its rounds.
 *
 * A worker is a process, known by its incarnation. It joins, gives signs of life, and leaves. Every
 * request of a worker for its job is a sign of life, for its lease; while one of its pushes waits
 * in a round the lease does not run. A worker whose lease runs out is dropped: the others do not
 * wait for it until its next request makes it live again. If it is late, because the job has gone
 * on without it, it must first join at the job's clock.
 *
 * Joining takes three forms. The process that the shard knows goes on. Another process that joins
 * takes the place of the one before. A job that all have left, or without a live worker when a new
 * process joins, begins again as its next epoch; workers of an earlier epoch are refused. Leases
 * that run out, however many at once, do not begin a new epoch. A job is over, too, where a table
 * of its rounds goes back to a checkpoint: its workers are refused, and the next process begins.
 *
 * The answer for a clock, the iterations that a worker has finished, is the slowest of the live
 * workers. The worker decides with it whether to go on: bulk-synchronous with a staleness of 0,
 * stale-synchronous with s, asynchronous without asking.
 *
 * Jobs are in memory only: after a restart workers join again. Owner: the shard's thread. */
#ifndef EMBD_ENGINE_JOBS_H
#define EMBD_ENGINE_JOBS_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/errors.h"
#include "proto/message.h"

#define JOBS_MAX 64u

enum worker_state { WORKER_ABSENT, WORKER_LIVE, WORKER_DROPPED, WORKER_LEFT };

struct job_worker {
    uint64_t incarnation; /* of the process; not ABSENT */
    uint64_t epoch;       /* that it knew when it came; 0: it joined */
    uint64_t clock;       /* in its last request */
    uint64_t done;        /* it has finished this many, by its ticks and by rounds it was in */
    uint64_t from;        /* no round of a clock before waits for it: that of its last tick */
    uint64_t lease_ns, seen_ns,
        deadline_ns;    /* live and none of its pushes waits: dropped after it */
    uint32_t n_waiting; /* pushes in rounds */
    enum worker_state state;
    bool is_asynchronous; /* waits for no worker, and so is never late */
};

struct job {
    char name[EMBD_NAME_MAX + 1];
    uint64_t serial;  /* no other job or epoch of this shard has it */
    uint64_t epoch;   /* 1, 2, ... */
    uint64_t stepped; /* no round has made a step for this clock, or a later one */
    bool is_over;     /* nobody of this epoch takes part any more */
    uint32_t n_workers;
    struct job_worker workers[]; /* [n_workers] */
};

struct jobs {
    struct job *jobs[JOBS_MAX]; /* NULL: none */
    uint64_t last_serial;
    uint64_t looked_ns; /* last time that jobs_look was called */
    /* Called before a worker leaves, or another process takes its place: withdraws its waiting
     * pushes, and clears what rounds know of it. NULL: there are no rounds. */
    void (*on_replaced)(void *arg, const struct job *job, uint32_t worker);
    void *arg;
};

/* The worker that sends a request. */
struct job_claim {
    const char *job;
    uint32_t worker, n_workers; /* worker < n_workers <= EMBD_WORKERS_MAX */
    uint64_t lease_ns;
    uint64_t incarnation; /* 0: a client that sends none; all of these are one process */
    uint64_t epoch;       /* that it belongs to by this shard's last answer; 0: it joins */
};

struct job_tick {
    struct job_claim claim;
    uint64_t clock;
    bool asynchronous;
    bool leave; /* the others stop waiting for this worker */
};

void jobs_fini(struct jobs *jobs);

/* NULL: there is none of that name. Until the next call. */
const struct job *jobs_named(struct jobs *jobs, const char *name);
/* The job of a claim, whose worker it is now, whatever its state; `job_out` stays until the next
 * call. EMBD_INVALID: the job has another number of workers, the worker is another process now, or
 * of an epoch that is over; EMBD_FULL: there are JOBS_MAX jobs with live workers; EMBD_NO_MEMORY.
 */
int jobs_enter(struct jobs *jobs, const struct job_claim *claim, uint64_t now_ns,
               struct job **job_out, struct embd__error *e);

/* All workers leave, and are refused from now on, though they have not said so: jobs_enter. */
void jobs_end(struct jobs *jobs, struct job *job);

/* A worker that was found by jobs_enter is live from now on, at `clock` where it was not. */
void jobs_live(struct job *job, const struct job_claim *claim, uint64_t clock, uint64_t now_ns);

/* Takes a worker's clock. EMBD_INVALID, also if the clock of a live worker decreases; EMBD_LATE:
 * the worker is not live, and the job is at a later clock. Then nothing changes. */
int jobs_tick(struct jobs *jobs, const struct job_tick *tick, uint64_t now_ns, struct job **job_out,
              struct embd__error *e);

/* A sign of life alone: no clock decreases, and no worker is late. A worker that the shard does not
 * know joins at the clock; a dropped one is live again unless the job has gone on without it. */
int jobs_beat(struct jobs *jobs, const struct job_tick *tick, uint64_t now_ns, struct job **job_out,
              struct embd__error *e);

#define JOBS_LOOK_NS UINT64_C(10000000)

/* Whether jobs_look has something to do: a shard without a job has not. */
static inline bool jobs_is_due(const struct jobs *jobs, uint64_t now_ns)
{
    return jobs->last_serial > 0 && now_ns - jobs->looked_ns >= JOBS_LOOK_NS;
}

/* Drops workers whose leases have run out, every 10 ms. To be called all the time: time in which it
 * was not counts for no lease. True: it has looked. */
bool jobs_look(struct jobs *jobs, uint64_t now_ns);

/* The job with this serial; NULL: it is over. */
struct job *jobs_of(const struct jobs *jobs, uint64_t serial);

/* The least clock of the live workers; 0 until all of the job's workers have been seen. Without a
 * live one, the greatest clock of any. */
uint64_t jobs_slowest(const struct job *job);

/* The clock at which a worker that is not live may join: the job has gone on from every clock
 * before. */
uint64_t jobs_clock(const struct job *job);

uint32_t jobs_count(const struct job *job, enum worker_state state);

/* Of the jobs that `counts` is true for, those with live workers; 0 where `name` is one of the
 * jobs. */
uint32_t jobs_beside(const struct jobs *jobs, const char *name,
                     bool (*counts)(const void *arg, const char *name), const void *arg);

/* EMBD_LATE: `worker` was to do `clock`, and the job is at another one. */
int jobs_late(const struct job *job, uint32_t worker, uint64_t clock, uint64_t at,
              struct embd__error *e);

#endif
