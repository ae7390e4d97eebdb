/* coordinator_inside.h - what coordinator.c, job.c and job_watch.c share: the list of jobs. */
#ifndef EMBD_COORDINATOR_INSIDE_H
#define EMBD_COORDINATOR_INSIDE_H

#include <pthread.h>

#include "server/coordinator/coordinator.h"
#include "server/coordinator/pace.h"
#include "server/coordinator/turns.h"
#include "server/log/monotonic.h"

#define JOBS_REMEMBERED 64u
#define JOBS_OF_ASKER   8u /* of these: no asker makes those of others forgotten */

struct coordinator {
    struct coordinator_config config;
    pthread_mutex_t mutex;
    pthread_cond_t news; /* go, cancelled, or another rate */
    /* Guarded. */
    struct job_report jobs[JOBS_REMEMBERED]; /* the newest is jobs[n_jobs - 1] */
    uint32_t n_jobs;
    struct turns turns;
    struct peers_proof own;      /* the authorities that this server believes */
    uint64_t began_ns, heard_ns; /* of the newest: its asker was last heard */
    uint64_t files_bytes;        /* that its asker has sent */
    struct pace pace;            /* of the rows that move */
    uint64_t hold_began_ns;      /* of its hold, while that lasts; else 0 */
    uint64_t held_ns;            /* how long it has lasted */
    uint64_t n_failures;         /* coordinator_failures */
    bool runs, goes, is_cancelled, is_stopped;
    bool is_left;    /* cancelled, since its asker has left */
    bool is_open;    /* its connections are: they may be stopped */
    bool has_thread; /* must be joined */
    pthread_t thread;
    struct job *job; /* the one that runs */
};

/* ---- with the mutex held ---- */

/* There is one. */
struct job_report *coordinator_newest(struct coordinator *c);
/* The hold of the newest job has ended, if there was one. */
void coordinator_end_hold(struct coordinator *c);
/* Cancels the job that runs. */
void coordinator_end_job(struct coordinator *c);

#endif
