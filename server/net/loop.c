/* loop.c - see loop.h.
 *
 * A tick some ten times a second does what depends on time: holds that end, peers that rest, memory
 * that is not needed in quiet. A drain goes on with every turn of the loop:
 *   1. drain asked    listeners close, the shard refuses new work, requests that have begun go on
 *   2. all of those answered and followers up to date, or LOOP_DRAIN_MS over    connections take no
 *      more and end
 *   3. no connection left, or too late                 the rest is closed, the loop runs dry, the
 * thread ends */
#include "server/net/loop.h"

#include "proto/assert.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "server/net/adopting.h"
#include "server/net/connection.h"
#include "server/net/doors.h"
#include "server/log/ending.h"
#include "server/log/log.h"

enum {
    TICK_MS = 100,
    QUIET_TICKS = 50, /* without a request: memory goes back */
    LAST_MS = 1000,   /* for connections to end after the drain */
};

enum phase { PHASE_OPEN, PHASE_SERVING, PHASE_DRAINING, PHASE_ENDING };

struct loop {
    struct loop_config config;
    enum phase phase;
    uv_loop_t uv;
    struct doors doors;
    uv_timer_t tick;
    uv_prepare_t prepare;
    uv_idle_t busy; /* runs while a device works for the shard, or rings are looked at, so that the
                       loop does not sleep */
    uv_async_t drain, ask, new_credentials, new_map, wake;
    _Atomic(struct credentials *) next_credentials; /* crosses from the thread that reads files */
    _Atomic(struct shard_map *) next_map;           /* crosses from the thread that learned of it */
    _Atomic(struct loop_question *) question;       /* crosses from the asking thread */
    struct adopting adopting;                       /* peers cross from their threads */
    struct shard_io io;
    uv_thread_t thread;
    bool has_thread;
    uint64_t phase_since_ms;
    uint32_t quiet_ticks;
    _Atomic uint64_t beats;
};

/* ---- opening ---- */

static void close_handle(uv_handle_t *handle, void *arg)
{
    (void)arg;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

static void destroy(struct loop *loop)
{
    uv_walk(&loop->uv, close_handle, NULL);
    uv_run(&loop->uv, UV_RUN_DEFAULT);
    int status = uv_loop_close(&loop->uv);
    EMBD_ASSERT(status == 0);
    (void)status;
    credentials_drop(&loop->io.credentials);
    free(loop);
}

int loop_open(const struct loop_config *config, struct loop **out, struct embd__error *e)
{
    *out = NULL;
    struct loop *loop = calloc(1, sizeof *loop);
    int made = loop == NULL ? UV_ENOMEM : uv_loop_init(&loop->uv);
    if (made < 0) {
        free(loop);
        return embd__error_set(e, EMBD_NO_MEMORY, "a shard's loop cannot be made: %s",
                               uv_strerror(made));
    }
    loop->config = *config;
    loop->config.doors = (struct doors_config){.local_group = NO_GROUP}; /* used up here */
    loop->config.credentials = NULL;
    loop->io.credentials = credentials_share(config->credentials);
    int status = doors_open(&loop->doors, &loop->uv, &loop->io, &config->doors, e);
    if (status != EMBD_OK) {
        destroy(loop);
        return status;
    }
    *out = loop;
    return EMBD_OK;
}

uint16_t loop_port(const struct loop *loop)
{
    return loop->doors.port;
}

uint16_t loop_admin_port(const struct loop *loop)
{
    return loop->doors.admin_port;
}

/* ---- draining ---- */

static void enter(struct loop *loop, enum phase phase)
{
    loop->phase = phase;
    loop->phase_since_ms = uv_now(&loop->uv);
}

static void on_drain(uv_async_t *async)
{
    struct loop *loop = async->data;
    if (loop->phase != PHASE_SERVING)
        return;
    log_event(LOG_INFO, "draining", "shard=%u connections=%u in_flight=%llu", loop->io.shard_index,
              shard_io_connections(&loop->io), (unsigned long long)loop->io.n_exchanges);
    enter(loop, PHASE_DRAINING);
    doors_close(&loop->doors);
    connection_drain(&loop->io);
}

static void go_on_draining(struct loop *loop)
{
    struct shard_io *io = &loop->io;
    uint64_t took_ms = uv_now(&loop->uv) - loop->phase_since_ms;
    bool is_late = took_ms > LOOP_DRAIN_MS;
    if (loop->phase == PHASE_DRAINING && (io->n_old == 0 || is_late) &&
        shard_finish(io->shard, is_late)) {
        if (io->n_old > 0)
            log_event(LOG_WARN, "drain_too_slow", "shard=%u in_flight=%llu limit_ms=%u",
                      io->shard_index, (unsigned long long)io->n_old, LOOP_DRAIN_MS);
        enter(loop, PHASE_ENDING);
        took_ms = 0;
        connection_finish_all(io);
    }
    if (loop->phase != PHASE_ENDING)
        return;
    if (took_ms > LAST_MS)
        connection_close_all(io);
    if (TAILQ_EMPTY(&io->connections)) {
        uv_close((uv_handle_t *)&loop->tick, NULL);
        uv_close((uv_handle_t *)&loop->prepare, NULL);
        uv_close((uv_handle_t *)&loop->busy, NULL);
        uv_close((uv_handle_t *)&loop->drain, NULL);
        uv_close((uv_handle_t *)&loop->new_credentials, NULL);
        uv_close((uv_handle_t *)&loop->new_map, NULL);
        uv_close((uv_handle_t *)&loop->ask, NULL);
        uv_close((uv_handle_t *)&loop->wake, NULL);
    }
}

/* ---- running ---- */

static void give_back_memory(struct loop *loop)
{
    struct shard_io *io = &loop->io;
    if (io->n_exchanges > 0 || loop->quiet_ticks > QUIET_TICKS) {
        loop->quiet_ticks = io->n_exchanges > 0 ? 0 : loop->quiet_ticks;
        return;
    }
    if (++loop->quiet_ticks > QUIET_TICKS) {
        frame_pool_trim(&io->pool);
        read_allowance_return(&io->allowance);
        exchange_trim(io);
        outlet_trim(io);
    }
}

static void on_tick(uv_timer_t *timer)
{
    struct loop *loop = timer->data;
    atomic_fetch_add_explicit(&loop->beats, 1, memory_order_relaxed);
    shard_tick(loop->io.shard, late_note(&loop->io.late, TICK_MS * 1000000, uv_hrtime()));
    connection_sweep(&loop->io);
    connection_flush_dirty(&loop->io);
    doors_accept_declined(&loop->doors);
    give_back_memory(loop);
    go_on_draining(loop);
}

/* The loop asks again at once; other threads that want this processor (for example the kernel's
 * own, which carry what was sent) go first. */
static void on_busy(uv_idle_t *busy)
{
    (void)busy;
    sched_yield();
}

/* Nothing was found for as long as looking is worth it. True: something came meanwhile. */
static bool end_looking(struct shard_io *io)
{
    io->has_read = false;
    return io->n_ringing > 0 && ring_sleep(io);
}

/* Looks for more of those who sent something lately, before the loop sleeps (spin.h): at rings
 * here, at sockets in the next turn. False: the loop may sleep. */
static bool look_for_more(struct shard_io *io)
{
    bool found = io->n_ringing > 0 && ring_look(io);
    if (io->n_ringing == 0 && !io->has_read && !found)
        return false;
    if (!found && !embd__spin_goes_on(&io->spin, uv_hrtime()))
        return end_looking(io);
    if (!found && io->n_ringing > 0 && ring_pause(io))
        found = ring_look(io);
    if (found)
        embd__spin_found(&io->spin);
    connection_flush_dirty(io);
    return true;
}

/* Answers that became ready in a callback of somebody else's, before the loop sleeps. */
static void on_prepare(uv_prepare_t *prepare)
{
    struct loop *loop = prepare->data;
    loop->io.turn++;
    connection_look_at_senders(&loop->io);
    bool has_more = !TAILQ_EMPTY(&loop->io.yielding) && connection_turn(&loop->io);
    has_more |= shard_collect(loop->io.shard);
    connection_flush_dirty(&loop->io);
    has_more |= look_for_more(&loop->io);
    if (has_more)
        uv_idle_start(&loop->busy, on_busy);
    else
        uv_idle_stop(&loop->busy);
    if (loop->phase >= PHASE_DRAINING) /* no tick is waited for */
        go_on_draining(loop);
}

static void pin(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((unsigned)cpu, &set);
    if (pthread_setaffinity_np(pthread_self(), sizeof set, &set) != 0)
        log_event(LOG_WARN, "not_pinned", "cpu=%d", cpu);
}

static void run(void *arg)
{
    struct loop *loop = arg;
    char name[16];
    snprintf(name, sizeof name, "embd-shard-%u", loop->io.shard_index);
    pthread_setname_np(pthread_self(), name);
    if (loop->config.cpu >= 0)
        pin(loop->config.cpu);
    uv_run(&loop->uv, UV_RUN_DEFAULT);
    loop->config.on_end(loop->config.arg);
}

/* ---- questions ---- */

static void on_ask(uv_async_t *async)
{
    struct loop *loop = async->data;
    struct loop_question *question = atomic_exchange(&loop->question, NULL);
    if (question != NULL)
        question->answer(question, loop->io.shard);
}

void loop_ask(struct loop *loop, struct loop_question *question)
{
    atomic_store(&loop->question, question);
    uv_async_send(&loop->ask);
}

/* ---- other credentials ---- */

static void on_credentials(uv_async_t *async)
{
    struct loop *loop = async->data;
    struct shard_io *io = &loop->io;
    struct credentials *next = atomic_exchange(&loop->next_credentials, NULL);
    if (next == NULL)
        return;
    struct credentials before = io->credentials;
    io->credentials = *next;
    *next = before;
    if (io->credentials.access != NULL) {
        shard_set_access(io->shard, io->credentials.access);
        connection_review(io);
    }
    credentials_free(next);
}

void loop_set_credentials(struct loop *loop, struct credentials *credentials)
{
    credentials_free(
        atomic_exchange(&loop->next_credentials, credentials)); /* those before were never taken */
    uv_async_send(&loop->new_credentials);
}

/* ---- another map ---- */

static void on_map(uv_async_t *async)
{
    struct loop *loop = async->data;
    struct shard_map *next = atomic_exchange(&loop->next_map, NULL);
    if (next != NULL)
        shard_set_map(loop->io.shard, next);
}

void loop_set_map(struct loop *loop, struct shard_map *map)
{
    free(atomic_exchange(&loop->next_map, map)); /* the one before was never taken */
    uv_async_send(&loop->new_map);
}

/* ---- starting ---- */

static void net_stats(void *arg, struct shard_net_stats *out)
{
    const struct loop *loop = arg;
    const struct shard_io *io = &loop->io;
    *out = (struct shard_net_stats){
        .connections = shard_io_connections(io),
        .local_connections = io->n_at[DOOR_DATA_SOCKET],
        .requests_in_flight = io->n_exchanges,
        .bytes_in = io->bytes_in,
        .bytes_out = io->bytes_out,
        .frame_memory_bytes = io->pool.lent_bytes + io->pool.idle_bytes,
        .shared_memory_bytes = io->shared_bytes,
        .frame_errors = io->frame_errors,
        .late_us = io->late.total_ns / 1000,
        .late_longest_us = late_longest_ns(&io->late) / 1000,
    };
}

static bool answer_take(void *arg, uint64_t bytes)
{
    const struct loop *loop = arg;
    return quota_take_answer(loop->config.quota, bytes);
}

static void answer_give(void *arg, uint64_t bytes)
{
    const struct loop *loop = arg;
    quota_give(loop->config.quota, bytes);
}

/* Nothing of this shard may be believed any more: peers learn it, and the thread stands still. */
static _Noreturn void stand_still(struct loop *loop)
{
    doors_close(&loop->doors);
    connection_close_all(&loop->io);
    log_stand_still();
}

/* Another thread has something for the shard: on_prepare has it collected. */
static void on_wake(uv_async_t *async)
{
    struct loop *loop = async->data;
    if (log_has_ended())
        stand_still(loop);
    if (atomic_load(&loop->adopting.last) != NULL)
        adopting_take(&loop->adopting, &loop->io, loop->phase == PHASE_SERVING);
}

int loop_adopt(struct loop *loop, int fd, enum door door, struct embd__error *e)
{
    if (adopting_add(&loop->adopting, fd, door, NULL, e) != EMBD_OK)
        return e->status;
    loop_wake(loop);
    return EMBD_OK;
}

int loop_adopt_stream(struct loop *loop, int fd, const struct adopted_peer *peer,
                      struct embd__error *e)
{
    if (adopting_add(&loop->adopting, fd, DOOR_TRUNK, peer, e) != EMBD_OK)
        return e->status;
    loop_wake(loop);
    return EMBD_OK;
}

void loop_wake(struct loop *loop)
{
    uv_async_send(&loop->wake);
}

static void wake(void *arg)
{
    loop_wake(arg);
}

static int open_io(struct loop *loop, const struct shard_config *config, struct embd__error *e)
{
    struct shard_io *io = &loop->io;
    struct shard_config own = *config;
    own.net_stats = net_stats;
    own.answer_take = answer_take;
    own.answer_give = answer_give;
    own.net_arg = loop;
    own.push_bytes = loop->config.limits.push_bytes;
    own.loaded = loop->config.on_loaded;
    own.loaded_arg = loop->config.arg;
    own.wake = wake;
    own.wake_arg = loop;
    own.access = io->credentials.access;
    own.local = loop->doors.place.path[0] != '\0' ? &loop->doors.place : NULL;
    io->uv = &loop->uv;
    io->shard_index = config->index;
    io->limits = loop->config.limits;
    io->trunks = loop->config.trunks;
    TAILQ_INIT(&io->connections);
    TAILQ_INIT(&io->dirty);
    TAILQ_INIT(&io->yielding);
    TAILQ_INIT(&io->ringing);
    TAILQ_INIT(&io->sending);
    io->wake = wake;
    io->wake_arg = loop;
    io->spin.most_ns = (uint64_t)io->limits.spin_us * 1000;
    TAILQ_INIT(&io->unauthenticated);
    STAILQ_INIT(&io->spare_exchanges);
    io->read_buffer = aligned_alloc(64, IO_READ_BYTES);
    if (io->credentials.tls != NULL)
        io->seal_buffer = aligned_alloc(64, IO_READ_BYTES);
    if (io->read_buffer == NULL || (io->credentials.tls != NULL && io->seal_buffer == NULL))
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for a read buffer");
    frame_pool_init(&io->pool, config->store, loop->config.quota);
    io->allowance.quota = loop->config.quota;
    return shard_open(&own, &io->shard, e);
}

static void close_io(struct shard_io *io)
{
    if (io->shard != NULL) {
        exchange_trim(io);
        outlet_trim(io);
        read_allowance_return(&io->allowance);
        frame_pool_fini(&io->pool);
        shard_close(io->shard);
    }
    free(io->read_buffer);
    free(io->seal_buffer);
}

static void start_handles(struct loop *loop)
{
    loop->tick.data = loop->prepare.data = loop->drain.data = loop->ask.data =
        loop->new_credentials.data = loop->new_map.data = loop;
    uv_timer_init(&loop->uv, &loop->tick);
    uv_timer_start(&loop->tick, on_tick, TICK_MS, TICK_MS);
    loop->io.late.ticked_ns = uv_hrtime();
    uv_prepare_init(&loop->uv, &loop->prepare);
    uv_prepare_start(&loop->prepare, on_prepare);
    uv_idle_init(&loop->uv, &loop->busy);
}

int loop_start(struct loop *loop, const struct shard_config *shard, struct embd__error *e)
{
    loop->wake.data = loop;
    if (uv_async_init(&loop->uv, &loop->wake, on_wake) < 0)
        return embd__error_set(e, EMBD_NO_MEMORY, "cannot start a shard's loop");
    int status = open_io(loop, shard, e);
    if (status != EMBD_OK)
        return status;
    start_handles(loop);
    int uv_status = uv_async_init(&loop->uv, &loop->drain, on_drain);
    if (uv_status == 0)
        uv_status = uv_async_init(&loop->uv, &loop->ask, on_ask);
    if (uv_status == 0)
        uv_status = uv_async_init(&loop->uv, &loop->new_credentials, on_credentials);
    if (uv_status == 0)
        uv_status = uv_async_init(&loop->uv, &loop->new_map, on_map);
    enter(loop, PHASE_SERVING);
    if (uv_status == 0)
        uv_status = uv_thread_create(&loop->thread, run, loop);
    if (uv_status != 0)
        return embd__error_set(e, EMBD_NO_MEMORY, "cannot start a shard's thread: %s",
                               uv_strerror(uv_status));
    loop->has_thread = true;
    return EMBD_OK;
}

void loop_drain(struct loop *loop)
{
    uv_async_send(&loop->drain);
}

uint64_t loop_beats(const struct loop *loop)
{
    return atomic_load_explicit(&loop->beats, memory_order_relaxed);
}

void loop_close(struct loop *loop)
{
    if (loop == NULL)
        return;
    if (loop->has_thread)
        uv_thread_join(&loop->thread);
    close_io(&loop->io);
    adopting_fini(&loop->adopting);
    credentials_free(atomic_exchange(&loop->next_credentials, NULL));
    free(atomic_exchange(&loop->next_map, NULL));
    destroy(loop);
}
