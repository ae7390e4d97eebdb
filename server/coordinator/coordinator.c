/* coordinator.c - see coordinator.h.
 *
 * The happy path: coordinator_start enters a job into the list and starts its thread; the thread
 * runs it (snapshot_job.c, read_job.c) and notes how far it is; the list keeps the last eight for
 * those that ask how they went. What the threads share is guarded by the mutex. A job that is
 * cancelled has its connections closed, so that shards drop what they keep for these. */
#include "server/coordinator/coordinator.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "server/coordinator/coordinator_inside.h"
#include "server/coordinator/job.h"
#include "server/log/log.h"

const char *const job_state_names[JOB_STATES] = {"running", "done", "failed"};
const char *const job_phase_names[JOB_PHASES] = {"begin", "files",  "hold", "write",
                                                 "read",  "commit", "keep", "abort"};

/* ---- the list, with the mutex held ---- */

static enum job_phase first_phase(const struct job_order *order)
{
    if (order->is_abort)
        return JOB_ABORT;
    return order->is_read || order->staged != 0 ? JOB_HOLD : JOB_BEGIN;
}

static const char *what_is(const struct job_report *job)
{
    if (job->is_move)
        return "move";
    return job->is_read ? "dump" : job->is_replace ? "replacement" : "snapshot";
}

/* The asker's oldest goes if it has its share, else the oldest of all if the list is full. */
static void make_room(struct coordinator *c, uint64_t principal)
{
    uint32_t n_own = 0, goes = 0;
    for (uint32_t i = c->n_jobs; i > 0; i--)
        if (c->jobs[i - 1].asker.principal == principal && ++n_own == JOBS_OF_ASKER)
            goes = i - 1;
    if (n_own < JOBS_OF_ASKER && c->n_jobs < JOBS_REMEMBERED)
        return;
    c->n_jobs--;
    memmove(c->jobs + goes, c->jobs + goes + 1, (c->n_jobs - goes) * sizeof *c->jobs);
}

static struct job_report *add(struct coordinator *c, const struct job *job)
{
    make_room(c, job->order.asker.principal);
    struct job_report *report = &c->jobs[c->n_jobs++];
    *report = (struct job_report){
        .id = job->id,
        .asker = job->order.asker,
        .is_read = job->order.is_read,
        .is_replace = job->order.staged != 0,
        .is_move = job->order.is_move,
        .rate = job->order.rate,
        .phase = first_phase(&job->order),
    };
    memcpy(report->name, job->order.name, sizeof report->name);
    memcpy(report->job, job->order.scope.job, sizeof report->job);
    return report;
}

/* ---- the thread ---- */

static void free_list(const char *const *list)
{
    free((void *)(uintptr_t)list);
}

static void job_free(struct job *job)
{
    if (job == NULL)
        return;
    peers_proof_fini(&job->order.proof);
    free_list(job->order.addresses);
    free_list(job->order.admin_addresses);
    free_list(job->order.admin_hosts);
    free(job->order.added);
    free(job);
}

static void do_job(struct job *job)
{
    if (job_open(job) != EMBD_OK)
        return;
    if (job->order.is_abort)
        abort_job_run(job);
    else if (job->order.n_added > 0)
        grow_job_run(job);
    else if (job->order.is_move && job->order.place.n_shards < job->n_shards)
        retire_job_run(job);
    else if (job->order.is_move)
        move_job_run(job);
    else if (job->order.is_read)
        read_job_run(job);
    else if (job->order.staged != 0)
        replace_job_run(job);
    else
        snapshot_job_run(job);
}

/* Requests that were ended, or that the end of a job met elsewhere, say little of why. */
static void name_cause(struct job *job, bool is_cancelled, bool is_left, bool is_stopped)
{
    struct embd__error *e = &job->error;
    if (e->status == EMBD_OK || !(is_cancelled || is_stopped))
        return;
    *e = (struct embd__error){0};
    if (is_stopped)
        embd__error_set(e, EMBD_DRAINING, "the server that coordinates '%s' is shutting down",
                        job->order.name);
    else if (is_left)
        embd__error_set(e, EMBD_CLOSED, "the connection that started '%s' was closed",
                        job->order.name);
    else
        embd__error_set(e, EMBD_CLOSED, "'%s' was cancelled", job->order.name);
}

/* That there is no snapshot is somebody's business: nobody wanted it so, and nobody asks again. */
static bool is_failure(const struct coordinator *c, const struct job *job)
{
    const struct job_order *order = &job->order;
    const int status = job->error.status;
    bool is_snapshot = !order->is_read && !order->is_abort && !order->is_move && order->staged == 0;
    bool is_wanted = c->is_cancelled && !c->is_left;
    return is_snapshot && !is_wanted && status != EMBD_OK && status != EMBD_BUSY;
}

static void end_job(struct job *job)
{
    struct coordinator *c = job->coordinator;
    pthread_mutex_lock(&c->mutex);
    struct job_report *report = coordinator_newest(c);
    name_cause(job, c->is_cancelled, c->is_left, c->is_stopped);
    report->state = job->error.status == EMBD_OK ? JOB_DONE : JOB_FAILED;
    report->error = job->error;
    c->n_failures += is_failure(c, job);
    coordinator_end_hold(c); /* of one that failed in it */
    turns_rest(&c->turns, job->order.asker.principal, c->held_ns, monotonic_ns());
    report->phase = job->phase;
    report->elapsed_us = (monotonic_ns() - c->began_ns) / 1000;
    struct job_report told = *report;
    c->runs = false;
    c->job = NULL;
    pthread_mutex_unlock(&c->mutex);
    const char *what = what_is(&told);
    if (told.state == JOB_DONE)
        log_event(LOG_INFO, "job_done", "job=%s name=%s rows=%llu bytes=%llu pause_us=%llu us=%llu",
                  what, told.name, (unsigned long long)told.rows, (unsigned long long)told.bytes,
                  (unsigned long long)told.pause_us, (unsigned long long)told.elapsed_us);
    else
        log_event(LOG_WARN, "job_failed", "job=%s name=%s phase=%s why=\"%s\"", what, told.name,
                  job_phase_names[told.phase], told.error.text);
}

static void *run(void *arg)
{
    struct job *job = arg;
    do_job(job);
    job_close(job);
    end_job(job);
    job_free(job);
    return NULL;
}

/* ---- beginning ---- */

/* One of the texts of a shard_entry, of an added shard. */
static const char *text_of(const struct job_order *order, uint32_t i, size_t offset)
{
    return (const char *)&order->added[i] + offset;
}

/* The list of the n shards that there are, and behind it the same of those that are added. */
static const char *const *copy_list(const struct job_order *order, const char *const *list,
                                    uint32_t n, size_t offset)
{
    uint32_t all = n + order->n_added;
    size_t bytes = all * sizeof *list;
    for (uint32_t i = 0; i < n; i++)
        bytes += strlen(list != NULL ? list[i] : "") + 1;
    for (uint32_t i = 0; i < order->n_added; i++)
        bytes += strlen(text_of(order, i, offset)) + 1;
    const char **copy = malloc(bytes);
    char *text = (char *)(copy + all);
    for (uint32_t i = 0; copy != NULL && i < all; i++) {
        copy[i] = text;
        text = stpcpy(text, i >= n         ? text_of(order, i - n, offset)
                            : list != NULL ? list[i]
                                           : "") +
               1;
    }
    return copy;
}

/* Takes the proof and the list of added shards. */
static struct job *job_new(struct coordinator *c, struct job_order *order, struct embd__error *e)
{
    struct job *job = calloc(1, sizeof *job);
    pthread_mutex_lock(&c->mutex);
    uint32_t n = c->config.n_shards;
    pthread_mutex_unlock(&c->mutex);
    if (job == NULL) {
        peers_proof_fini(&order->proof);
        embd__error_set(e, EMBD_NO_MEMORY, "no memory for a job");
        return NULL;
    }
    job->coordinator = c;
    job->order = *order;
    order->proof = (struct peers_proof){.token = NULL};
    job->n_shards = n + order->n_added;
    job->phase = first_phase(order);
    job->order.addresses =
        copy_list(order, order->addresses, n, offsetof(struct shard_entry, address));
    job->order.admin_addresses =
        copy_list(order, order->admin_addresses, n, offsetof(struct shard_entry, admin));
    job->order.admin_hosts =
        copy_list(order, order->admin_hosts, n, offsetof(struct shard_entry, admin_tcp));
    order->added = NULL;
    if (job->order.addresses == NULL || job->order.admin_addresses == NULL ||
        job->order.admin_hosts == NULL)
        embd__error_set(e, EMBD_NO_MEMORY, "no memory for the map of the cluster");
    while (job->id == 0 && e->status == EMBD_OK)
        if (getrandom(&job->id, sizeof job->id, 0) != sizeof job->id)
            embd__error_set(e, EMBD_IO, "the system gives no random numbers");
    if (e->status == EMBD_OK)
        return job;
    job_free(job);
    return NULL;
}

/* What others do is not for a trainer. */
static int refuse_busy(const struct job_report *other, uint64_t s, const struct job_asker *asker,
                       struct embd__error *e)
{
    if (asker->token[0] != '\0')
        return embd__error_set(e, EMBD_BUSY,
                               "another snapshot, dump or load has run for %llu s; try again",
                               (unsigned long long)s);
    return embd__error_set(e, EMBD_BUSY,
                           "the %s '%s' has run for %llu s and is in the phase %s; wait for it, or "
                           "cancel it: embctl snapshot --cancel %s",
                           what_is(other), other->name, (unsigned long long)s,
                           job_phase_names[other->phase], other->name);
}

/* It takes no place: others come before it. */
static int refuse_resting(const struct job_asker *asker, uint64_t rests_ns, struct embd__error *e)
{
    return embd__error_set(e, EMBD_BUSY,
                           "the last snapshot or load of token '%s' held changes, and its next one "
                           "waits as long; try again in %llu ms",
                           asker->token, (unsigned long long)(rests_ns / 1000000u + 1));
}

static int check_free(struct coordinator *c, const struct job_order *order, struct embd__error *e)
{
    const struct job_asker *asker = &order->asker;
    const struct job_report *other = c->runs ? coordinator_newest(c) : NULL;
    const uint64_t now_ns = monotonic_ns();
    if (c->is_stopped)
        return embd__error_set(e, EMBD_DRAINING, "the server ends");
    const uint64_t rests_ns = turns_left_ns(&c->turns, asker->principal, now_ns);
    if (rests_ns > 0 && !order->is_abort) /* which holds nothing */
        return refuse_resting(asker, rests_ns, e);
    if (other == NULL && turns_is_next(&c->turns, asker->principal, now_ns))
        return EMBD_OK;
    turns_wait(&c->turns, asker->principal, now_ns);
    if (other == NULL)
        return embd__error_set(e, EMBD_BUSY,
                               "others wait for a snapshot, dump or load of theirs; try again");
    return refuse_busy(other, (now_ns - c->began_ns) / 1000000000u, asker, e);
}

/* With the mutex held. */
static int start(struct coordinator *c, struct job *job, struct job_report *out,
                 struct embd__error *e)
{
    if (check_free(c, &job->order, e) != EMBD_OK)
        return e->status;
    if (c->has_thread)
        pthread_join(c->thread, NULL); /* it has ended its job, and returns */
    turns_take(&c->turns, job->order.asker.principal);
    c->goes = c->is_cancelled = c->is_left = c->is_open = false;
    c->began_ns = c->heard_ns = monotonic_ns();
    c->files_bytes = c->hold_began_ns = c->held_ns = 0;
    c->pace = (struct pace){.rate = job->order.rate};
    c->job = job;
    c->runs = true;
    *out = *add(c, job);
    c->has_thread = pthread_create(&c->thread, NULL, run, job) == 0;
    if (c->has_thread)
        return EMBD_OK;
    c->runs = false;
    c->job = NULL;
    c->n_jobs--;
    return embd__error_set(e, EMBD_NO_MEMORY, "no thread for a snapshot");
}

int coordinator_start(struct coordinator *c, struct job_order *order, struct job_report *out,
                      struct embd__error *e)
{
    struct job *job = job_new(c, order, e);
    if (job == NULL)
        return e->status;
    pthread_mutex_lock(&c->mutex);
    start(c, job, out, e);
    pthread_mutex_unlock(&c->mutex);
    if (e->status != EMBD_OK)
        job_free(job);
    return e->status;
}

/* ---- opening and closing ---- */

int coordinator_open(const struct coordinator_config *config, struct coordinator **out,
                     struct embd__error *e)
{
    pthread_condattr_t attributes;
    struct coordinator *c = calloc(1, sizeof *c);
    if (c == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory to coordinate snapshots");
    c->config = *config;
    pthread_mutex_init(&c->mutex, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&c->news, &attributes);
    pthread_condattr_destroy(&attributes);
    *out = c;
    return EMBD_OK;
}

uint64_t coordinator_failures(struct coordinator *c)
{
    if (c == NULL)
        return 0;
    pthread_mutex_lock(&c->mutex);
    uint64_t n = c->n_failures;
    pthread_mutex_unlock(&c->mutex);
    return n;
}

void coordinator_set_shards(struct coordinator *c, uint32_t n_shards)
{
    pthread_mutex_lock(&c->mutex);
    c->config.n_shards = n_shards;
    pthread_mutex_unlock(&c->mutex);
}

void coordinator_set_own(struct coordinator *c, uint32_t n_shards)
{
    pthread_mutex_lock(&c->mutex);
    c->config.n_shards = c->config.n_own = n_shards;
    pthread_mutex_unlock(&c->mutex);
}

int coordinator_set_ca(struct coordinator *c, const void *ca, uint64_t ca_bytes,
                       bool believes_system, struct embd__error *e)
{
    pthread_mutex_lock(&c->mutex);
    int status = peers_proof_set_ca(&c->own, ca, ca_bytes, believes_system, e);
    pthread_mutex_unlock(&c->mutex);
    return status;
}

bool coordinator_is_first(const struct coordinator *c)
{
    return c->config.first_own == 0;
}

void coordinator_stop(struct coordinator *c)
{
    if (c == NULL)
        return;
    pthread_mutex_lock(&c->mutex);
    c->is_stopped = true;
    if (c->runs)
        coordinator_end_job(c);
    pthread_mutex_unlock(&c->mutex);
}

void coordinator_close(struct coordinator *c)
{
    if (c == NULL)
        return;
    coordinator_stop(c);
    if (c->has_thread)
        pthread_join(c->thread, NULL);
    pthread_cond_destroy(&c->news);
    pthread_mutex_destroy(&c->mutex);
    peers_proof_fini(&c->own);
    free(c);
}
