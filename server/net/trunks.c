/* trunks.c - see trunks.h. */
#include "server/net/trunks.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "server/log/monotonic.h"
#include "server/net/trunk.h"

enum {
    THREADS_MOST = 8,
    SHARDS_PER_THREAD = 32,
    EVENTS = 256,   /* at once */
    CHOKED_MS = 20, /* until one that waits for memory looks again */
    FULL_MS = 500,  /* between looks at those whose peers do not take what waits for them */
};

TAILQ_HEAD(trunk_list, trunk);

/* On its way to its thread. */
struct arrival {
    struct arrival *next;
    struct trunk_wire wire;
    struct adopted_peer peer;
};

struct trunk_thread {
    struct trunk_desk desk; /* its own */
    struct trunks *trunks;
    struct trunk_list all, active;
    bool has_choked, has_full;
    uint64_t looked_ms;    /* at those */
    struct trunk_end wake; /* an eventfd */
    pthread_t thread;
    bool is_started;
    struct arrival *arrivals; /* guarded by trunks.mutex, as: */
    bool stops;
};

struct trunks {
    struct trunks_config config;
    pthread_mutex_t mutex;
    _Atomic uint32_t n_shards; /* 0: none may begin. Set under the mutex */
    _Atomic uint32_t n;
    uint32_t n_threads, next; /* guarded */
    struct trunk_thread threads[THREADS_MOST];
};

/* ---- a thread ---- */

static uint64_t now_ms(void)
{
    return monotonic_ns() / 1000000;
}

static void activate(struct trunk_thread *thread, struct trunk *t)
{
    if (t == NULL || t->is_active)
        return;
    t->is_active = true;
    TAILQ_INSERT_TAIL(&thread->active, t, in_active);
}

static void end_trunk(struct trunk_thread *thread, struct trunk *t)
{
    TAILQ_REMOVE(&thread->all, t, in_all);
    trunk_free(t);
    atomic_fetch_sub(&thread->trunks->n, 1);
}

/* Each that has something to do, once. */
static void take_turns(struct trunk_thread *thread)
{
    struct trunk_list now = TAILQ_HEAD_INITIALIZER(now);
    struct trunk *t;
    TAILQ_CONCAT(&now, &thread->active, in_active);
    while ((t = TAILQ_FIRST(&now)) != NULL) {
        TAILQ_REMOVE(&now, t, in_active);
        t->is_active = false;
        bool has_more = trunk_turn(t);
        if (t->is_lost) {
            end_trunk(thread, t);
            continue;
        }
        if (has_more)
            activate(thread, t);
        thread->has_choked |= t->is_choked;
        thread->has_full |= t->out != NULL;
    }
}

static void begin_trunk(struct trunk_thread *thread, struct arrival *a)
{
    struct trunk *t = trunk_new(&thread->desk, &a->wire, &a->peer);
    if (t == NULL) {
        trunk_wire_discard(&a->wire);
        atomic_fetch_sub(&thread->trunks->n, 1);
    } else {
        TAILQ_INSERT_TAIL(&thread->all, t, in_all);
    }
    free(a);
}

/* False: the thread is to end. */
static bool take_arrivals(struct trunk_thread *thread)
{
    uint64_t times;
    ssize_t got = read(thread->wake.fd, &times, sizeof times);
    (void)got; /* it was for this */
    pthread_mutex_lock(&thread->trunks->mutex);
    struct arrival *arrivals = thread->arrivals;
    bool stops = thread->stops;
    thread->arrivals = NULL;
    pthread_mutex_unlock(&thread->trunks->mutex);
    while (arrivals != NULL) {
        struct arrival *a = arrivals;
        arrivals = a->next;
        begin_trunk(thread, a);
    }
    return !stops;
}

/* Those that wait for memory. */
static void retry_choked(struct trunk_thread *thread)
{
    struct trunk *t;
    if (!thread->has_choked)
        return;
    thread->has_choked = false;
    TAILQ_FOREACH(t, &thread->all, in_all)
    if (t->is_choked)
        activate(thread, t);
}

/* Nothing tells of a peer that does not read. */
static void look_at_full(struct trunk_thread *thread)
{
    struct trunk *t, *next;
    if (!thread->has_full || thread->desk.now_ms - thread->looked_ms < FULL_MS)
        return;
    thread->has_full = false;
    thread->looked_ms = thread->desk.now_ms;
    for (t = TAILQ_FIRST(&thread->all); t != NULL; t = next) {
        next = TAILQ_NEXT(t, in_all);
        thread->has_full |= t->out != NULL;
        if (trunk_has_stalled(t, thread->trunks->config.stall_ms))
            activate(thread, t); /* which ends it */
    }
}

static int next_look_ms(const struct trunk_thread *thread)
{
    if (!TAILQ_EMPTY(&thread->active))
        return 0;
    return thread->has_choked ? CHOKED_MS : thread->has_full ? FULL_MS : -1;
}

static bool run_once(struct trunk_thread *thread)
{
    struct epoll_event events[EVENTS];
    bool goes_on = true;
    int n = epoll_wait(thread->desk.epoll, events, EVENTS, next_look_ms(thread));
    thread->desk.now_ms = now_ms();
    for (int i = 0; i < n; i++) {
        if (events[i].data.ptr == &thread->wake)
            goes_on &= take_arrivals(thread);
        else
            activate(thread, trunk_on_event(events[i].data.ptr, events[i].events));
    }
    if (n <= 0)
        retry_choked(thread);
    look_at_full(thread);
    take_turns(thread);
    trunk_bury(&thread->desk);
    return goes_on;
}

static void *run(void *arg)
{
    struct trunk_thread *thread = arg;
    struct trunk *t;
    pthread_setname_np(pthread_self(), "embd-trunks");
    while (run_once(thread))
        ;
    while ((t = TAILQ_FIRST(&thread->all)) != NULL)
        end_trunk(thread, t);
    trunk_bury(&thread->desk);
    return NULL;
}

/* ---- starting and stopping one ---- */

static void close_thread(struct trunk_thread *thread)
{
    if (thread->desk.epoll >= 0)
        close(thread->desk.epoll);
    if (thread->wake.fd >= 0)
        close(thread->wake.fd);
    free(thread->desk.in);
    free(thread->desk.sealed);
}

static bool open_thread(struct trunks *trunks, struct trunk_thread *thread)
{
    *thread = (struct trunk_thread){
        .desk = {.epoll = epoll_create1(EPOLL_CLOEXEC),
                 .in = malloc(TRUNK_IN_BYTES),
                 .sealed = malloc(TRUNK_IN_BYTES),
                 .quota = trunks->config.quota},
        .trunks = trunks,
        .wake = {.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)},
    };
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &thread->wake};
    TAILQ_INIT(&thread->all);
    TAILQ_INIT(&thread->active);
    return thread->desk.epoll >= 0 && thread->wake.fd >= 0 && thread->desk.in != NULL &&
           thread->desk.sealed != NULL &&
           epoll_ctl(thread->desk.epoll, EPOLL_CTL_ADD, thread->wake.fd, &event) == 0;
}

/* The mutex keeps the shard from ending meanwhile. */
static int adopt(void *arg, uint32_t shard, int fd, const struct adopted_peer *peer,
                 struct embd__error *e)
{
    struct trunks *trunks = arg;
    const struct trunks_config *config = &trunks->config;
    pthread_mutex_lock(&trunks->mutex);
    int status = trunks_shards(trunks) > 0
                     ? config->adopt(config->arg, shard, fd, peer, e)
                     : embd__error_set(e, EMBD_DRAINING, "the server is shutting down");
    pthread_mutex_unlock(&trunks->mutex);
    return status;
}

static bool start(struct trunks *trunks, struct trunk_thread *thread)
{
    if (thread->is_started)
        return true;
    if (open_thread(trunks, thread)) {
        thread->desk.adopt = adopt;
        thread->desk.arg = trunks;
        thread->is_started = pthread_create(&thread->thread, NULL, run, thread) == 0;
    }
    if (!thread->is_started)
        close_thread(thread);
    return thread->is_started;
}

static void wake(const struct trunk_thread *thread)
{
    ssize_t written = write(thread->wake.fd, &(uint64_t){1}, sizeof(uint64_t));
    (void)written; /* it only fails where the thread is to wake already */
}

/* ---- all ---- */

int trunks_open(const struct trunks_config *config, struct trunks **out, struct embd__error *e)
{
    struct trunks *trunks = calloc(1, sizeof *trunks);
    *out = trunks;
    if (trunks == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for the list of trunks");
    trunks->config = *config;
    pthread_mutex_init(&trunks->mutex, NULL);
    return EMBD_OK;
}

void trunks_allow(struct trunks *trunks, uint32_t n)
{
    uint32_t threads = 1 + (n - 1) / SHARDS_PER_THREAD;
    pthread_mutex_lock(&trunks->mutex);
    trunks->n_threads = threads < THREADS_MOST ? threads : THREADS_MOST;
    atomic_store(&trunks->n_shards, n);
    pthread_mutex_unlock(&trunks->mutex);
}

void trunks_refuse(struct trunks *trunks)
{
    if (trunks == NULL)
        return;
    pthread_mutex_lock(&trunks->mutex);
    atomic_store(&trunks->n_shards, 0);
    pthread_mutex_unlock(&trunks->mutex);
}

uint32_t trunks_shards(const struct trunks *trunks)
{
    return trunks != NULL ? atomic_load(&trunks->n_shards) : 0;
}

/* With the mutex. */
static int hand_over(struct trunks *trunks, struct arrival *a, struct embd__error *e)
{
    if (trunks_shards(trunks) == 0)
        return embd__error_set(e, EMBD_BUSY, "trunk: the process starts or ends");
    struct trunk_thread *thread = &trunks->threads[trunks->next++ % trunks->n_threads];
    if (!start(trunks, thread))
        return embd__error_set(e, EMBD_NO_MEMORY, "trunk: a thread for it cannot be started");
    a->next = thread->arrivals;
    thread->arrivals = a;
    atomic_fetch_add(&trunks->n, 1);
    wake(thread);
    return EMBD_OK;
}

int trunks_add(struct trunks *trunks, const struct trunk_wire *wire,
               const struct adopted_peer *peer, struct embd__error *e)
{
    struct arrival *a = malloc(sizeof *a);
    if (a == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "trunk: no memory for it");
    *a = (struct arrival){.wire = *wire, .peer = *peer};
    pthread_mutex_lock(&trunks->mutex);
    int status =
        atomic_load(&trunks->n) >= trunks->config.most
            ? embd__error_set(e, EMBD_BUSY,
                              "trunk: the process has %u, the limit is %u (max_connections)",
                              atomic_load(&trunks->n), trunks->config.most)
            : hand_over(trunks, a, e);
    pthread_mutex_unlock(&trunks->mutex);
    if (status != EMBD_OK)
        free(a);
    return status;
}

static void stop(struct trunk_thread *thread)
{
    pthread_mutex_lock(&thread->trunks->mutex);
    thread->stops = true;
    pthread_mutex_unlock(&thread->trunks->mutex);
    wake(thread);
    pthread_join(thread->thread, NULL);
    close_thread(thread);
}

void trunks_close(struct trunks *trunks)
{
    if (trunks == NULL)
        return;
    trunks_refuse(trunks);
    for (uint32_t i = 0; i < THREADS_MOST; i++)
        if (trunks->threads[i].is_started)
            stop(&trunks->threads[i]);
    pthread_mutex_destroy(&trunks->mutex);
    free(trunks);
}
