/* thread.h - jobs: exchanges that are waited for together, handed from the caller's thread to the
 * loop's and back. With and without a thread of the library's own the rest of the client looks the
 * same. */
#ifndef EMBD_CLIENT_THREAD_H
#define EMBD_CLIENT_THREAD_H

#include <pthread.h>
#include <stdatomic.h>

#include "client/link/link.h"

/* Between embd__submit and done the loop's thread has it and its exchanges. */
struct job {
    struct exchange *
        *exchanges; /* [n]; all with owner = the job and on_end = embd__job_exchange_ended */
    uint32_t n;
    uint32_t n_left;
    atomic_bool done;
    struct courier *courier;
    struct job *next;
};

/* What carries jobs to the loop. Owner: the caller's thread, apart from what the mutex guards. */
struct courier {
    uv_loop_t loop;
    uint64_t last_run_ns; /* caller's loop: when it last ran */
    bool has_thread;
    pthread_t thread;
    uv_async_t wake;
    pthread_mutex_t mutex;
    pthread_cond_t ended;                   /* a job is done */
    struct job *submitted, **submitted_end; /* guarded */
    bool stops;                             /* guarded */
};

int embd__courier_init(struct courier *c, struct embd__error *e);
/* Moves the loop to a thread of its own from now on. */
int embd__courier_start_thread(struct courier *c, struct embd__error *e);
/* The loop is the caller's again. */
void embd__courier_stop_thread(struct courier *c);
/* Runs the loop until all its handles are closed, then frees. */
void embd__courier_fini(struct courier *c);

/* An empty job is done at once. */
void embd__submit(struct courier *c, struct job *job);
/* Until the job is done. */
void embd__await(struct courier *c, struct job *job);
/* Lets bytes move and says whether the job is done. */
bool embd__poll(struct courier *c, struct job *job);
void embd__job_exchange_ended(struct exchange *x);

#endif
