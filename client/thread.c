/* thread.c - the only file where threads cross.
 *
 * Without a thread of the library's own, submitting sends at once and waiting runs the loop. With
 * one, a job goes into a list under the mutex and the loop is woken; the loop's thread sends it,
 * and the end of its last exchange sets `done` and signals. What the exchanges hold is written by
 * one side at a time: the mutex orders it on the way there, `done` on the way back. */
#include "client/thread.h"
#include "proto/assert.h"

#define QUIET_NS                                                                                   \
    1000000u /* the loop not run for so long: look for a closed connection before sending */

static void send_job(struct job *job)
{
    struct exchange **exchanges = job->exchanges;
    for (uint32_t i = 0, n = job->n; i < n; i++)
        embd__link_send(exchanges[i]->link, exchanges[i]);
}

/* After `done` the job may be gone: only the courier is touched. */
static void finish_job(struct job *job)
{
    struct courier *c = job->courier;
    if (!c->has_thread) {
        atomic_store_explicit(&job->done, true, memory_order_release);
        return;
    }
    pthread_mutex_lock(&c->mutex);
    atomic_store_explicit(&job->done, true, memory_order_release);
    pthread_cond_signal(&c->ended);
    pthread_mutex_unlock(&c->mutex);
}

void embd__job_exchange_ended(struct exchange *x)
{
    struct job *job = x->owner;
    EMBD_ASSERT(job->n_left > 0);
    if (--job->n_left == 0)
        finish_job(job);
}

static void on_wake(uv_async_t *wake)
{
    struct courier *c = wake->data;
    pthread_mutex_lock(&c->mutex);
    struct job *jobs = c->submitted;
    c->submitted = NULL;
    c->submitted_end = &c->submitted;
    bool stops = c->stops;
    pthread_mutex_unlock(&c->mutex);
    while (jobs != NULL) {
        struct job *job = jobs;
        jobs = job->next; /* before sending: the job may be done and gone when that returns */
        send_job(job);
    }
    if (stops)
        uv_stop(&c->loop);
}

int embd__courier_init(struct courier *c, struct embd__error *e)
{
    int made = uv_loop_init(&c->loop);
    if (made != 0)
        return embd__error_set(e, EMBD_NO_MEMORY, "no event loop could be made: %s",
                               uv_strerror(made));
    c->submitted_end = &c->submitted;
    pthread_mutex_init(&c->mutex, NULL);
    pthread_cond_init(&c->ended, NULL);
    return EMBD_OK;
}

static void *run_loop(void *arg)
{
    struct courier *c = arg;
    uv_run(&c->loop, UV_RUN_DEFAULT);
    return NULL;
}

int embd__courier_start_thread(struct courier *c, struct embd__error *e)
{
    if (uv_async_init(&c->loop, &c->wake, on_wake) != 0)
        return embd__error_set(e, EMBD_NO_MEMORY, "no wake-up for the client's thread");
    c->wake.data = c;
    c->stops = false;
    c->has_thread = true;
    if (pthread_create(&c->thread, NULL, run_loop, c) == 0)
        return EMBD_OK;
    c->has_thread = false;
    uv_close((uv_handle_t *)&c->wake, NULL);
    return embd__error_set(e, EMBD_NO_MEMORY, "the client's thread could not be started");
}

void embd__courier_stop_thread(struct courier *c)
{
    if (!c->has_thread)
        return;
    pthread_mutex_lock(&c->mutex);
    c->stops = true;
    pthread_mutex_unlock(&c->mutex);
    uv_async_send(&c->wake);
    pthread_join(c->thread, NULL);
    c->has_thread = false;
    uv_close((uv_handle_t *)&c->wake, NULL);
}

void embd__courier_fini(struct courier *c)
{
    uv_run(&c->loop, UV_RUN_DEFAULT);
    uv_loop_close(&c->loop);
    pthread_cond_destroy(&c->ended);
    pthread_mutex_destroy(&c->mutex);
}

static void hand_over(struct courier *c, struct job *job)
{
    pthread_mutex_lock(&c->mutex);
    *c->submitted_end = job;
    c->submitted_end = &job->next;
    pthread_mutex_unlock(&c->mutex);
    uv_async_send(&c->wake);
}

/* Notices connections that the server closed while nobody ran the loop. */
static void notice_news(struct courier *c)
{
    uint64_t now = uv_hrtime();
    if (now - c->last_run_ns > QUIET_NS)
        uv_run(&c->loop, UV_RUN_NOWAIT);
    c->last_run_ns = now;
}

void embd__submit(struct courier *c, struct job *job)
{
    job->courier = c;
    job->n_left = job->n;
    job->next = NULL;
    atomic_store_explicit(&job->done, job->n == 0, memory_order_relaxed);
    if (job->n == 0)
        return;
    if (c->has_thread) {
        hand_over(c, job);
        return;
    }
    notice_news(c);
    send_job(job);
}

static bool is_done(const struct job *job)
{
    return atomic_load_explicit(&job->done, memory_order_acquire);
}

void embd__await(struct courier *c, struct job *job)
{
    if (c->has_thread) {
        pthread_mutex_lock(&c->mutex);
        while (!is_done(job))
            pthread_cond_wait(&c->ended, &c->mutex);
        pthread_mutex_unlock(&c->mutex);
        return;
    }
    while (!is_done(job))
        uv_run(&c->loop, UV_RUN_ONCE);
    c->last_run_ns = uv_hrtime();
}

bool embd__poll(struct courier *c, struct job *job)
{
    if (!c->has_thread && !is_done(job))
        uv_run(&c->loop, UV_RUN_NOWAIT);
    return is_done(job);
}
