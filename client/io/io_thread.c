/* io_thread.c - the loop of a client's links, see io_thread.h and rings.h: the only file where
 * threads cross.
 *
 * Without a thread of the library's own, submitting sends at once and waiting runs the loop. With
 * one, a job goes into a list under the mutex and the loop is woken; the loop's thread sends it,
 * and the end of its last exchange sets `done` and signals. What the exchanges hold is written by
 * one side at a time: the mutex orders it on the way there, `done` on the way back. */
#include "client/io/io_thread.h"

#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/io/carrier.h"
#include "client/io/link_internal.h"
#include "client/io/receive.h"
#include "proto/assert.h"

#define QUIET_NS                                                                                   \
    1000000u /* the loop not run for so long: look for a closed connection before sending */

/* Of rows: the socket is looked at before the loop sleeps where no more are due. */
#define SHORT_BYTES (256u << 10)

/* In a row; then timers and sockets have their turn. */
#define GLANCES 8u

/* Exchanges ahead, whose links are asked for. */
#define SENDS_AHEAD 2u

/* While it spins, before the loop looks at its sockets: some 2 us. */
enum { LOOKS_PER_TURN = 100 };

/* ---- links whose bytes go through rings ---- */

/* Whether looking at it brings it on. */
static bool is_due(const struct link *link)
{
    const struct ring *ring = &link->ring.ring;
    return embd__ring_ready(ring) != 0 || (link->is_blocked && embd__ring_room(ring) != 0);
}

static bool is_idle(const struct link *link)
{
    return link->inflight.n == 0 && link->queue.head == NULL;
}

static bool look_at_all(struct rings *rings)
{
    bool found = false;
    struct link *next;
    for (struct link *link = LIST_FIRST(&rings->watched); link != NULL; link = next) {
        next = LIST_NEXT(link, in_watched);
        if (is_due(link)) {
            found = true;
            embd__link_look(link);
        }
        if (is_idle(link))
            embd__rings_unwatch(link);
    }
    return found;
}

/* Links that wait for nothing, or for a doorbell, are not watched any more. False: all of them. */
static bool sleep_all(struct rings *rings)
{
    bool found = false;
    struct link *next;
    for (struct link *link = LIST_FIRST(&rings->watched); link != NULL; link = next) {
        next = LIST_NEXT(link, in_watched);
        unsigned waits = RING_BYTES | (link->is_blocked ? RING_ROOM : 0u);
        if (embd__ring_wait(&link->ring.ring, waits))
            embd__rings_unwatch(link);
        else
            found = true;
    }
    return found;
}

static bool any_is_due(const struct rings *rings)
{
    const struct link *link;
    LIST_FOREACH(link, &rings->watched, in_watched)
    if (is_due(link))
        return true;
    return false;
}

/* For some microseconds, where there are rings: sockets are looked at by the loop. */
static bool pause_and_look(struct rings *rings)
{
    if (LIST_EMPTY(&rings->watched))
        return false;
    for (int i = 0; i < LOOKS_PER_TURN && !any_is_due(rings); i++)
        embd__spin_pause();
    return look_at_all(rings);
}

/* Looks for some microseconds, where that is worth it, without a turn of the loop. Whether
 * something was there. */
static bool glance(struct rings *rings)
{
    if (LIST_EMPTY(&rings->watched) || !embd__spin_is_worth(&rings->spin) || !pause_and_look(rings))
        return false;
    embd__spin_paid(&rings->spin);
    return true;
}

/* False: the loop may sleep. */
static bool look_or_sleep(struct rings *rings)
{
    bool found = look_at_all(rings);
    bool waits = rings->n_short > 0 || !LIST_EMPTY(&rings->watched);
    if (!found && (!waits || !rings->may_wait))
        return false;
    if (!found && !embd__spin_goes_on(&rings->spin, uv_hrtime()))
        return sleep_all(rings);
    if (found || pause_and_look(rings))
        embd__spin_found(&rings->spin);
    return true;
}

/* Others that want this processor go first. */
static void on_busy(uv_idle_t *busy)
{
    (void)busy;
    sched_yield();
}

static void on_prepare(uv_prepare_t *prepare)
{
    struct rings *rings = prepare->data;
    if (look_or_sleep(rings))
        uv_idle_start(&rings->busy, on_busy);
    else
        uv_idle_stop(&rings->busy);
}

static void begin_rings(struct rings *rings, uv_loop_t *loop, uint64_t spin_ns)
{
    *rings = (struct rings){.spin = {.most_ns = spin_ns}};
    LIST_INIT(&rings->watched);
    uv_prepare_init(loop, &rings->prepare);
    uv_idle_init(loop, &rings->busy);
    rings->prepare.data = rings;
    uv_prepare_start(&rings->prepare, on_prepare);
    uv_unref((uv_handle_t *)&rings->prepare);
    uv_unref((uv_handle_t *)&rings->busy);
}

/* Their handles end when the loop has run. */
static void close_rings(struct rings *rings)
{
    uv_close((uv_handle_t *)&rings->prepare, NULL);
    uv_close((uv_handle_t *)&rings->busy, NULL);
}

/* ---- jobs ---- */

/* Where more is to come, a wake costs little beside it, and the server needs the processor. */
static bool is_short(const struct job *job)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < job->n; i++)
        bytes += job->exchanges[i]->answer_bytes;
    return bytes <= SHORT_BYTES;
}

static void send_job(struct job *job)
{
    struct exchange **exchanges = job->exchanges;
    struct io_thread *io = job->io;
    job->is_short = is_short(job);
    job->io->rings.n_short += job->is_short;
    for (uint32_t i = 0, n = job->n; i < n; i++) {
        if (i + SENDS_AHEAD < n)
            embd__link_ask(exchanges[i + SENDS_AHEAD]->link);
        embd__link_send(exchanges[i]->link, exchanges[i]);
    }
    embd__trunks_flush(&io->trunks);
}

/* After `done` the job may be freed: only the io is touched. */
static void finish_job(struct job *job)
{
    struct io_thread *io = job->io;
    io->rings.n_short -= job->is_short;
    if (!io->has_thread) {
        atomic_store_explicit(&job->done, true, memory_order_release);
        return;
    }
    pthread_mutex_lock(&io->mutex);
    atomic_store_explicit(&job->done, true, memory_order_release);
    pthread_cond_signal(&io->ended);
    pthread_mutex_unlock(&io->mutex);
}

void embd__job_on_end(struct exchange *x)
{
    struct job *job = x->owner;
    EMBD_ASSERT(job->n_left > 0);
    if (--job->n_left == 0)
        finish_job(job);
}

static void on_wake(uv_async_t *wake)
{
    struct io_thread *io = wake->data;
    pthread_mutex_lock(&io->mutex);
    struct job *jobs = io->submitted;
    io->submitted = NULL;
    io->submitted_end = &io->submitted;
    bool stops = io->stops;
    pthread_mutex_unlock(&io->mutex);
    while (jobs != NULL) {
        struct job *job = jobs;
        jobs = job->next; /* before sending: the job may be done and freed when that returns */
        send_job(job);
    }
    if (stops)
        uv_stop(&io->loop);
}

/* ---- the loop and its thread ---- */

/* As EMBD_SPIN_US says: 0 where it or the host has no processor to spare. EMBD_INVALID. */
static int read_spin(uint64_t *spin_ns_out, struct embd__error *e)
{
    const char *text = getenv("EMBD_SPIN_US");
    unsigned long us = SPIN_DEFAULT_US;
    char *end = (char *)"";
    if (text != NULL && text[0] != '\0')
        us = strtoul(text, &end, 10);
    if (*end != '\0' || us > SPIN_MOST_US || (text != NULL && text[0] == '-'))
        return embd__error_set(e, EMBD_INVALID, "EMBD_SPIN_US: '%.60s'; expected 0 to %u", text,
                               SPIN_MOST_US);
    *spin_ns_out = sysconf(_SC_NPROCESSORS_ONLN) > 1 ? us * 1000 : 0; /* servers may have others */
    return EMBD_OK;
}

int embd__io_init(struct io_thread *io, struct embd__error *e)
{
    uint64_t spin_ns = 0;
    enum trunk_use use;
    if (read_spin(&spin_ns, e) != EMBD_OK || embd__trunks_read(&use, e) != EMBD_OK)
        return e->status;
    io->buffer = embd__receive_buffer_new();
    int made = io->buffer == NULL ? UV_ENOMEM : uv_loop_init(&io->loop);
    if (made != 0) {
        free(io->buffer);
        return embd__error_set(e, EMBD_NO_MEMORY, "no event loop could be made: %s",
                               uv_strerror(made));
    }
    if (embd__trunks_init(&io->trunks, &io->loop, use, e) != EMBD_OK) {
        uv_loop_close(&io->loop);
        free(io->buffer);
        return e->status;
    }
    io->trunks.carry = embd__carrier_begin;
    begin_rings(&io->rings, &io->loop, spin_ns);
    embd__pool_init(&io->links, sizeof(struct link));
    io->submitted_end = &io->submitted;
    pthread_mutex_init(&io->mutex, NULL);
    pthread_cond_init(&io->ended, NULL);
    return EMBD_OK;
}

static void *run_loop(void *arg)
{
    struct io_thread *io = arg;
    io->rings.may_wait = true;
    uv_run(&io->loop, UV_RUN_DEFAULT);
    io->rings.may_wait = false;
    return NULL;
}

int embd__io_start_thread(struct io_thread *io, struct embd__error *e)
{
    if (uv_async_init(&io->loop, &io->wake, on_wake) != 0)
        return embd__error_set(e, EMBD_NO_MEMORY, "no wake-up for the client's thread");
    io->wake.data = io;
    io->stops = false;
    io->has_thread = true;
    if (pthread_create(&io->thread, NULL, run_loop, io) == 0)
        return EMBD_OK;
    io->has_thread = false;
    uv_close((uv_handle_t *)&io->wake, NULL);
    return embd__error_set(e, EMBD_NO_MEMORY, "the client's thread could not be started");
}

void embd__io_stop_thread(struct io_thread *io)
{
    if (!io->has_thread)
        return;
    pthread_mutex_lock(&io->mutex);
    io->stops = true;
    pthread_mutex_unlock(&io->mutex);
    uv_async_send(&io->wake);
    pthread_join(io->thread, NULL);
    io->has_thread = false;
    uv_close((uv_handle_t *)&io->wake, NULL);
}

int embd__io_go_on(struct io_thread *io, struct embd__error *e)
{
    uv_run(&io->loop, UV_RUN_NOWAIT); /* the earlier wake-up is closed */
    if (embd__io_start_thread(io, e) == EMBD_OK)
        uv_async_send(&io->wake);
    return e->status;
}

void embd__io_fini(struct io_thread *io)
{
    close_rings(&io->rings);
    embd__trunks_close(&io->trunks);
    uv_run(&io->loop, UV_RUN_DEFAULT);
    uv_loop_close(&io->loop);
    embd__trunks_fini(&io->trunks);
    embd__pool_fini(&io->links);
    free(io->buffer);
    pthread_cond_destroy(&io->ended);
    pthread_mutex_destroy(&io->mutex);
}

/* ---- from the caller ---- */

static void hand_over(struct io_thread *io, struct job *job)
{
    pthread_mutex_lock(&io->mutex);
    *io->submitted_end = job;
    io->submitted_end = &job->next;
    pthread_mutex_unlock(&io->mutex);
    uv_async_send(&io->wake);
}

/* Notices connections that the server closed while no thread ran the loop. */
static void notice_closed(struct io_thread *io)
{
    uint64_t now = uv_hrtime();
    if (now - io->last_run_ns > QUIET_NS)
        uv_run(&io->loop, UV_RUN_NOWAIT);
    io->last_run_ns = now;
}

void embd__io_submit(struct io_thread *io, struct job *job)
{
    job->io = io;
    job->n_left = job->n;
    job->next = NULL;
    atomic_store_explicit(&job->done, job->n == 0, memory_order_relaxed);
    if (job->n == 0)
        return;
    if (io->has_thread) {
        hand_over(io, job);
        return;
    }
    notice_closed(io);
    send_job(job);
}

static bool is_done(const struct job *job)
{
    return atomic_load_explicit(&job->done, memory_order_acquire);
}

void embd__io_await(struct io_thread *io, struct job *job)
{
    if (io->has_thread) {
        pthread_mutex_lock(&io->mutex);
        while (!is_done(job))
            pthread_cond_wait(&io->ended, &io->mutex);
        pthread_mutex_unlock(&io->mutex);
        return;
    }
    io->rings.may_wait = true;
    for (uint32_t i = 1; !is_done(job); i++)
        if (i % GLANCES == 0 || !glance(&io->rings))
            uv_run(&io->loop, UV_RUN_ONCE);
    io->rings.may_wait = false;
    io->last_run_ns = uv_hrtime();
}

bool embd__io_poll(struct io_thread *io, struct job *job)
{
    if (!io->has_thread && !is_done(job))
        uv_run(&io->loop, UV_RUN_NOWAIT);
    return is_done(job);
}
