/* clocks.c - jobs and the clocks of their workers.
 *
 * The happy path: find the job, let leases run out, take the worker's clock. A tick that is refused
 * changes no clock, and so no answer to anybody else. */
#include "clocks.h"

#include <stdlib.h>
#include <string.h>

void clocks_fini(struct clocks *clocks)
{
    for (uint32_t i = 0; i < CLOCKS_JOBS; i++)
        free(clocks->jobs[i]);
    *clocks = (struct clocks){0};
}

uint32_t clocks_count(const struct clock_job *job, enum worker_state state)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < job->n_workers; i++)
        n += job->workers[i].state == state;
    return n;
}

static bool is_over(const struct clock_job *job)
{
    return clocks_count(job, WORKER_LIVE) == 0;
}

uint64_t clocks_slowest(const struct clock_job *job)
{
    uint64_t least = UINT64_MAX, greatest = 0;
    if (clocks_count(job, WORKER_ABSENT) > 0)
        return 0;
    for (uint32_t i = 0; i < job->n_workers; i++) {
        const struct clock_worker *w = &job->workers[i];
        if (w->state == WORKER_LIVE && w->clock < least)
            least = w->clock;
        if (w->clock > greatest)
            greatest = w->clock;
    }
    return is_over(job) ? greatest : least;
}

static void expire(struct clock_job *job, uint64_t now_ns)
{
    for (uint32_t i = 0; i < job->n_workers; i++)
        if (job->workers[i].state == WORKER_LIVE && job->workers[i].deadline_ns < now_ns)
            job->workers[i].state = WORKER_DROPPED;
}

static void begin(struct clock_job *job)
{
    memset(job->workers, 0, job->n_workers * sizeof *job->workers);
}

/* ---- jobs ---- */

/* The place of the job of this name, or else of none, or else of one that is over; NULL: all are
 * busy. */
static struct clock_job **find_place(struct clocks *clocks, const char *name, uint64_t now_ns)
{
    struct clock_job **empty = NULL, **over = NULL;
    for (uint32_t i = 0; i < CLOCKS_JOBS; i++) {
        struct clock_job **place = &clocks->jobs[i];
        if (*place == NULL) {
            empty = place;
            continue;
        }
        if (strcmp((*place)->name, name) == 0)
            return place;
        expire(*place, now_ns);
        if (is_over(*place))
            over = place;
    }
    return empty != NULL ? empty : over;
}

static struct clock_job *make(const struct clock_tick *tick, struct embd__error *e)
{
    struct clock_job *job = calloc(1, sizeof *job + tick->n_workers * sizeof *job->workers);
    if (job == NULL) {
        embd__error_set(e, EMBD_NO_MEMORY, "no memory for job '%s'", tick->job);
        return NULL;
    }
    strncpy(job->name, tick->job, CLOCKS_JOB_NAME);
    job->n_workers = tick->n_workers;
    return job;
}

static struct clock_job *find(struct clocks *clocks, const struct clock_tick *tick, uint64_t now_ns,
                              struct embd__error *e)
{
    struct clock_job **place = find_place(clocks, tick->job, now_ns);
    if (place == NULL) {
        embd__error_set(e, EMBD_FULL, "tick job '%s': there are %u jobs, the limit", tick->job,
                        CLOCKS_JOBS);
        return NULL;
    }
    struct clock_job *job = *place;
    if (job != NULL)
        expire(job, now_ns);
    if (job != NULL && !is_over(job))
        return job;
    if (job == NULL || job->n_workers != tick->n_workers || strcmp(job->name, tick->job) != 0) {
        struct clock_job *fresh = make(tick, e);
        if (fresh == NULL)
            return NULL;
        free(job);
        *place = fresh;
    } else {
        begin(job);
    }
    return *place;
}

/* ---- ticks ---- */

static int check(const struct clock_job *job, const struct clock_tick *tick, struct embd__error *e)
{
    if (job->n_workers != tick->n_workers)
        return embd__error_set(e, EMBD_INVALID, "tick workers: %u, job '%s' has %u",
                               tick->n_workers, job->name, job->n_workers);
    const struct clock_worker *w = &job->workers[tick->worker];
    if (w->state == WORKER_LIVE && tick->clock < w->clock)
        return embd__error_set(
            e, EMBD_INVALID, "tick clock: worker %u of job '%s' falls from %llu to %llu",
            tick->worker, job->name, (unsigned long long)w->clock, (unsigned long long)tick->clock);
    return EMBD_OK;
}

int clocks_tick(struct clocks *clocks, const struct clock_tick *tick, uint64_t now_ns,
                const struct clock_job **job_out, struct embd__error *e)
{
    struct clock_job *job = find(clocks, tick, now_ns, e);
    if (job == NULL || check(job, tick, e) != EMBD_OK)
        return e->status;
    job->workers[tick->worker] =
        (struct clock_worker){.clock = tick->clock,
                              .deadline_ns = now_ns + tick->lease_ns,
                              .state = tick->leave ? WORKER_LEFT : WORKER_LIVE};
    *job_out = job;
    return EMBD_OK;
}
