/* jobs.c - the workers of jobs.
 *
 * The happy path: jobs_enter finds the job, and sees that the request is of the process that the
 * worker is; then the worker is live for its lease, with its clock. A request that is refused
 * changes no clock, and so no answer to anybody else. */
#include "server/engine/rounds/jobs.h"

#include <stdlib.h>
#include <string.h>

#define SLEPT_NS 250000000u /* between two looks: the shard did not read what workers sent */

void jobs_fini(struct jobs *jobs)
{
    for (uint32_t i = 0; i < JOBS_MAX; i++)
        free(jobs->jobs[i]);
    *jobs = (struct jobs){0};
}

/* ---- what a job is at ---- */

uint32_t jobs_count(const struct job *job, enum worker_state state)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < job->n_workers; i++)
        n += job->workers[i].state == state;
    return n;
}

uint64_t jobs_slowest(const struct job *job)
{
    uint64_t least = UINT64_MAX, greatest = 0;
    if (jobs_count(job, WORKER_ABSENT) > 0)
        return 0;
    for (uint32_t i = 0; i < job->n_workers; i++) {
        const struct job_worker *w = &job->workers[i];
        if (w->state == WORKER_LIVE && w->clock < least)
            least = w->clock;
        if (w->clock > greatest)
            greatest = w->clock;
    }
    return least == UINT64_MAX ? greatest : least;
}

/* Without a live worker, only steps have moved the job on. */
uint64_t jobs_clock(const struct job *job)
{
    uint64_t slowest = jobs_count(job, WORKER_LIVE) > 0 ? jobs_slowest(job) : 0;
    return slowest > job->stepped ? slowest : job->stepped;
}

struct job *jobs_of(const struct jobs *jobs, uint64_t serial)
{
    for (uint32_t i = 0; i < JOBS_MAX; i++)
        if (jobs->jobs[i] != NULL && jobs->jobs[i]->serial == serial)
            return jobs->jobs[i];
    return NULL;
}

int jobs_late(const struct job *job, uint32_t worker, uint64_t clock, uint64_t at,
              struct embd__error *e)
{
    return embd__error_set(
        e, EMBD_LATE,
        "worker %u of job '%s' is late: the job passed clock %llu without it and is at %llu",
        worker, job->name, (unsigned long long)clock, (unsigned long long)at);
}

/* ---- leases ---- */

static void expire(struct job *job, uint64_t now_ns)
{
    for (uint32_t i = 0; i < job->n_workers; i++) {
        struct job_worker *w = &job->workers[i];
        if (w->state == WORKER_LIVE && w->n_waiting == 0 && w->deadline_ns < now_ns)
            w->state = WORKER_DROPPED;
    }
}

/* The shard slept, and what workers sent meanwhile is not read yet. */
static void extend(struct job *job, uint64_t slept_ns)
{
    for (uint32_t i = 0; i < job->n_workers; i++)
        if (slept_ns > job->workers[i].lease_ns / 4)
            job->workers[i].deadline_ns += slept_ns;
}

bool jobs_look(struct jobs *jobs, uint64_t now_ns)
{
    uint64_t since_ns = now_ns - jobs->looked_ns;
    if (since_ns < JOBS_LOOK_NS)
        return false;
    for (uint32_t i = 0; i < JOBS_MAX; i++) {
        if (jobs->jobs[i] == NULL)
            continue;
        if (since_ns > SLEPT_NS)
            extend(jobs->jobs[i], since_ns);
        expire(jobs->jobs[i], now_ns);
    }
    jobs->looked_ns = now_ns;
    return true;
}

/* ---- jobs ---- */

static bool is_live_but(const struct job *job, uint32_t worker)
{
    for (uint32_t i = 0; i < job->n_workers; i++)
        if (i != worker && job->workers[i].state == WORKER_LIVE)
            return true;
    return false;
}

/* All who ever came have left. */
static bool is_left(const struct job *job)
{
    return jobs_count(job, WORKER_LIVE) == 0 && jobs_count(job, WORKER_DROPPED) == 0;
}

static bool is_of(const struct job *job, const struct job_claim *claim)
{
    if (claim->worker >= job->n_workers)
        return false;
    const struct job_worker *w = &job->workers[claim->worker];
    return w->state != WORKER_ABSENT && w->incarnation == claim->incarnation;
}

/* A new process joins where none lives, its own forerunner aside, or all have left. */
static bool begins_anew(const struct job *job, const struct job_claim *claim)
{
    if (job->is_over)
        return claim->epoch == 0;
    if (is_left(job))
        return claim->epoch == 0 || is_of(job, claim);
    return claim->epoch == 0 && !is_of(job, claim) && !is_live_but(job, claim->worker);
}

/* A job without a live worker, preferably one that all have left; NULL: none. */
static struct job **find_over(struct jobs *jobs)
{
    struct job **over = NULL;
    for (uint32_t i = 0; i < JOBS_MAX; i++) {
        struct job **place = &jobs->jobs[i];
        if (*place == NULL)
            return place;
        if (jobs_count(*place, WORKER_LIVE) == 0 && (over == NULL || is_left(*place)))
            over = place;
    }
    return over;
}

static struct job **find(struct jobs *jobs, const char *name)
{
    for (uint32_t i = 0; i < JOBS_MAX; i++)
        if (jobs->jobs[i] != NULL && strcmp(jobs->jobs[i]->name, name) == 0)
            return &jobs->jobs[i];
    return NULL;
}

const struct job *jobs_named(struct jobs *jobs, const char *name)
{
    struct job **place = find(jobs, name);
    return place != NULL ? *place : NULL;
}

uint32_t jobs_beside(const struct jobs *jobs, const char *name,
                     bool (*counts)(const void *arg, const char *name), const void *arg)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < JOBS_MAX; i++) {
        const struct job *job = jobs->jobs[i];
        if (job != NULL && strcmp(job->name, name) == 0)
            return 0;
        n += job != NULL && counts(arg, job->name) && jobs_count(job, WORKER_LIVE) > 0;
    }
    return n;
}

/* At `place`, where another one may be that is over. */
static int make(struct jobs *jobs, struct job **place, const struct job_claim *claim,
                uint64_t epoch, struct embd__error *e)
{
    struct job *job = calloc(1, sizeof *job + claim->n_workers * sizeof *job->workers);
    if (job == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for job '%s'", claim->job);
    strncpy(job->name, claim->job, EMBD_NAME_MAX);
    job->n_workers = claim->n_workers;
    job->serial = ++jobs->last_serial;
    job->epoch = epoch;
    free(*place);
    *place = job;
    return EMBD_OK;
}

static int make_first(struct jobs *jobs, const struct job_claim *claim, struct embd__error *e)
{
    struct job **place = find_over(jobs);
    if (place == NULL)
        return embd__error_set(e, EMBD_FULL, "job '%s': there are %u jobs, the limit", claim->job,
                               JOBS_MAX);
    return make(jobs, place, claim, claim->epoch > 0 ? claim->epoch : 1, e);
}

/* ---- joining ---- */

static void replace(struct jobs *jobs, const struct job *job, uint32_t worker)
{
    if (jobs->on_replaced != NULL && worker < job->n_workers)
        jobs->on_replaced(jobs->arg, job, worker);
}

static int refuse_old(const struct job *job, const struct job_claim *claim, struct embd__error *e)
{
    if (job->is_over)
        return embd__error_set(e, EMBD_INVALID,
                               "worker %u belongs to epoch %llu of job '%s', which is over: a "
                               "table of its rounds went back to a checkpoint, or was loaded; a "
                               "new client joins the next epoch",
                               claim->worker, (unsigned long long)job->epoch, job->name);
    if (claim->epoch < job->epoch)
        return embd__error_set(e, EMBD_INVALID,
                               "worker %u belongs to epoch %llu of job '%s', which is over: epoch "
                               "%llu has begun",
                               claim->worker, (unsigned long long)claim->epoch, job->name,
                               (unsigned long long)job->epoch);
    return embd__error_set(
        e, EMBD_INVALID, "worker %u of job '%s' is another process now: that one has joined since",
        claim->worker, job->name);
}

/* The shard has started since that epoch began, and processes of an earlier one came first. */
static void forget_earlier(struct jobs *jobs, struct job *job, uint64_t epoch)
{
    for (uint32_t i = 0; i < job->n_workers; i++) {
        struct job_worker *w = &job->workers[i];
        if (w->state == WORKER_ABSENT || w->epoch == 0 || w->epoch >= epoch)
            continue;
        replace(jobs, job, i);
        *w = (struct job_worker){.state = WORKER_ABSENT};
    }
    job->epoch = epoch;
}

/* The worker is this process, as far as it may be. */
static int take_place(struct jobs *jobs, struct job *job, const struct job_claim *claim,
                      uint64_t now_ns, struct embd__error *e)
{
    if (job->n_workers != claim->n_workers)
        return embd__error_set(e, EMBD_INVALID, "workers: %u, job '%s' has %u", claim->n_workers,
                               job->name, job->n_workers);
    struct job_worker *w = &job->workers[claim->worker];
    if (job->is_over)
        return refuse_old(job, claim, e);
    if (claim->epoch > job->epoch)
        forget_earlier(jobs, job, claim->epoch);
    if (is_of(job, claim))
        return EMBD_OK;
    if (claim->epoch > 0 && (w->state != WORKER_ABSENT || claim->epoch < job->epoch))
        return refuse_old(job, claim, e);
    if (w->state != WORKER_ABSENT) {
        replace(jobs, job, claim->worker);
        *w = (struct job_worker){.state = WORKER_DROPPED};
    }
    w->incarnation = claim->incarnation;
    w->epoch = claim->epoch;
    w->seen_ns = now_ns;
    return EMBD_OK;
}

int jobs_enter(struct jobs *jobs, const struct job_claim *claim, uint64_t now_ns,
               struct job **job_out, struct embd__error *e)
{
    jobs_look(jobs, now_ns);
    struct job **place = find(jobs, claim->job);
    if (place == NULL) {
        if (make_first(jobs, claim, e) != EMBD_OK)
            return e->status;
        place = find(jobs, claim->job);
    } else if (begins_anew(*place, claim)) {
        uint64_t next = (*place)->epoch + 1;
        replace(jobs, *place, claim->worker);
        if (make(jobs, place, claim, next > claim->epoch ? next : claim->epoch, e) != EMBD_OK)
            return e->status;
    }
    if (take_place(jobs, *place, claim, now_ns, e) != EMBD_OK)
        return e->status;
    *job_out = *place;
    return EMBD_OK;
}

void jobs_end(struct jobs *jobs, struct job *job)
{
    job->is_over = true;
    for (uint32_t i = 0; i < job->n_workers; i++) {
        if (job->workers[i].state == WORKER_ABSENT)
            continue;
        replace(jobs, job, i);
        job->workers[i].state = WORKER_LEFT;
    }
}

static void renew(struct job_worker *w, const struct job_claim *claim, uint64_t now_ns)
{
    w->lease_ns = claim->lease_ns;
    w->seen_ns = now_ns;
    w->deadline_ns = now_ns + claim->lease_ns;
}

void jobs_live(struct job *job, const struct job_claim *claim, uint64_t clock, uint64_t now_ns)
{
    struct job_worker *w = &job->workers[claim->worker];
    if (w->state != WORKER_LIVE) {
        w->from = clock;
        w->clock = clock;
    }
    w->state = WORKER_LIVE;
    renew(w, claim, now_ns);
}

/* ---- ticks ---- */

/* It was in the job before the shard started, and no step was made since without it: it may be in
 * those that the shard learns of (rounds_repeat), also where it has not said so yet. */
static bool has_stayed(const struct job_worker *w, const struct job_claim *claim)
{
    return w->state == WORKER_ABSENT && claim->epoch > 0;
}

static void leave(struct jobs *jobs, struct job *job, const struct job_tick *tick)
{
    struct job_worker *w = &job->workers[tick->claim.worker];
    replace(jobs, job, tick->claim.worker);
    w->state = WORKER_LEFT;
    if (tick->clock > w->clock)
        w->clock = tick->clock;
}

static int check_clock(const struct job *job, const struct job_tick *tick, struct embd__error *e)
{
    const struct job_worker *w = &job->workers[tick->claim.worker];
    if (w->state == WORKER_LIVE && tick->clock < w->clock)
        return embd__error_set(e, EMBD_INVALID,
                               "tick clock: worker %u of job '%s' decreases from %llu to %llu",
                               tick->claim.worker, job->name, (unsigned long long)w->clock,
                               (unsigned long long)tick->clock);
    if (w->state != WORKER_LIVE && !tick->asynchronous && !has_stayed(w, &tick->claim) &&
        tick->clock < jobs_clock(job))
        return jobs_late(job, tick->claim.worker, tick->clock, jobs_clock(job), e);
    return EMBD_OK;
}

static void note_clock(struct job_worker *w, const struct job_tick *tick)
{
    w->clock = tick->clock;
    w->is_asynchronous = tick->asynchronous;
    if (tick->clock > w->done)
        w->done = tick->clock;
}

/* A worker that joined here, and was late on another shard, joins once more, at a later clock. */
static void note_joined(struct job_worker *w, const struct job_tick *tick)
{
    if (tick->clock > w->from)
        w->from = tick->clock;
}

/* The job that the worker's process has left already; NULL: it has not. */
static struct job *find_left(struct jobs *jobs, const struct job_claim *claim)
{
    struct job **place = find(jobs, claim->job);
    bool is_left = place != NULL && is_of(*place, claim) &&
                   (*place)->workers[claim->worker].state == WORKER_LEFT;
    return is_left ? *place : NULL;
}

int jobs_tick(struct jobs *jobs, const struct job_tick *tick, uint64_t now_ns, struct job **job_out,
              struct embd__error *e)
{
    struct job *job = tick->leave ? find_left(jobs, &tick->claim) : NULL;
    if (job != NULL) { /* the answer was lost with its connection */
        *job_out = job;
        return EMBD_OK;
    }
    if (jobs_enter(jobs, &tick->claim, now_ns, &job, e) != EMBD_OK)
        return e->status;
    struct job_worker *w = &job->workers[tick->claim.worker];
    if (tick->leave) {
        leave(jobs, job, tick);
    } else if (check_clock(job, tick, e) != EMBD_OK) {
        if (w->state == WORKER_ABSENT)
            w->state = WORKER_DROPPED; /* seen, and not waited for until it joins */
        return e->status;
    } else {
        jobs_live(job, &tick->claim, tick->clock, now_ns);
        note_clock(w, tick);
        note_joined(w, tick);
    }
    *job_out = job;
    return EMBD_OK;
}

/* A clock that another shard got. */
static void note_greater(struct job_worker *w, uint64_t clock)
{
    if (clock > w->clock)
        w->clock = clock;
    if (clock > w->done)
        w->done = clock;
}

static bool has_gone_on(const struct job *job, const struct job_worker *w)
{
    return !w->is_asynchronous && w->done < jobs_clock(job);
}

int jobs_beat(struct jobs *jobs, const struct job_tick *tick, uint64_t now_ns, struct job **job_out,
              struct embd__error *e)
{
    struct job **place = find(jobs, tick->claim.job);
    bool is_known = place != NULL && is_of(*place, &tick->claim);
    *job_out = find_left(jobs, &tick->claim);
    if (*job_out != NULL)
        return EMBD_OK;
    if (jobs_enter(jobs, &tick->claim, now_ns, job_out, e) != EMBD_OK)
        return e->status;
    struct job *job = *job_out;
    struct job_worker *w = &job->workers[tick->claim.worker];
    if (!is_known)
        note_clock(w, tick);
    note_greater(w, tick->clock);
    if (w->state == WORKER_LIVE || has_stayed(w, &tick->claim) || !has_gone_on(job, w)) {
        uint64_t from = w->from;
        jobs_live(job, &tick->claim, w->clock, now_ns);
        w->from = is_known ? from : tick->clock;
    } else {
        w->state = WORKER_DROPPED;
    }
    return EMBD_OK;
}
