/* lanes.h - reader threads: each fills a ring of chunks, ahead of the caller. */
#ifndef EMBD_DATA_LANES_H
#define EMBD_DATA_LANES_H

#include <pthread.h>

#include "client/data/source.h"
#include "embd/data.h"

/* One thread. Piece p is read by lane p % n. */
struct lane {
    uint32_t index, n_lanes;
    const struct data_plan *plan;
    struct source source; /* the thread's */
    struct chunk *ring; /* [n_ring] the taker's are n_full from `first`, the others the thread's */
    uint32_t n_ring;
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    uint32_t first, n_full; /* guarded */
    bool stops;             /* guarded */
};

struct lanes {
    struct lane *lanes; /* [n] */
    uint32_t n;
};

/* Makes the lanes and starts their threads. EMBD_NO_MEMORY. To be closed after a failure too. */
int embd__lanes_open(struct lanes *lanes, const struct data_plan *plan, struct embd__error *e);

/* Waits for the threads; each stops after the chunk that it is filling. */
void embd__lanes_close(struct lanes *lanes);

/* The next chunk of a piece, once it is read. Pieces must be taken in order, each to its end; the
 * chunk is the taker's until embd__lanes_return. */
struct chunk *embd__lanes_take(struct lanes *lanes, uint64_t piece);
void embd__lanes_return(struct lanes *lanes, uint64_t piece);

#endif
