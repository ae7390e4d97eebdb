/* job.c - what a job tells its coordinator while its thread does it, and its connections to the
 * shards. */
#include "server/coordinator/job.h"

#include <time.h>

#include "server/coordinator/coordinator_inside.h"

bool job_enter(struct job *job, enum job_phase phase)
{
    struct coordinator *c = job->coordinator;
    pthread_mutex_lock(&c->mutex);
    bool ends = c->is_cancelled && phase != JOB_ABORT;
    coordinator_newest(c)->phase = phase;
    if (phase != JOB_ABORT)
        job->phase = phase;
    coordinator_newest(c)->shards_done = 0;
    if (phase == JOB_HOLD)
        c->hold_began_ns = monotonic_ns();
    pthread_mutex_unlock(&c->mutex);
    if (ends)
        embd__error_set(&job->error, EMBD_CLOSED, "it was cancelled");
    return !ends;
}

void job_tell(struct job *job, uint32_t shards_done, uint64_t rows, uint64_t bytes)
{
    struct coordinator *c = job->coordinator;
    pthread_mutex_lock(&c->mutex);
    coordinator_newest(c)->shards_done = shards_done;
    coordinator_newest(c)->rows = rows;
    coordinator_newest(c)->bytes = bytes;
    pthread_mutex_unlock(&c->mutex);
}

void job_tell_expected(struct job *job, uint64_t rows, uint64_t bytes)
{
    struct coordinator *c = job->coordinator;
    pthread_mutex_lock(&c->mutex);
    coordinator_newest(c)->expected_rows = rows;
    coordinator_newest(c)->expected_bytes = bytes;
    pthread_mutex_unlock(&c->mutex);
}

uint64_t job_rate(struct job *job)
{
    struct coordinator *c = job->coordinator;
    pthread_mutex_lock(&c->mutex);
    uint64_t rate = c->pace.rate;
    pthread_mutex_unlock(&c->mutex);
    return rate;
}

void job_owe(struct job *job, uint64_t bytes)
{
    struct coordinator *c = job->coordinator;
    pthread_mutex_lock(&c->mutex);
    pace_owe(&c->pace, bytes, monotonic_ns());
    pthread_mutex_unlock(&c->mutex);
}

static struct timespec time_of(uint64_t ns)
{
    return (struct timespec){(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
}

bool job_is_paced(struct job *job)
{
    struct coordinator *c = job->coordinator;
    pthread_mutex_lock(&c->mutex);
    const uint64_t end_ns = monotonic_ns() + JOB_PACE_NS;
    uint64_t now_ns = monotonic_ns(), left_ns;
    while ((left_ns = pace_left_ns(&c->pace, now_ns)) > 0 && now_ns < end_ns && !c->is_cancelled) {
        struct timespec until = time_of(now_ns + left_ns < end_ns ? now_ns + left_ns : end_ns);
        pthread_cond_timedwait(&c->news, &c->mutex, &until);
        now_ns = monotonic_ns();
    }
    bool is_cancelled = c->is_cancelled;
    pthread_mutex_unlock(&c->mutex);
    if (is_cancelled)
        embd__error_set(&job->error, EMBD_CLOSED, "it was cancelled");
    return left_ns > 0 && !is_cancelled;
}

void coordinator_end_hold(struct coordinator *c)
{
    if (c->hold_began_ns != 0)
        c->held_ns += monotonic_ns() - c->hold_began_ns;
    c->hold_began_ns = 0;
}

void job_tell_pause(struct job *job, uint64_t pause_us)
{
    struct coordinator *c = job->coordinator;
    pthread_mutex_lock(&c->mutex);
    coordinator_newest(c)->pause_us = pause_us;
    coordinator_end_hold(c);
    pthread_mutex_unlock(&c->mutex);
}

/* Whether others have waited long enough for files that hardly come. With the mutex held. */
static bool is_too_slow(const struct coordinator *c, const struct job *job, uint64_t since_ns)
{
    const struct job_asker *asker = &job->order.asker;
    const uint64_t now_ns = monotonic_ns();
    const uint64_t due_ns = c->files_bytes / COORDINATOR_FILES_RATE * 1000000000u;
    return asker->token[0] != '\0' && now_ns > since_ns + COORDINATOR_FILES_NS + due_ns &&
           turns_has_other(&c->turns, asker->principal, now_ns);
}

int job_wait(struct job *job, const char *awaited)
{
    struct coordinator *c = job->coordinator;
    pthread_mutex_lock(&c->mutex);
    c->heard_ns = monotonic_ns();
    const uint64_t since_ns = c->heard_ns;
    bool is_slow = false;
    while (!c->goes && !c->is_cancelled && !is_slow &&
           monotonic_ns() < c->heard_ns + COORDINATOR_QUIET_NS) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec++;
        pthread_cond_timedwait(&c->news, &c->mutex, &until);
        is_slow = is_too_slow(c, job, since_ns);
    }
    bool goes = c->goes, is_cancelled = c->is_cancelled;
    pthread_mutex_unlock(&c->mutex);
    if (is_cancelled)
        return embd__error_set(&job->error, EMBD_CLOSED, "it was cancelled");
    if (is_slow && !goes)
        return embd__error_set(&job->error, EMBD_BUSY,
                               "its files came too slowly, and others wait for their turn; try "
                               "again");
    if (!goes)
        return embd__error_set(&job->error, EMBD_CLOSED,
                               "its asker has not %s, and sent nothing for 10 s", awaited);
    return EMBD_OK;
}

static int take_own_ca(struct job *job)
{
    struct coordinator *c = job->coordinator;
    pthread_mutex_lock(&c->mutex);
    peers_proof_set_ca(&job->order.proof, c->own.ca, c->own.ca_bytes, c->own.believes_system,
                       &job->error);
    pthread_mutex_unlock(&c->mutex);
    return job->error.status;
}

int job_open(struct job *job)
{
    const struct coordinator_config *config = &job->coordinator->config;
    bool is_trainers = job->order.asker.token[0] != '\0';
    const struct peers_config peers = {
        .n_shards = job->n_shards,
        .first_own = config->first_own,
        .n_own = config->n_own,
        .dialer = config->dialer,
        .addresses = job->order.addresses,
        .admin_addresses = job->order.admin_addresses,
        .admin_hosts = job->order.admin_hosts,
        .proof = &job->order.proof,
        .cert = config->cert,
        .key = config->key,
        .acts_for = is_trainers ? job->order.asker.token : NULL,
        .token_file = is_trainers ? config->peer_token : NULL,
    };
    if (is_trainers && take_own_ca(job) != EMBD_OK)
        return job->error.status;
    if (peers_open(&peers, &job->peers, &job->error) != EMBD_OK)
        return job->error.status;
    pthread_mutex_lock(&job->coordinator->mutex);
    bool is_stopped = job->coordinator->is_stopped;
    job->coordinator->is_open = true;
    pthread_mutex_unlock(&job->coordinator->mutex);
    return is_stopped ? embd__error_set(&job->error, EMBD_DRAINING, "the server ends") : EMBD_OK;
}

void job_close(struct job *job)
{
    pthread_mutex_lock(&job->coordinator->mutex);
    job->coordinator->is_open = false;
    pthread_mutex_unlock(&job->coordinator->mutex);
    peers_close(job->peers);
    job->peers = NULL;
}

int job_renew(struct job *job)
{
    job_close(job);
    return job_open(job);
}

int job_reopen(struct job *job)
{
    job_enter(job, JOB_ABORT);
    return job_renew(job);
}
