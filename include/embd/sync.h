/* sync.h - workers of one job: clocks, leases and rounds.
 *
 * A worker's clock is the number of iterations it has finished and whose pushes have been
 * acknowledged. Shards know the workers of a job, in memory; shard 0 keeps their clocks.
 *
 * Synchronous SGD: pushes with embd_call_options.round form a round. Each shard keeps them until
 * every live worker of the job has pushed to the same tables for the same round_clock, or a later
 * one; then it makes one step of them, with the mean of the workers' gradients: each divided by the
 * number of workers in the round, and summed in the order of the workers, so that the result has
 * the same bits in any order of arrival. All pushes are answered then, with the counts and statuses
 * of the step they made together. The first round waits until all n_workers have joined. Later
 * requests of the connection wait with such a push: each worker needs its own client, and all push
 * to their tables in the same order. The pushes of a round have at most 4194304 keys of a table and
 * shard together.
 *
 * A worker joins with its first tick or push to a round, which asks every shard. It lives until it
 * leaves, the client is closed, or its process dies: a thread of the client sends signs of life,
 * over one more connection to each shard, however long the caller computes or waits. A worker
 * without a sign of life for its lease (a process that died, stopped or lost its network) is
 * dropped: the others go on without it, and every report names it. So the lease is for processes. A
 * call waits for a live worker without progress until its deadline; the error names the worker.
 *
 * A dropped worker that comes back is live again if its job is still at its clock. Otherwise it is
 * late: its call is EMBD_LATE, nothing of it is applied, and embd_tick_rejoin says at which clock
 * it goes on. Steps are made once: n clocks are n steps of each shard, whoever stops or dies. A
 * process that joins in a worker's place is the worker from then on; it joins a job under way as a
 * late worker does. A job that all have left, or without a live worker when a new process joins,
 * begins again. So does one after a table of its rounds went back to a checkpoint (embd/job.h):
 * clients that were workers before are refused (EMBD_INVALID) from then on.
 *
 * Where a server restarts, or a follower takes its place, ticks wait for it until the client's
 * deadline, and workers take part as before. A push of a round that was on its way there is sent
 * again, until the call's deadline, and its step is made once. It fails as EMBD_CLOSED in a job of
 * more than 128 workers, or beside a server of an earlier version: then its step is made once or
 * not at all on that shard, and the worker goes on with its next clock.
 *
 * The loop of a worker that may stop, and of a restarted one, i being 0 at first:
 *
 *     while (i < n) {
 *         status = embd_tick_wait(client, &clock, i, 0, 0, &report); // report.dropped: missing
 *         if (status == EMBD_OK)
 *             status = train(client, &clock, i); // pushes with round = &clock, round_clock = i
 *         if (status == EMBD_OK)
 *             status = embd_tick(client, &clock, i + 1, &report);
 *         if (status == EMBD_OK)
 *             i++;
 *         else if (status == EMBD_LATE)
 *             status = embd_tick_rejoin(client, &clock, &i, &report); // i is where the job is
 *         if (status != EMBD_OK)
 *             return status;
 *     }
 *     embd_tick_leave(client, &clock, i);
 */
#ifndef EMBD_SYNC_H
#define EMBD_SYNC_H

#include "embd/embd.h"

#ifdef __cplusplus
extern "C" {
#endif

#define EMBD_WORKERS_MAX 1024 /* of a job */
#define EMBD_DROPPED_MAX 16   /* that a report names */

/* One of the workers of a job. */
typedef struct embd_clock {
    uint32_t struct_bytes; /* sizeof(embd_clock) */
    uint32_t worker;       /* 0..n_workers - 1 */
    const char *job;       /* 1 to EMBD_NAME_MAX bytes */
    uint32_t n_workers;    /* 1..EMBD_WORKERS_MAX, the same for all */
    uint32_t lease_ms;     /* 100..3600000: a worker not heard of for so long is dropped */
    bool asynchronous;     /* waits for no worker, and so is never late */
} embd_clock;

#define EMBD_CLOCK(...)                                                                            \
    {                                                                                              \
        .struct_bytes = sizeof(embd_clock), __VA_ARGS__                                            \
    }

typedef struct embd_clock_report {
    uint64_t slowest;           /* clock of the live workers; 0 until all n_workers have joined */
    uint32_t n_live, n_dropped; /* workers that left are neither */
    uint32_t dropped[EMBD_DROPPED_MAX]; /* the first of them, ascending */
} embd_clock_report;

/* Reports this worker's clock. `report_out` may be NULL. Blocks.
 *   EMBD_LATE      the worker was dropped, or its process is new, and the job is at a later clock;
 *                  until embd_tick_rejoin
 *   EMBD_INVALID   a field is out of range; the clock decreases; the job has another n_workers;
 *                  another process is the worker now, or the job has begun again without this one:
 *                  the sentence says which
 *   EMBD_FULL      the server keeps as many jobs as it can; others as embd_ping */
EMBD_API int embd_tick(embd_client *client, const embd_clock *clock, uint64_t value,
                       embd_clock_report *report_out);

/* The same, and waits until the slowest live worker has reached value - staleness. Bulk-synchronous
 * training waits with a staleness of 0 after every iteration, stale-synchronous with s;
 * asynchronous does not wait. deadline_ms 0: the client's.
 *   EMBD_DEADLINE   names the worker that is waited for; others as embd_tick */
EMBD_API int embd_tick_wait(embd_client *client, const embd_clock *clock, uint64_t value,
                            uint64_t staleness, uint32_t deadline_ms,
                            embd_clock_report *report_out);

/* Joins again after EMBD_LATE: sets *value, the clock the worker was at, to the one it goes on
 * with. That is the greatest of all shards, and the worker takes part in the next step of each.
 * Blocks. Statuses as embd_tick. */
EMBD_API int embd_tick_rejoin(embd_client *client, const embd_clock *clock, uint64_t *value,
                              embd_clock_report *report_out);

/* Leaves the job: no worker waits for this one any more, in rounds neither. Blocks. Statuses as
 * embd_tick. */
EMBD_API int embd_tick_leave(embd_client *client, const embd_clock *clock, uint64_t value);

#ifdef __cplusplus
}
#endif
#endif
