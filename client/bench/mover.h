/* mover.h - what moves the batches of a workload: embd, or one of its peers. One mover belongs to
 * one thread. */
#ifndef EMBD_BENCH_MOVER_H
#define EMBD_BENCH_MOVER_H

#include <stdint.h>

#define MOVER_IN_FLIGHT_MAX 64u

struct mover {
    void *context;
    uint32_t in_flight; /* requests that may be started and not finished: lanes */
    /* Starts the batch-th request of the workload in a free lane. 0, or an exit code after saying
     * why. */
    int (*start)(void *context, uint64_t batch, uint32_t lane);
    /* Waits for the request of a lane. Lanes are finished in the order started. */
    int (*finish)(void *context, uint32_t lane);
    void (*close)(void *context);
};

/* How the program ends. */
enum exit_code { DONE = 0, FAILED = 1, USAGE = 2, UNREACHABLE = 3 };

#endif
