/* lanes.c - reader threads; the only file of the data sets where threads cross.
 *
 * Which thread reads a piece is a function of the piece's number, and the taker goes through the
 * pieces in order: it always knows whose chunk comes next, and no order depends on who is faster.
 * Each thread fills chunks of its own and waits when all are full, so memory is bounded, and a
 * thread that is far ahead can never take the room that the one in front needs. The mutex of a lane
 * hands its chunks over and back; what is in them is touched without it. */
#include <signal.h>
#include <stdlib.h>

#include "client/data/lanes.h"

/* ---- the reader's side ----------------------------------------------------------------------- */

/* NULL: the lane is to stop. */
static struct chunk *wait_for_empty(struct lane *lane)
{
    struct chunk *chunk = NULL;
    pthread_mutex_lock(&lane->mutex);
    while (lane->n_full == lane->n_ring && !lane->stops)
        pthread_cond_wait(&lane->changed, &lane->mutex);
    if (!lane->stops)
        chunk = &lane->ring[(lane->first + lane->n_full) % lane->n_ring];
    pthread_mutex_unlock(&lane->mutex);
    return chunk;
}

static void hand_over(struct lane *lane)
{
    pthread_mutex_lock(&lane->mutex);
    lane->n_full++;
    pthread_cond_signal(&lane->changed);
    pthread_mutex_unlock(&lane->mutex);
}

/* False: the lane is to stop. */
static bool read_piece(struct lane *lane, uint64_t piece)
{
    bool ends = false;
    while (!ends) {
        struct chunk *chunk = wait_for_empty(lane);
        if (chunk == NULL)
            return false;
        embd__source_fill(&lane->source, piece, chunk);
        ends = chunk->ends_piece; /* before the chunk is another's */
        hand_over(lane);
    }
    return true;
}

static void *run(void *arg)
{
    struct lane *lane = arg;
    for (uint64_t piece = lane->index; piece < lane->plan->n_pieces; piece += lane->n_lanes)
        if (!read_piece(lane, piece))
            break;
    return NULL;
}

/* ---- the taker's side ------------------------------------------------------------------------ */

struct chunk *embd__lanes_take(struct lanes *lanes, uint64_t piece)
{
    struct lane *lane = &lanes->lanes[piece % lanes->n];
    pthread_mutex_lock(&lane->mutex);
    while (lane->n_full == 0)
        pthread_cond_wait(&lane->changed, &lane->mutex);
    struct chunk *chunk = &lane->ring[lane->first];
    pthread_mutex_unlock(&lane->mutex);
    return chunk;
}

void embd__lanes_return(struct lanes *lanes, uint64_t piece)
{
    struct lane *lane = &lanes->lanes[piece % lanes->n];
    pthread_mutex_lock(&lane->mutex);
    lane->first = (lane->first + 1) % lane->n_ring;
    lane->n_full--;
    pthread_cond_signal(&lane->changed);
    pthread_mutex_unlock(&lane->mutex);
}

/* ---- beginning and end ----------------------------------------------------------------------- */

static uint32_t smaller(uint64_t a, uint32_t b)
{
    return a < b ? (uint32_t)a : b;
}

static int open_ring(struct lane *lane, struct embd__error *e)
{
    lane->ring = calloc(lane->n_ring, sizeof *lane->ring);
    if (lane->ring == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for %u chunks", lane->n_ring);
    for (uint32_t i = 0; i < lane->n_ring; i++)
        if (embd__chunk_open(&lane->ring[i], lane->plan, e) != EMBD_OK)
            return e->status;
    return EMBD_OK;
}

/* Signals are for the threads of the program, not for ours. */
static int start_thread(struct lane *lane, struct embd__error *e)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    lane->has_thread = pthread_create(&lane->thread, NULL, run, lane) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!lane->has_thread)
        return embd__error_set(e, EMBD_NO_MEMORY, "reader thread %u could not be started",
                               lane->index);
    return EMBD_OK;
}

static int open_lane(struct lane *lane, struct embd__error *e)
{
    int status = embd__source_init(&lane->source, lane->plan, e);
    if (status == EMBD_OK)
        status = open_ring(lane, e);
    return status == EMBD_OK ? start_thread(lane, e) : status;
}

int embd__lanes_open(struct lanes *lanes, const struct data_plan *plan, struct embd__error *e)
{
    uint32_t n = smaller(plan->n_pieces, plan->options.threads);
    uint32_t ahead = n > 0 ? (plan->options.batches_ahead + n - 1) / n : 0;
    *lanes = (struct lanes){.lanes = calloc(n + !n, sizeof *lanes->lanes)};
    if (lanes->lanes == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for %u reader threads", n);
    for (uint32_t i = 0; i < n && e->status == EMBD_OK; i++) {
        struct lane *lane = &lanes->lanes[lanes->n++];
        lane->index = i;
        lane->n_lanes = n;
        lane->plan = plan;
        lane->n_ring = ahead < 2 ? 2 : ahead;
        pthread_mutex_init(&lane->mutex, NULL);
        pthread_cond_init(&lane->changed, NULL);
        open_lane(lane, e);
    }
    return e->status;
}

static void stop(struct lane *lane)
{
    pthread_mutex_lock(&lane->mutex);
    lane->stops = true;
    pthread_cond_signal(&lane->changed);
    pthread_mutex_unlock(&lane->mutex);
}

static void close_lane(struct lane *lane)
{
    if (lane->has_thread)
        pthread_join(lane->thread, NULL);
    for (uint32_t i = 0; lane->ring != NULL && i < lane->n_ring; i++)
        embd__chunk_close(&lane->ring[i]);
    free(lane->ring);
    embd__source_fini(&lane->source);
    pthread_cond_destroy(&lane->changed);
    pthread_mutex_destroy(&lane->mutex);
}

void embd__lanes_close(struct lanes *lanes)
{
    for (uint32_t i = 0; i < lanes->n; i++)
        stop(&lanes->lanes[i]);
    for (uint32_t i = 0; i < lanes->n; i++)
        close_lane(&lanes->lanes[i]);
    free(lanes->lanes);
    *lanes = (struct lanes){0};
}
