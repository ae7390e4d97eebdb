/* running.c - the process between its start and its end.
 *
 * The happy path: the shards replay their journals and report it; the process is ready, and tells
 * the service manager; then it waits. Keys and tokens are read again when their files change, and
 * on SIGHUP. SIGTERM, SIGINT and the admin method `drain` have every shard finish; when all threads
 * have ended, the wait is over.
 *
 * The main thread runs a small loop for this and for the HTTP port. Threads of shards set atomics
 * and wake it. */
#include "server/archiving.h"
#include "server/directory.h"
#include "server/process.h"
#include "server/access/access.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "server/notify.h"

enum { PATIENCE_MS = 5000, CREDENTIALS_MS = 2000 };

void running_wake(void *arg)
{
    struct process *p = arg;
    for (uint32_t i = 0; i < p->n_started; i++)
        loop_wake(p->loops[i]);
}

void running_drain(struct process *p)
{
    archiving_stop(p);
    coordinator_stop(p->coordinator);
    for (uint32_t i = 0; i < p->n_started; i++)
        loop_drain(p->loops[i]);
}

enum exit_status process_fail(struct process *p, enum exit_status status,
                              const struct embd__error *e)
{
    p->failure = *e;
    if (p->is_embedded) /* its opener gets the error */
        return status;
    if (status == EXIT_USAGE)
        fprintf(stderr, "%s: %s\n", program_invocation_short_name, e->text);
    else
        log_event(LOG_ERROR, p->has_failed_following ? "follow_failed" : "start_failed",
                  "why=\"%s\"", e->text);
    return status;
}

/* ---- what shards report, on their threads ---- */

void running_on_drain(void *arg)
{
    struct process *p = arg;
    atomic_store(&p->drain_asked, true);
    uv_async_send(&p->news);
}

void running_on_lost(void *arg)
{
    struct process *p = arg;
    atomic_store(&p->is_lost, true);
    running_on_drain(arg);
}

void running_on_end(void *arg)
{
    struct process *p = arg;
    atomic_fetch_add(&p->n_ended, 1);
    uv_async_send(&p->news);
}

void running_on_loaded(void *arg, bool follows, const struct embd__error *e)
{
    struct process *p = arg;
    if (e->status == EMBD_OK) {
        atomic_fetch_add(&p->n_loaded, 1);
    } else if (atomic_fetch_add(&p->n_failed, 1) == 0) {
        p->why = *e;
        p->has_failed_following = follows;
        atomic_store(&p->has_why, true);
    }
    uv_async_send(&p->news);
}

/* ---- the service manager ---- */

/* That of another program is not ours to speak to. */
static void tell_manager(const struct process *p, const char *state)
{
    if (!p->is_embedded)
        notify_send(state);
}

/* The process is alive when all its shards are: each has turned since the last look. */
static void on_watchdog(uv_timer_t *timer)
{
    struct process *p = timer->data;
    bool all_turn = true;
    for (uint32_t i = 0; i < p->n_started; i++) {
        uint64_t beats = loop_beats(p->loops[i]);
        all_turn = all_turn && beats != p->beats[i];
        p->beats[i] = beats;
    }
    if (all_turn)
        tell_manager(p, "WATCHDOG=1");
}

static void start_watchdog(struct process *p)
{
    unsigned every_ms = p->is_embedded ? 0 : notify_watchdog_ms();
    p->beats = calloc(p->room, sizeof *p->beats);
    if (every_ms > 0 && p->beats != NULL)
        uv_timer_start(&p->watchdog, on_watchdog, every_ms, every_ms);
}

/* A long journal takes longer than a start may take by default. */
static void on_patience(uv_timer_t *timer)
{
    const struct process *p = timer->data;
    tell_manager(p, "EXTEND_TIMEOUT_USEC=30000000");
}

/* All shards take requests. */
static void be_ready(struct process *p)
{
    p->is_ready = true;
    uv_timer_stop(&p->patience);
    log_event(LOG_INFO, "ready", "shards=%u", p->n);
    start_watchdog(p);
    archiving_begin(p);
    tell_manager(p, "READY=1");
    if (p->on_ready != NULL)
        p->on_ready(p->on_ready_arg);
    if (p->config.ready_fd >= 0) {
        ssize_t written = write(p->config.ready_fd, "ready\n", 6);
        if (written != 6)
            log_event(LOG_WARN, "ready_fd",
                      "fd=%d why=\"cannot write to the descriptor given by --ready-fd\"",
                      p->config.ready_fd);
        close(p->config.ready_fd);
    }
}

/* A name that no shard has found may be a mistake for another one: nobody is to believe it gone. */
static int check_dropped(const struct process *p, struct embd__error *e)
{
    for (uint32_t i = 0; i < p->config.n_dropped; i++)
        if (!atomic_load(&p->dropped_found[i]))
            return embd__error_set(e, EMBD_INVALID,
                                   "--drop-table: neither the journals nor the snapshot of this "
                                   "start have a table '%s'; other tables that were named are "
                                   "dropped, as the log says",
                                   p->config.dropped[i]);
    return EMBD_OK;
}

static void settle(struct process *p)
{
    struct embd__error e = {.status = EMBD_OK};
    if (check_dropped(p, &e) == EMBD_OK) {
        be_ready(p);
        return;
    }
    p->exit_status = process_fail(p, EXIT_USAGE, &e);
    running_drain(p);
}

/* ---- news and signals ---- */

static void on_news(uv_async_t *async)
{
    struct process *p = async->data;
    if (log_has_ended()) {
        http_stop(p->http);
        uv_stop(&p->uv);
        return;
    }
    if (atomic_exchange(&p->has_why, false)) {
        p->exit_status = process_fail(p, EXIT_FAILED, &p->why);
        running_drain(p);
    }
    if (!p->is_ready && p->exit_status == EXIT_OK && atomic_load(&p->n_loaded) == p->n)
        settle(p);
    if (p->look_for_room != NULL)
        p->look_for_room(p);
    if (atomic_load(&p->n_ended) == p->n_started)
        uv_stop(&p->uv);
    else if (atomic_exchange(&p->drain_asked, false))
        running_drain(p);
    if (atomic_load(&p->is_lost) && p->exit_status == EXIT_OK)
        p->exit_status = EXIT_FAILED;
}

static void on_signal(uv_signal_t *handle, int number)
{
    struct process *p = handle->data;
    if (p->was_signalled)
        _exit(EXIT_FAILED);
    p->was_signalled = true;
    log_event(LOG_INFO, "signal", "number=%d", number);
    tell_manager(p, "STOPPING=1");
    running_drain(p);
}

/* To all shards or to none. */
static int hand_out_credentials(struct process *p, const struct credentials *credentials,
                                struct embd__error *e)
{
    struct credentials **copies = calloc(p->n, sizeof *copies);
    uint32_t n = 0;
    while (copies != NULL && n < p->n_started && (copies[n] = credentials_new(credentials)) != NULL)
        n++;
    bool is_whole = copies != NULL && n == p->n_started;
    for (uint32_t i = 0; i < n; i++)
        if (is_whole)
            loop_set_credentials(p->loops[i], copies[i]);
        else
            credentials_free(copies[i]);
    free(copies);
    return is_whole ? EMBD_OK
                    : embd__error_set(e, EMBD_NO_MEMORY, "no memory for the new credentials");
}

/* Certificates and tokens are read again; where one cannot be, those before stay. */
static void read_credentials_again(struct process *p)
{
    struct embd__error e = {0};
    struct credentials next;
    p->credentials_stamp = credential_files_stamp(&p->config.credential_files);
    if (credentials_open(&p->config.credential_files, &next, &e) != EMBD_OK ||
        hand_out_credentials(p, &next, &e) != EMBD_OK) {
        log_event(LOG_ERROR, "keys_not_reloaded", "why=\"%s\"", e.text);
        credentials_drop(&next);
        return;
    }
    credentials_drop(&p->credentials);
    p->credentials = next;
    if (directory_take_credentials(p, &e) != EMBD_OK)
        log_event(LOG_ERROR, "keys_not_reloaded", "why=\"%s\"", e.text);
    p->http_process.certificate_expires = credentials_expire(&p->credentials);
    log_event(LOG_INFO, "keys_reloaded", "tls=%s tokens=%u", next.tls != NULL ? "yes" : "no",
              next.access != NULL ? access_count(next.access) : 0);
}

/* A certificate and its key change one after the other: a half of a new pair is refused, and looked
 * at again when the other half comes. */
static void on_credentials_watch(uv_timer_t *timer)
{
    struct process *p = timer->data;
    if (credential_files_stamp(&p->config.credential_files) != p->credentials_stamp)
        read_credentials_again(p);
}

/* While shards load, a message to the service manager would say that the process is ready: so there
 * is none. */
static void on_hangup(uv_signal_t *handle, int number)
{
    struct process *p = handle->data;
    (void)number;
    if (p->is_ready && !p->is_embedded)
        notify_reloading();
    read_credentials_again(p);
    if (p->is_ready)
        tell_manager(p, "READY=1");
}

/* ---- the loop ---- */

static void take_signals(struct process *p)
{
    uv_signal_start(&p->on_term, on_signal, SIGTERM);
    uv_signal_start(&p->on_int, on_signal, SIGINT);
    uv_signal_start(&p->on_hup, on_hangup, SIGHUP);
    signal(SIGPIPE, SIG_IGN);
}

int running_open(struct process *p, struct embd__error *e)
{
    int status = uv_loop_init(&p->uv);
    status = status < 0 ? status : uv_async_init(&p->uv, &p->news, on_news);
    uv_signal_t *signals[] = {&p->on_term, &p->on_int, &p->on_hup};
    for (int i = 0; i < 3 && status >= 0; i++)
        status = uv_signal_init(&p->uv, signals[i]);
    status = status < 0 ? status : uv_timer_init(&p->uv, &p->watchdog);
    status = status < 0 ? status : uv_timer_init(&p->uv, &p->patience);
    status = status < 0 ? status : uv_timer_init(&p->uv, &p->credentials_watch);
    if (status < 0)
        return embd__error_set(e, EMBD_NO_MEMORY, "cannot create the main loop: %s",
                               uv_strerror(status));
    p->news.data = p->on_term.data = p->on_int.data = p->on_hup.data = p;
    p->watchdog.data = p->patience.data = p->credentials_watch.data = p;
    if (!p->is_embedded)
        take_signals(p);
    return EMBD_OK;
}

void running_wait(struct process *p)
{
    uv_timer_start(&p->patience, on_patience, PATIENCE_MS, PATIENCE_MS);
    uv_timer_start(&p->credentials_watch, on_credentials_watch, CREDENTIALS_MS, CREDENTIALS_MS);
    uv_run(&p->uv, UV_RUN_DEFAULT);
}

static void close_handle(uv_handle_t *handle, void *arg)
{
    (void)arg;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

void running_close(struct process *p)
{
    archiving_stop(p);
    archiving_close(p);
    uv_walk(&p->uv, close_handle, NULL);
    uv_run(&p->uv, UV_RUN_DEFAULT);
    free(p->beats);
}
