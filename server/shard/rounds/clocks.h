/* clocks.h - how far the trainers of a job are, so that none runs away from the slowest.
 *
 * Every worker of a job tells its clock, the iterations it has finished. A tick is also a sign of
 * life: a worker that gives none for its lease is dropped, and nobody waits for it until it ticks
 * again. What is asked for is the slowest clock of the live workers; who may go on with that is the
 * worker's own affair: bulk-synchronous with a staleness of 0, stale-synchronous with s,
 * asynchronous without asking. A job is kept in memory alone: after a restart workers join again
 * with their next tick. Owner: the shard's thread. */
#ifndef EMBD_SHARD_CLOCKS_H
#define EMBD_SHARD_CLOCKS_H

#include <stdbool.h>
#include <stdint.h>

#include "errors.h"

#define CLOCKS_JOBS     64u
#define CLOCKS_WORKERS  EMBD_WORKERS_MAX
#define CLOCKS_JOB_NAME EMBD_NAME_MAX

enum worker_state { WORKER_ABSENT, WORKER_LIVE, WORKER_DROPPED, WORKER_LEFT };

struct clock_worker {
    uint64_t clock;
    uint64_t deadline_ns; /* live: dropped after it */
    enum worker_state state;
};

struct clock_job {
    char name[CLOCKS_JOB_NAME + 1];
    uint32_t n_workers;
    struct clock_worker workers[]; /* [n_workers] */
};

struct clocks {
    struct clock_job *jobs[CLOCKS_JOBS]; /* NULL where there is none */
};

struct clock_tick {
    const char *job;
    uint32_t worker, n_workers; /* worker < n_workers <= CLOCKS_WORKERS */
    uint64_t clock;
    uint64_t lease_ns;
    bool leave; /* nobody shall wait for this worker any more */
};

void clocks_fini(struct clocks *clocks);

/* Takes a tick. A job begins with its first tick, and anew with the first after none of its workers
 * was live. EMBD_INVALID: the job has another number of workers, or the worker's clock falls;
 * EMBD_FULL: there are CLOCKS_JOBS jobs with live workers; EMBD_NO_MEMORY. Then nothing has changed
 * but that leases have run out. */
int clocks_tick(struct clocks *clocks, const struct clock_tick *tick, uint64_t now_ns,
                const struct clock_job **job_out, struct embd__error *e);

/* The least clock of the live workers; 0 until all of the job's workers have been seen. Without a
 * live one, the greatest clock of any. */
uint64_t clocks_slowest(const struct clock_job *job);

uint32_t clocks_count(const struct clock_job *job, enum worker_state state);

#endif
