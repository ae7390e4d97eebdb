/* job.h - one job while its thread does it: what coordinator.c and the jobs are to each other. */
#ifndef EMBD_COORDINATOR_JOB_H
#define EMBD_COORDINATOR_JOB_H

#include "server/coordinator/coordinator.h"

#define JOB_PACE_NS UINT64_C(1000000000)

/* Owner: the job's thread. */
struct job {
    struct coordinator *coordinator;
    struct job_order order; /* its lists are the job's own */
    uint64_t id;
    uint32_t n_shards;
    enum job_phase phase; /* the last it entered, before it began to clean up */
    struct peers *peers;
    struct embd__error error;
};

/* ---- job.c ---- */

/* Its connections; EMBD_DRAINING: the server ends. */
int job_open(struct job *job);
void job_close(struct job *job);

/* Sets the phase that watchers see. False: the job was cancelled, and has the error. */
bool job_enter(struct job *job, enum job_phase phase);
void job_tell(struct job *job, uint32_t shards_done, uint64_t rows, uint64_t bytes);
/* What a move will copy, about. */
void job_tell_expected(struct job *job, uint64_t rows, uint64_t bytes);
/* As it is now; 0: there is none. */
uint64_t job_rate(struct job *job);
/* So many bytes were copied, and the rate counts them. */
void job_owe(struct job *job, uint64_t bytes);
/* Waits for the rate, JOB_PACE_NS at most. Whether the next bytes must still wait; false also after
 * a cancel, with the error. */
bool job_is_paced(struct job *job);
/* The hold of the phase JOB_HOLD has ended. */
void job_tell_pause(struct job *job, uint64_t pause_us);
/* Until the asker says go. EMBD_CLOSED: cancelled, or the asker is silent. */
int job_wait(struct job *job, const char *awaited);
/* New connections: shards drop what they kept for those before. */
int job_renew(struct job *job);
/* The same, to clean up: a cancel does not stop them. */
int job_reopen(struct job *job);

/* ---- the jobs: job->error says how it went ---- */

void snapshot_job_run(struct job *job);
void read_job_run(struct job *job);
void abort_job_run(struct job *job);
void replace_job_run(struct job *job);
void move_job_run(struct job *job);
void grow_job_run(struct job *job);
void retire_job_run(struct job *job);

/* Until the shards of the job's map have removed the rows that are not theirs by it. Nothing fails.
 */
void move_job_await_removal(struct job *job);

/* Before a map of more shards: until the followers of all shards have the base of each, or some
 * seconds have passed; then the check under the hold names one that has not. */
void move_job_await_followers(struct job *job);

#endif
