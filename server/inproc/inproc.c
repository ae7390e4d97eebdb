/* inproc.c - see inproc.h.
 *
 * The happy path: the first user of a text starts the server's thread and waits until the tables
 * are loaded; others of the same text share it; the last one stops it as SIGTERM stops the program,
 * and waits. What runs when the process exits is stopped then.
 *
 * What can fail: the server cannot start (its first user gets the reason); it ends by itself, when
 * an operator drains it; it fails (log_exit). A failed server is never closed: its threads may hold
 * any lock. */
#include "server/inproc/inproc.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/log/ending.h"

#define EXIT_WAIT_S 15 /* a drain takes LOOP_DRAIN_MS and a second at most */

static pthread_cond_t news =
    PTHREAD_COND_INITIALIZER; /* a state is another one, or a server is gone */
static struct inproc *servers;

/* With the mutex. */
static void enter(struct inproc *s, enum inproc_state state)
{
    s->state = state;
    pthread_cond_broadcast(&news);
}

/* ---- failure ---- */

/* A thread that fails may be the one that has the mutex. */
static bool lock_soon(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 1;
    return pthread_mutex_timedlock(&inproc_mutex, &until) == 0;
}

static void fail(struct inproc *s, const char *event, const char *text)
{
    struct process *p = &s->process;
    if (s->state == INPROC_ENDED)
        return;
    embd__error_set(&s->error, EMBD_UNREACHABLE,
                    "the server in this process has failed: %s %.300s; end the process and start "
                    "it again",
                    event, text);
    inproc_cut(s);
    for (uint32_t i = 0; i < p->n_started && !s->is_closing; i++)
        loop_wake(p->loops[i]);
    if (s->state != INPROC_STARTING && !s->is_closing)
        uv_async_send(&p->news);
    enter(s, INPROC_FAILED);
}

/* On the thread that failed, which stands still afterwards. */
static void on_failure(const char *event, const char *text)
{
    bool is_locked = lock_soon();
    for (struct inproc *s = servers; s != NULL; s = s->next)
        fail(s, event, text);
    if (is_locked)
        pthread_mutex_unlock(&inproc_mutex);
}

/* ---- the server's thread ---- */

static void on_ready(void *arg)
{
    struct inproc *s = arg;
    inproc_lock();
    if (s->state == INPROC_STARTING)
        enter(s, INPROC_RUNNING);
    inproc_unlock();
}

/* From here on nobody dials. */
static void note_end(struct inproc *s)
{
    inproc_lock();
    s->is_closing = true;
    if (s->process.failure.status != EMBD_OK)
        s->error = s->process.failure;
    else
        embd__error_set(&s->error, EMBD_UNREACHABLE,
                        "the server in this process was drained; close its handles, then connect "
                        "again");
    if (s->state == INPROC_STARTING || s->state == INPROC_RUNNING)
        s->state = INPROC_STOPPING;
    inproc_unlock();
}

static void run_opened(struct inproc *s, struct embd__error *e)
{
    struct process *p = &s->process;
    enum exit_status status = process_open(p, e);
    if (status == EXIT_OK) {
        running_wait(p);
    } else {
        process_fail(p, status, e);
        running_drain(p);
    }
    note_end(s);
    if (!log_has_ended())
        process_close(p);
}

static void *run(void *arg)
{
    struct inproc *s = arg;
    struct embd__error e = {0};
    if (running_open(&s->process, &e) == EMBD_OK) {
        run_opened(s, &e);
    } else {
        s->process.failure = e;
        note_end(s);
        config_fini(&s->process.config);
    }
    inproc_lock();
    if (s->state != INPROC_FAILED)
        enter(s, INPROC_ENDED);
    else
        pthread_detach(s->thread); /* nobody waits for it */
    inproc_unlock();
    return NULL;
}

/* Its threads have its mask: no signal of the program is handled there, and SIGPIPE, which a thread
 * gets for what it writes itself, stays pending. */
static int start_thread(struct inproc *s, struct embd__error *e)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&s->thread, NULL, run, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0)
        return EMBD_OK;
    return embd__error_set(e, EMBD_NO_MEMORY, "cannot start the server's thread: %s",
                           strerror(error));
}

/* ---- stopping ---- */

/* With the mutex, which is given up for a while. */
static void stop(struct inproc *s)
{
    if (s->state != INPROC_RUNNING)
        return;
    embd__error_set(&s->error, EMBD_UNREACHABLE, "the server in this process has been stopped");
    enter(s, INPROC_STOPPING);
    running_on_drain(&s->process);
}

static void stop_all_at_exit(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += EXIT_WAIT_S;
    inproc_lock();
    for (struct inproc *s = servers; s != NULL; s = s->next)
        stop(s);
    int status = 0;
    for (struct inproc *s = servers; s != NULL && status == 0; s = s->next)
        while (s->state == INPROC_STOPPING && status == 0)
            status = pthread_cond_timedwait(&news, &inproc_mutex, &until);
    inproc_unlock();
}

/* ---- forks ---- */

/* The child has none of the threads. */
static void on_child(void)
{
    pthread_mutex_init(&inproc_mutex, NULL);
    pthread_cond_init(&news, NULL);
    for (struct inproc *s = servers; s != NULL; s = s->next)
        inproc_forget(s);
    servers = NULL;
}

/* ---- users ---- */

static void prepare(void)
{
    log_take_assertions();
    log_end_by(on_failure);
    pthread_atfork(inproc_lock, inproc_unlock, on_child);
    atexit(stop_all_at_exit);
}

static struct inproc *find(const char *text)
{
    struct inproc *s = servers;
    while (s != NULL && strcmp(s->text, text) != 0)
        s = s->next;
    return s;
}

static void take_out(struct inproc *s)
{
    struct inproc **at = &servers;
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    pthread_cond_broadcast(&news);
}

static void destroy(struct inproc *s)
{
    free(s->fds);
    free(s->text);
    free(s);
}

static struct inproc *new_server(const char *text, struct embd__error *e)
{
    struct inproc *s = calloc(1, sizeof *s);
    char *own = strdup(text);
    if (s == NULL || own == NULL) {
        embd__error_set(e, EMBD_NO_MEMORY, "no memory for a server");
        free(s);
        free(own);
        return NULL;
    }
    s->dialer = (struct dialer){inproc_dial, inproc_hang_up};
    s->text = own;
    s->process.is_embedded = true;
    s->process.dialer = &s->dialer;
    s->process.on_ready = on_ready;
    s->process.on_ready_arg = s;
    if (inproc_config_read(text, &s->process.config, e) == EMBD_OK)
        return s;
    destroy(s);
    return NULL;
}

/* With the mutex. NULL: e says why. */
static struct inproc *start(const char *text, struct embd__error *e)
{
    struct inproc *s = new_server(text, e);
    if (s == NULL)
        return NULL;
    log_set_level(s->process.config.log_level);
    if (start_thread(s, e) != EMBD_OK) {
        config_fini(&s->process.config);
        destroy(s);
        return NULL;
    }
    s->next = servers;
    servers = s;
    return s;
}

/* With the mutex: a user goes. The last one waits for the end. */
static void leave(struct inproc *s)
{
    if (--s->n_users > 0 || s->is_inherited)
        return;
    stop(s);
    while (s->state == INPROC_STARTING || s->state == INPROC_STOPPING)
        pthread_cond_wait(&news, &inproc_mutex);
    if (s->state == INPROC_FAILED)
        return;
    take_out(s);
    pthread_mutex_unlock(&inproc_mutex);
    pthread_join(s->thread, NULL);
    destroy(s);
    pthread_mutex_lock(&inproc_mutex);
}

/* With the mutex: until nobody starts or stops a server of this text. */
static struct inproc *wait_for(const char *text)
{
    struct inproc *s;
    while ((s = find(text)) != NULL &&
           (s->state == INPROC_STARTING || s->state == INPROC_STOPPING ||
            (s->state == INPROC_ENDED && s->n_users == 0)))
        pthread_cond_wait(&news, &inproc_mutex);
    return s;
}

static int take_part(const char *text, struct inproc **out, struct embd__error *e)
{
    struct inproc *s = wait_for(text);
    if (log_has_ended())
        return embd__error_set(e, EMBD_UNREACHABLE,
                               "a server in this process has failed, and none can be started: end "
                               "the process and start it again");
    s = s != NULL ? s : start(text, e);
    if (s == NULL)
        return e->status;
    s->n_users++;
    while (s->state == INPROC_STARTING)
        pthread_cond_wait(&news, &inproc_mutex);
    if (s->state == INPROC_RUNNING) {
        *out = s;
        return EMBD_OK;
    }
    *e = s->error;
    leave(s);
    return e->status;
}

static int open_server(const char *text, const struct dialer **out, struct embd__error *e)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct inproc *s = NULL;
    pthread_once(&once, prepare);
    inproc_lock();
    int status = take_part(text, &s, e);
    inproc_unlock();
    if (status == EMBD_OK)
        *out = &s->dialer;
    return status;
}

static void close_server(const struct dialer *dialer)
{
    inproc_lock();
    leave((struct inproc *)(uintptr_t)dialer);
    inproc_unlock();
}

__attribute__((visibility("default"))) const struct embd__inproc_library embd__inproc_library = {
    .version = EMBD_VERSION, .open = open_server, .close = close_server};
