/* beats.c - signs of life for the workers that a client is, by a thread of its own with connections
 * of its own: what waits on the caller's connections does not hold them up, and nothing has to be
 * called for them. Three fall into a lease.
 *
 * The happy path: the timer tells whose beats are due; each shard gets a tick that only says that
 * the worker lives; its answer tells the epoch and whom the job waits for. What fails is tried
 * again with the next beat: the caller hears of it by requests of its own. */
#include <stdlib.h>
#include <string.h>

#include "client/members.h"

#define BEATS_IN_LEASE 3u
#define BUSY_MS        10u /* until one that has gone is looked at again: its beats are under way */

/* Made with the first worker. Owner: its thread, but for what the mutex guards. */
struct beats {
    embd_client *client;
    uv_loop_t loop;
    uv_timer_t timer;
    uv_async_t wake;
    pthread_t thread;
    pthread_mutex_t mutex;
    struct member *members; /* guarded; that beat, by next_beating */
    bool stops;             /* guarded */
    uint32_t last_msgid;
    struct link *links[]; /* [shards] */
};

/* ---- one beat ---- */

static void *on_bin(struct exchange *x, uint32_t index, uint32_t bytes)
{
    (void)index;
    embd__error_set(&x->error, EMBD_PROTOCOL, "the answer to tick has a bin of %u bytes", bytes);
    return NULL;
}

static void on_answer(struct exchange *x, struct reader *reader)
{
    struct beat *beat = x->owner;
    struct beats *beats = beat->beats;
    struct tick_answer answer;
    if (embd__tick_read(reader, &answer) != EMBD_OK)
        return;
    beat->epoch = answer.epoch;
    pthread_mutex_lock(&beats->mutex);
    beat->awaited = answer.awaited;
    pthread_mutex_unlock(&beats->mutex);
}

static void on_end(struct exchange *x)
{
    struct beat *beat = x->owner;
    beat->is_under_way = false;
}

/* Where the shard is now. */
static struct link *link_of(struct beats *beats, uint32_t shard)
{
    struct embd__error ignored = {.status = EMBD_OK};
    struct link *link = beats->links[shard];
    const char *address = beats->client->shards[shard].address;
    if (strcmp(address, embd__link_address(link)) != 0) {
        embd__link_leave(link);
        embd__link_move(link, address, false, &ignored);
    }
    return link;
}

static void send_beat(struct beats *beats, struct member *member, struct beat *beat, uint64_t now)
{
    struct exchange *x = &beat->x;
    embd_clock clock = {member->job, member->worker, member->n_workers, member->lease_ms,
                        member->asynchronous};
    struct tick tick = {&clock, beats->client->id, beat->epoch, member->value, false, true};
    struct link *link = link_of(beats, beat->shard);
    beats->last_msgid = beats->last_msgid >= UINT32_MAX - 2 ? 1 : beats->last_msgid + 1;
    *x = (struct exchange){.link = link,
                           .msg = x->msg,
                           .msgid = beats->last_msgid,
                           .deadline_ms = clock.lease_ms,
                           .deadline_ns = now + (uint64_t)clock.lease_ms * 1000000,
                           .on_bin = on_bin,
                           .on_answer = on_answer,
                           .on_end = on_end,
                           .owner = beat};
    embd__msg_request(&x->msg, x->msgid, METHOD_TICK);
    embd__tick_write(&x->msg, &tick);
    if (embd__msg_end(&x->msg) != EMBD_OK)
        return;
    beat->is_under_way = true;
    embd__link_send(link, x);
}

/* ---- all that are due ---- */

static bool is_under_way(const struct beats *beats, const struct member *member)
{
    for (uint32_t i = 0; i < beats->client->n_shards; i++)
        if (member->beats[i].is_under_way)
            return true;
    return false;
}

static void drop_gone(struct beats *beats)
{
    struct member **at = &beats->members;
    while (*at != NULL) {
        struct member *member = *at;
        if (!member->is_gone || is_under_way(beats, member)) {
            at = &member->next_beating;
            continue;
        }
        *at = member->next_beating;
        embd__member_free(beats->client, member);
    }
}

/* A beat that is still on its way is not overtaken. */
static void beat_one(struct beats *beats, struct member *member, uint64_t now)
{
    for (uint32_t i = 0; i < beats->client->n_shards; i++)
        if (!member->beats[i].is_under_way)
            send_beat(beats, member, &member->beats[i], now);
    member->next_ns = now + (uint64_t)member->lease_ms * 1000000 / BEATS_IN_LEASE;
}

static void on_timer(uv_timer_t *timer);

/* The mutex is let go while beats are sent, since what a link calls takes it; others only put
 * members in front of the list. */
static void beat_all(struct beats *beats)
{
    uint64_t now = uv_hrtime(), next = UINT64_MAX;
    pthread_mutex_lock(&beats->mutex);
    drop_gone(beats);
    struct member *m = beats->members;
    pthread_mutex_unlock(&beats->mutex);
    for (; m != NULL; m = m->next_beating) {
        if (!m->is_gone && now >= m->next_ns)
            beat_one(beats, m, now);
        if (m->next_ns < next)
            next = m->next_ns;
    }
    if (next == UINT64_MAX)
        uv_timer_stop(&beats->timer);
    else
        uv_timer_start(&beats->timer, on_timer, next > now ? (next - now) / 1000000 + 1 : BUSY_MS,
                       0);
}

static void on_timer(uv_timer_t *timer)
{
    beat_all(timer->data);
}

/* ---- the thread ---- */

static void on_wake(uv_async_t *wake)
{
    struct beats *beats = wake->data;
    pthread_mutex_lock(&beats->mutex);
    bool stops = beats->stops;
    pthread_mutex_unlock(&beats->mutex);
    if (stops)
        uv_stop(&beats->loop);
    else
        beat_all(beats);
}

static void *run(void *arg)
{
    struct beats *beats = arg;
    uv_run(&beats->loop, UV_RUN_DEFAULT);
    return NULL;
}

static int open_links(struct beats *beats, struct embd__error *e)
{
    embd_client *client = beats->client;
    for (uint32_t i = 0; i < client->n_shards; i++) {
        struct link_config config = embd__link_config(client, client->shards[i].address);
        config.loop = &beats->loop;
        config.shard = i;
        config.n_shards = client->n_shards;
        if (embd__link_open(&config, &beats->links[i], e) != EMBD_OK)
            return e->status;
    }
    return EMBD_OK;
}

/* Nobody runs the loop. */
static void fini(struct beats *beats)
{
    embd_client *client = beats->client;
    for (uint32_t i = 0; i < client->n_shards; i++)
        if (beats->links[i] != NULL)
            embd__link_close(beats->links[i]);
    uv_close((uv_handle_t *)&beats->timer, NULL);
    uv_close((uv_handle_t *)&beats->wake, NULL);
    uv_run(&beats->loop, UV_RUN_DEFAULT);
    uv_loop_close(&beats->loop);
    pthread_mutex_destroy(&beats->mutex);
    drop_gone(beats);
    free(beats);
}

static int start(embd_client *client)
{
    struct embd__error *e = &client->error;
    struct beats *beats = calloc(1, sizeof *beats + client->n_shards * sizeof *beats->links);
    if (beats == NULL || uv_loop_init(&beats->loop) != 0) {
        free(beats);
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for a worker's signs of life");
    }
    beats->client = client;
    pthread_mutex_init(&beats->mutex, NULL);
    uv_timer_init(&beats->loop, &beats->timer);
    uv_async_init(&beats->loop, &beats->wake, on_wake);
    beats->timer.data = beats->wake.data = beats;
    if (open_links(beats, e) != EMBD_OK || pthread_create(&beats->thread, NULL, run, beats) != 0) {
        fini(beats);
        return embd__error_set(e, EMBD_NO_MEMORY,
                               "the thread of a worker's signs of life could not be started");
    }
    client->beats = beats;
    return EMBD_OK;
}

/* ---- the caller's thread ---- */

int embd__beats_add(embd_client *client, struct member *member)
{
    if (member->beats[0].beats != NULL)
        return EMBD_OK;
    if (client->beats == NULL && start(client) != EMBD_OK)
        return client->error.status;
    struct beats *beats = client->beats;
    for (uint32_t i = 0; i < client->n_shards; i++)
        member->beats[i].beats = beats;
    pthread_mutex_lock(&beats->mutex);
    member->next_beating = beats->members;
    beats->members = member;
    pthread_mutex_unlock(&beats->mutex);
    uv_async_send(&beats->wake);
    return EMBD_OK;
}

void embd__beats_remove(embd_client *client, struct member *member)
{
    if (member->beats[0].beats == NULL) {
        embd__member_free(client, member);
        return;
    }
    member->is_gone = true;
    uv_async_send(&client->beats->wake);
}

bool embd__beats_awaited(embd_client *client, struct member *member, struct awaited *out)
{
    if (client->beats == NULL)
        return false;
    *out = (struct awaited){0};
    pthread_mutex_lock(&client->beats->mutex);
    for (uint32_t i = 0; i < client->n_shards && !out->is_known; i++)
        *out = member->beats[i].awaited;
    pthread_mutex_unlock(&client->beats->mutex);
    return out->is_known;
}

void embd__beats_close(embd_client *client)
{
    struct beats *beats = client->beats;
    if (beats == NULL)
        return;
    pthread_mutex_lock(&beats->mutex);
    beats->stops = true;
    pthread_mutex_unlock(&beats->mutex);
    uv_async_send(&beats->wake);
    pthread_join(beats->thread, NULL);
    fini(beats);
    client->beats = NULL;
}
