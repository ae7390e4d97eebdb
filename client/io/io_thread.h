/* io_thread.h - jobs: exchanges that are waited for together, handed from the caller's thread to
 * the loop's and back. With and without a thread of the library's own the rest of the client looks
 * the same. */
#ifndef EMBD_IO_IO_THREAD_H
#define EMBD_IO_IO_THREAD_H

#include <pthread.h>
#include <stdatomic.h>

#include "client/io/link.h"
#include "client/io/pages.h"
#include "client/io/rings.h"
#include "client/io/trunk.h"

/* Between embd__io_submit and done the loop's thread has it and its exchanges. */
struct job {
    struct exchange **exchanges; /* [n]; all with owner = the job and on_end = embd__job_on_end */
    uint32_t n;
    uint32_t n_left;
    bool is_short; /* the loop's: counted in rings.n_short */
    atomic_bool done;
    struct io_thread *io;
    struct job *next;
};

/* Jobs on their way to the loop. Owner: the caller's thread, apart from what the mutex guards. */
struct io_thread {
    uv_loop_t loop;
    uint8_t *buffer;      /* of the loop's links, see receive.h */
    struct rings rings;   /* of the loop's links */
    struct trunks trunks; /* likewise */
    struct pool links;    /* their memory */
    uint64_t last_run_ns; /* caller's loop: when it last ran */
    bool has_thread;
    pthread_t thread;
    uv_async_t wake;
    pthread_mutex_t mutex;
    pthread_cond_t ended;                   /* a job is done */
    struct job *submitted, **submitted_end; /* guarded */
    bool stops;                             /* guarded */
};

int embd__io_init(struct io_thread *io, struct embd__error *e);
/* Moves the loop to a thread of its own from now on. */
int embd__io_start_thread(struct io_thread *io, struct embd__error *e);
/* The loop is the caller's again. */
void embd__io_stop_thread(struct io_thread *io);
/* After embd__io_stop_thread, with jobs that have not ended: the loop is on a thread again. */
int embd__io_go_on(struct io_thread *io, struct embd__error *e);
/* Runs the loop until all its handles are closed, then frees. */
void embd__io_fini(struct io_thread *io);

/* An empty job is done at once. */
void embd__io_submit(struct io_thread *io, struct job *job);
/* Until the job is done. */
void embd__io_await(struct io_thread *io, struct job *job);
/* Lets bytes move and says whether the job is done. */
bool embd__io_poll(struct io_thread *io, struct job *job);
void embd__job_on_end(struct exchange *x);

#endif
