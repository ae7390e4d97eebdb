/* heartbeats.c - heartbeats for the workers of a client, by a thread with its own connections:
 * waiting requests on the caller's connections do not delay them, and the caller need not call
 * anything. There are three in a lease.
 *
 * The happy path: the timer says whose heartbeats are due; each shard gets a tick that only says
 * that the worker lives; its answer has the epoch and the worker that the job waits for. A failure
 * is tried again with the next heartbeat: the caller learns of it by its own requests. But where a
 * shard does not answer, shard 0 is asked whether it has left the cluster: then it is dialed no
 * more, however long the caller makes no call. */
#include <stdlib.h>
#include <string.h>

#include "client/core/clocks.h"
#include "client/io/receive.h"
#include "embd/sync.h"
#include "proto/placement_wire.h"

#define BEATS_IN_LEASE 3u
#define BUSY_MS        10u /* until a member that left is looked at again: heartbeats under way */
#define MAP_ANSWER_MS  2000u

/* Made with the first worker. Owner: its thread, but for what the mutex guards. */
struct heartbeats {
    embd_client *client;
    uv_loop_t loop;
    uint8_t *buffer; /* of its links */
    uv_timer_t timer;
    uv_async_t wake;
    pthread_t thread;
    pthread_mutex_t mutex;
    struct member *members; /* guarded; with heartbeats, by next_beating */
    bool stops;             /* guarded */
    struct exchange map;    /* shard 0 is asked for it */
    bool is_asking;
    uint32_t last_msgid, n_links;
    struct link *links[]; /* [LIMIT_SHARDS], n_links of them */
};

/* ---- one heartbeat ---- */

static void *on_bin(struct exchange *x, uint32_t index, uint32_t bytes)
{
    (void)index;
    embd__error_set(&x->error, EMBD_PROTOCOL, "the answer to tick has a bin of %u bytes", bytes);
    return NULL;
}

static void on_answer(struct exchange *x, struct reader *reader)
{
    struct heartbeat *heartbeat = x->owner;
    struct heartbeats *heartbeats = heartbeat->heartbeats;
    struct tick_answer answer;
    if (embd__tick_read(reader, &answer) != EMBD_OK)
        return;
    heartbeat->epoch = answer.epoch;
    pthread_mutex_lock(&heartbeats->mutex);
    heartbeat->awaited = answer.awaited;
    pthread_mutex_unlock(&heartbeats->mutex);
}

static void on_end(struct exchange *x)
{
    struct heartbeat *heartbeat = x->owner;
    heartbeat->is_under_way = false;
}

static uint32_t next_msgid(struct heartbeats *heartbeats)
{
    uint32_t last = heartbeats->last_msgid;
    heartbeats->last_msgid = last >= UINT32_MAX - 2 ? 1 : last + 1;
    return heartbeats->last_msgid;
}

/* ---- shards that have left ---- */

static void on_map(struct exchange *x, struct reader *reader)
{
    struct heartbeats *heartbeats = x->owner;
    struct fields fields;
    struct placement place;
    const msgpack_object *items;
    embd__read_fields(&fields, reader, "cluster");
    uint32_t n = embd__field_list(&fields, "shards", LIMIT_SHARDS, &items);
    if (reader->error->status != EMBD_OK || n == 0 ||
        embd__placement_read(&fields, n, &place) != EMBD_OK ||
        place.version <= heartbeats->client->placement_version)
        return;
    for (uint32_t i = n; i < heartbeats->n_links; i++) /* shard 0 answers, and is none of these */
        embd__link_retire(heartbeats->links[i], "the shard has left the cluster");
}

static void on_map_end(struct exchange *x)
{
    struct heartbeats *heartbeats = x->owner;
    heartbeats->is_asking = false;
}

static void ask_map(struct heartbeats *heartbeats, uint64_t now)
{
    struct exchange *x = &heartbeats->map;
    if (heartbeats->is_asking)
        return;
    *x = (struct exchange){.link = heartbeats->links[0],
                           .msg = x->msg,
                           .msgid = next_msgid(heartbeats),
                           .deadline_ms = MAP_ANSWER_MS,
                           .deadline_ns = now + (uint64_t)MAP_ANSWER_MS * 1000000,
                           .fail_fast = true,
                           .while_loading = true,
                           .on_bin = on_bin,
                           .on_answer = on_map,
                           .on_end = on_map_end,
                           .owner = heartbeats};
    embd__msg_request(&x->msg, x->msgid, METHOD_CLUSTER);
    embd__msg_map(&x->msg, 0);
    heartbeats->is_asking = embd__msg_end(&x->msg) == EMBD_OK;
    if (heartbeats->is_asking)
        embd__link_send(x->link, x);
}

/* ---- all links ---- */

/* Where the shard is now. */
static struct link *link_of(struct heartbeats *heartbeats, uint32_t shard)
{
    struct embd__error ignored = {.status = EMBD_OK};
    struct link *link = heartbeats->links[shard];
    const char *address = heartbeats->client->shards[shard].address;
    if (strcmp(address, embd__link_address(link)) != 0) {
        embd__link_leave(link);
        embd__link_move(link, address, false, &ignored);
    }
    return link;
}

static void send_beat(struct heartbeats *heartbeats, struct member *member,
                      struct heartbeat *heartbeat, uint64_t now)
{
    struct exchange *x = &heartbeat->x;
    embd_clock clock =
        EMBD_CLOCK(.job = member->job, .worker = member->worker, .n_workers = member->n_workers,
                   .lease_ms = member->lease_ms, .asynchronous = member->asynchronous);
    struct tick tick = {&clock, heartbeats->client->id, heartbeat->epoch, member->value, false,
                        true};
    struct link *link = link_of(heartbeats, heartbeat->shard);
    *x = (struct exchange){.link = link,
                           .msg = x->msg,
                           .msgid = next_msgid(heartbeats),
                           .deadline_ms = clock.lease_ms,
                           .deadline_ns = now + (uint64_t)clock.lease_ms * 1000000,
                           .on_bin = on_bin,
                           .on_answer = on_answer,
                           .on_end = on_end,
                           .owner = heartbeat};
    embd__msg_request(&x->msg, x->msgid, METHOD_TICK);
    embd__tick_write(&x->msg, &tick);
    if (embd__msg_end(&x->msg) != EMBD_OK)
        return;
    heartbeat->is_under_way = true;
    embd__link_send(link, x);
}

/* ---- all that are due ---- */

static bool is_under_way(const struct heartbeats *heartbeats, const struct member *member)
{
    (void)heartbeats;
    for (uint32_t i = 0; i < member->n; i++)
        if (member->heartbeats[i].is_under_way)
            return true;
    return false;
}

static void drop_gone(struct heartbeats *heartbeats)
{
    struct member **at = &heartbeats->members;
    while (*at != NULL) {
        struct member *member = *at;
        if (!member->is_gone || is_under_way(heartbeats, member)) {
            at = &member->next_beating;
            continue;
        }
        *at = member->next_beating;
        embd__member_free(heartbeats->client, member);
    }
}

static int open_links(struct heartbeats *heartbeats, struct embd__error *e)
{
    embd_client *client = heartbeats->client;
    while (heartbeats->n_links < client->n_linked) {
        uint32_t i = heartbeats->n_links;
        struct link_config config = embd__link_config(client, client->shards[i].address);
        config.loop = &heartbeats->loop;
        config.buffer = heartbeats->buffer;
        config.shard = i;
        config.n_shards = client->n_linked;
        if (embd__link_open(&config, &heartbeats->links[i], e) != EMBD_OK)
            return e->status;
        heartbeats->n_links++;
    }
    return EMBD_OK;
}

static uint32_t first_other(struct heartbeats *heartbeats)
{
    uint32_t first = LIMIT_SHARDS;
    pthread_mutex_lock(&heartbeats->mutex);
    for (struct member *m = heartbeats->members; m != NULL; m = m->next_beating)
        for (uint32_t i = 0; i < m->n; i++)
            if (atomic_exchange(&m->heartbeats[i].is_other, false) && i < first)
                first = i;
    pthread_mutex_unlock(&heartbeats->mutex);
    return first;
}

/* To shards that have left, or whose numbers others have. What is on its way ends here. */
static void close_links(struct heartbeats *heartbeats)
{
    uint32_t n = first_other(heartbeats), linked = heartbeats->client->n_linked;
    n = n < linked ? n : linked;
    while (heartbeats->n_links > n)
        embd__link_close(heartbeats->links[--heartbeats->n_links]);
}

static bool may_have_left(const struct heartbeat *heartbeat)
{
    int status = heartbeat->x.error.status; /* of the one before */
    return heartbeat->is_under_way || status == EMBD_MOVED || embd__is_silence(status);
}

/* A heartbeat that is still on its way is not overtaken. */
static void beat_one(struct heartbeats *heartbeats, struct member *member, uint64_t now)
{
    bool asks = false;
    for (uint32_t i = 0; i < member->n && i < heartbeats->n_links; i++) {
        struct heartbeat *heartbeat = &member->heartbeats[i];
        if (embd__link_is_retired(heartbeats->links[i]))
            continue;
        asks = asks || may_have_left(heartbeat);
        if (!heartbeat->is_under_way)
            send_beat(heartbeats, member, heartbeat, now);
    }
    if (asks)
        ask_map(heartbeats, now);
    member->next_ns = now + (uint64_t)member->lease_ms * 1000000 / BEATS_IN_LEASE;
}

static void on_timer(uv_timer_t *timer);

/* The mutex is let go while heartbeats are sent, since what a link calls takes it; others only put
 * members in front of the list. */
static void beat_all(struct heartbeats *heartbeats)
{
    uint64_t now = uv_hrtime(), next = UINT64_MAX;
    struct embd__error ignored = {.status = EMBD_OK};
    close_links(heartbeats);
    open_links(heartbeats, &ignored); /* to shards that were added */
    pthread_mutex_lock(&heartbeats->mutex);
    drop_gone(heartbeats);
    struct member *m = heartbeats->members;
    pthread_mutex_unlock(&heartbeats->mutex);
    for (; m != NULL; m = m->next_beating) {
        if (!m->is_gone && now >= m->next_ns)
            beat_one(heartbeats, m, now);
        if (m->next_ns < next)
            next = m->next_ns;
    }
    if (next == UINT64_MAX)
        uv_timer_stop(&heartbeats->timer);
    else
        uv_timer_start(&heartbeats->timer, on_timer,
                       next > now ? (next - now) / 1000000 + 1 : BUSY_MS, 0);
}

static void on_timer(uv_timer_t *timer)
{
    beat_all(timer->data);
}

/* ---- the thread ---- */

static void on_wake(uv_async_t *wake)
{
    struct heartbeats *heartbeats = wake->data;
    pthread_mutex_lock(&heartbeats->mutex);
    bool stops = heartbeats->stops;
    pthread_mutex_unlock(&heartbeats->mutex);
    if (stops)
        uv_stop(&heartbeats->loop);
    else
        beat_all(heartbeats);
}

static void *run(void *arg)
{
    struct heartbeats *heartbeats = arg;
    uv_run(&heartbeats->loop, UV_RUN_DEFAULT);
    return NULL;
}

/* No thread runs the loop. */
static void fini(struct heartbeats *heartbeats)
{
    for (uint32_t i = 0; i < heartbeats->n_links; i++)
        embd__link_close(heartbeats->links[i]);
    uv_close((uv_handle_t *)&heartbeats->timer, NULL);
    uv_close((uv_handle_t *)&heartbeats->wake, NULL);
    uv_run(&heartbeats->loop, UV_RUN_DEFAULT);
    uv_loop_close(&heartbeats->loop);
    free(heartbeats->buffer);
    embd__msg_fini(&heartbeats->map.msg);
    pthread_mutex_destroy(&heartbeats->mutex);
    drop_gone(heartbeats);
    free(heartbeats);
}

static int start(embd_client *client)
{
    struct embd__error *e = &client->error;
    struct heartbeats *heartbeats =
        calloc(1, sizeof *heartbeats + LIMIT_SHARDS * sizeof *heartbeats->links);
    uint8_t *buffer = embd__receive_buffer_new();
    if (heartbeats == NULL || buffer == NULL || uv_loop_init(&heartbeats->loop) != 0) {
        free(heartbeats);
        free(buffer);
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for a worker's heartbeats");
    }
    heartbeats->client = client;
    heartbeats->buffer = buffer;
    embd__msg_init(&heartbeats->map.msg);
    pthread_mutex_init(&heartbeats->mutex, NULL);
    uv_timer_init(&heartbeats->loop, &heartbeats->timer);
    uv_async_init(&heartbeats->loop, &heartbeats->wake, on_wake);
    heartbeats->timer.data = heartbeats->wake.data = heartbeats;
    if (open_links(heartbeats, e) != EMBD_OK ||
        pthread_create(&heartbeats->thread, NULL, run, heartbeats) != 0) {
        fini(heartbeats);
        return embd__error_set(e, EMBD_NO_MEMORY,
                               "cannot start the thread of a worker's heartbeats");
    }
    client->heartbeats = heartbeats;
    return EMBD_OK;
}

/* ---- the caller's thread ---- */

int embd__heartbeats_add(embd_client *client, struct member *member)
{
    if (member->heartbeats[0].heartbeats != NULL)
        return EMBD_OK;
    if (client->heartbeats == NULL && start(client) != EMBD_OK)
        return client->error.status;
    struct heartbeats *heartbeats = client->heartbeats;
    for (uint32_t i = 0; i < member->n; i++)
        member->heartbeats[i].heartbeats = heartbeats;
    pthread_mutex_lock(&heartbeats->mutex);
    member->next_beating = heartbeats->members;
    heartbeats->members = member;
    pthread_mutex_unlock(&heartbeats->mutex);
    uv_async_send(&heartbeats->wake);
    return EMBD_OK;
}

void embd__heartbeats_remove(embd_client *client, struct member *member)
{
    if (member->heartbeats[0].heartbeats == NULL) {
        embd__member_free(client, member);
        return;
    }
    member->is_gone = true;
    uv_async_send(&client->heartbeats->wake);
}

bool embd__heartbeats_awaited(embd_client *client, struct member *member, struct awaited *out)
{
    if (client->heartbeats == NULL)
        return false;
    *out = (struct awaited){0};
    pthread_mutex_lock(&client->heartbeats->mutex);
    for (uint32_t i = 0; i < client->n_shards && !out->is_known; i++)
        *out = member->heartbeats[i].awaited;
    pthread_mutex_unlock(&client->heartbeats->mutex);
    return out->is_known;
}

void embd__heartbeats_close(embd_client *client)
{
    struct heartbeats *heartbeats = client->heartbeats;
    if (heartbeats == NULL)
        return;
    pthread_mutex_lock(&heartbeats->mutex);
    heartbeats->stops = true;
    pthread_mutex_unlock(&heartbeats->mutex);
    uv_async_send(&heartbeats->wake);
    pthread_join(heartbeats->thread, NULL);
    fini(heartbeats);
    client->heartbeats = NULL;
}
