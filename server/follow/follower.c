/* follower.c - see follower.h. */
#include "server/follow/follower.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "proto/placement_wire.h"
#include "proto/xxh3.h"
#include "server/files/thread.h"
#include "server/follow/failover.h"
#include "server/follow/maps.h"
#include "server/log/monotonic.h"
#include "server/peers/peers.h"

enum {
    ASK_MS = 20000,
    PAUSE_LEAST_MS = 100,
    PAUSE_MOST_MS = 2000,
    PAUSE_ETCD_MS = 200, /* another server may serve by then */
    ADDRESS_BYTES = 256,
};

/* Where the shards of the cluster are. */
struct places {
    uint32_t n; /* those that are to become members are behind those that are: */
    uint32_t n_members;
    char (*addresses)[ADDRESS_BYTES]; /* [3 * n] of data listeners, admins' paths and hosts */
    const char **lists;               /* [3 * n] the same, as peers take them */
};

struct follower {
    struct follower_config config;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t news;
    /* Under the lock. */
    bool has_ask, has_answer, stops, leaves;
    struct peers *asking; /* that a stop ends; NULL: none */
    struct places known;  /* the last map that came */
    /* The thread's while has_ask; the shard's while has_answer. */
    struct follow_ask ask;
    struct follower_question *question; /* instead of `ask`; NULL: none */
    struct follower_answer answer;
    /* The thread's. */
    struct peers_proof proof;
    struct peers *peers;         /* NULL: not connected */
    struct places places;        /* that the links are for */
    struct places found;         /* the map that was asked for */
    uint64_t map_version;        /* of keys */
    char address[ADDRESS_BYTES]; /* of the admin listener of shard 0 */
    uint32_t pause_ms;
};

/* ---- where shards are ---- */

static int places_init(struct places *places, uint32_t n, struct embd__error *e)
{
    *places = (struct places){n, n, calloc((size_t)3 * n, ADDRESS_BYTES),
                              calloc((size_t)3 * n, sizeof(char *))};
    if (places->addresses == NULL || places->lists == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for a map of %u shards", n);
    for (uint32_t i = 0; i < 3 * n; i++)
        places->lists[i] = places->addresses[i];
    return EMBD_OK;
}

static void places_fini(struct places *places)
{
    free(places->addresses);
    free(places->lists);
    *places = (struct places){0};
}

/* EMBD_NO_MEMORY. Of what has none, none. */
static int places_copy(struct places *to, const struct places *from, struct embd__error *e)
{
    places_fini(to);
    if (from->addresses == NULL || places_init(to, from->n, e) != EMBD_OK)
        return e->status;
    to->n_members = from->n_members;
    memcpy(to->addresses, from->addresses, (size_t)3 * from->n * ADDRESS_BYTES);
    return EMBD_OK;
}

static int open_peers(struct follower *f, struct embd__error *e)
{
    uint32_t n = f->places.n;
    const struct peers_config config = {
        .n_shards = n,
        .addresses = f->places.lists,
        .admin_addresses = f->places.lists + n,
        .admin_hosts = f->places.lists + (size_t)2 * n,
        .proof = &f->proof,
        .cert = f->config.cert,
        .key = f->config.key,
        .token_file = f->config.token_file,
        .follows = true,
    };
    struct peers *peers = NULL;
    if (peers_open(&config, &peers, e) != EMBD_OK)
        return e->status;
    pthread_mutex_lock(&f->lock);
    f->peers = f->asking = peers;
    if (f->stops)
        peers_stop(peers);
    pthread_mutex_unlock(&f->lock);
    return EMBD_OK;
}

static void close_peers(struct follower *f)
{
    pthread_mutex_lock(&f->lock);
    struct peers *peers = f->peers;
    f->peers = f->asking = NULL;
    pthread_mutex_unlock(&f->lock);
    peers_close(peers);
    places_fini(&f->places);
}

/* Then the shards are on this host; else a path may be another server's. */
static bool is_path(const struct follower *f)
{
    return f->address[0] == '/';
}

static void take_place(struct follower *f, struct reader *r, const msgpack_object *item, uint32_t i)
{
    uint32_t n = f->found.n;
    char(*to)[ADDRESS_BYTES] = f->found.addresses;
    struct fields fields;
    embd__list_map(r, item, &fields, "cluster");
    embd__field_str(&fields, "address", to[i], ADDRESS_BYTES, "");
    embd__field_str(&fields, "admin", to[n + i], ADDRESS_BYTES, "");
    embd__field_str(&fields, "admin_tcp", to[2 * n + i], ADDRESS_BYTES, "");
    to[is_path(f) ? 2 * n + i : n + i][0] = '\0';
}

/* With failover its process has as many shards as this one; other servers may have others. */
static bool is_alike(const struct follower *f, uint32_t n, uint32_t room)
{
    struct failover_place at;
    failover_place(f->config.failover, &at);
    if (at.n_shards == 0)
        return n == room;
    return at.n_shards == room && n >= f->config.failover->first_shard + room;
}

/* One that was promoted tells all that there are. */
static bool has_room(const struct follower *f, uint32_t n)
{
    bool tells = f->config.n_loaded != NULL;
    uint32_t room = f->config.maps != NULL ? follow_maps_room(f->config.maps) : f->config.n_shards;
    if (n > room && f->config.make_room != NULL && !tells)
        f->config.make_room(f->config.make_room_arg, n);
    return tells || (f->config.failover != NULL ? is_alike(f, n, room) : n <= room);
}

static void refuse_map(const struct follower *f, uint32_t n, struct embd__error *e)
{
    if (f->config.failover != NULL && n <= f->config.failover->first_shard)
        embd__error_set(e, EMBD_INVALID,
                        "the cluster at %.100s has %u shards: those of this server have left it, "
                        "and this process can be stopped",
                        f->address, n);
    else
        embd__error_set(e, EMBD_INVALID,
                        "the cluster at %.100s has %u shards, this server has %u: set shards to as "
                        "many",
                        f->address, n, f->config.n_shards);
}

/* Fields that a later version adds are not looked at. */
static void take_map(void *arg, uint32_t shard, struct reader *r)
{
    struct follower *f = arg;
    struct fields fields;
    struct placement keys;
    const msgpack_object *items, *joining;
    (void)shard;
    embd__read_fields(&fields, r, "cluster");
    uint32_t n = embd__field_list(&fields, "shards", UINT16_MAX, &items);
    uint32_t n_joining = embd__field_list(&fields, "joining", UINT16_MAX, &joining);
    if (!has_room(f, n))
        refuse_map(f, n, r->error);
    else if (embd__placement_read(&fields, n, &keys) == EMBD_OK)
        f->map_version = keys.version;
    if (r->error->status == EMBD_OK)
        places_init(&f->found, n + n_joining, r->error);
    f->found.n_members = n;
    for (uint32_t i = 0; i < n && r->error->status == EMBD_OK; i++)
        take_place(f, r, &items[i], i);
    for (uint32_t i = 0; i < n_joining && r->error->status == EMBD_OK; i++)
        take_place(f, r, &joining[i], n + i);
}

static int find_address(struct follower *f, struct failover_place *out, struct embd__error *e)
{
    *out = (struct failover_place){.admin = ""};
    if (f->config.failover != NULL)
        failover_place(f->config.failover, out);
    else if (f->config.find == NULL)
        snprintf(out->admin, sizeof out->admin, "%s", f->config.address);
    else if (f->config.find(f->config.find_arg, out->admin, sizeof out->admin, e) != EMBD_OK)
        return e->status;
    snprintf(f->address, sizeof f->address, "%s", out->admin);
    if (f->address[0] != '\0')
        return EMBD_OK;
    return embd__error_set(e, EMBD_UNREACHABLE, "no process serves, as etcd has it");
}

/* Of the first shard that this process follows, as the map has it. */
static const char *own_address(const struct follower *f)
{
    uint32_t first = f->config.failover->first_shard;
    return first < f->found.n ? f->found.addresses[first] : "";
}

/* One that has just taken the name tells of the process before it, until the map has it. */
static int check_map(const struct follower *f, const struct failover_place *at,
                     struct embd__error *e)
{
    if (f->config.failover == NULL || strcmp(own_address(f), at->address) == 0)
        return EMBD_OK;
    return embd__error_set(e, EMBD_UNREACHABLE,
                           "the process at %.100s is not yet on its own map: %.100s is",
                           at->address, own_address(f));
}

/* The map of the server at the address; then that server is one of many. */
static int learn_map(struct follower *f, struct embd__error *e)
{
    struct failover_place at;
    uint32_t first = f->config.failover != NULL ? f->config.failover->first_shard : 0,
             n = first + 1;
    if (find_address(f, &at, e) != EMBD_OK || places_init(&f->places, n, e) != EMBD_OK)
        return e->status;
    snprintf(f->places.addresses[first], ADDRESS_BYTES, "%s", f->address);
    snprintf(f->places.addresses[(is_path(f) ? 1 : 2) * n + first], ADDRESS_BYTES, "%s",
             f->address);
    if (open_peers(f, e) != EMBD_OK)
        return e->status;
    embd__msg_map(peers_add(f->peers, first, METHOD_CLUSTER, ASK_MS), 0);
    if (peers_run(f->peers, take_map, f, e) != EMBD_OK)
        return e->status;
    return check_map(f, &at, e);
}

static int remember(struct follower *f, struct embd__error *e)
{
    pthread_mutex_lock(&f->lock);
    places_copy(&f->known, &f->found, e);
    pthread_mutex_unlock(&f->lock);
    return e->status;
}

/* The server at the address is gone: those of the other shards may be there. With failover another
 * process is. */
static int recall(struct follower *f, struct embd__error *e)
{
    struct embd__error own = {.status = EMBD_OK};
    if (f->known.addresses == NULL || f->config.failover != NULL ||
        (e->status != EMBD_UNREACHABLE && e->status != EMBD_CLOSED && e->status != EMBD_DEADLINE))
        return e->status;
    if (places_copy(&f->found, &f->known, &own) == EMBD_OK)
        *e = own;
    return e->status;
}

/* The links were made for places that are now others. */
static int connect_all(struct follower *f, struct embd__error *e)
{
    places_fini(&f->found);
    if ((learn_map(f, e) == EMBD_OK ? remember(f, e) : recall(f, e)) != EMBD_OK)
        return e->status;
    close_peers(f);
    f->places = f->found;
    f->found = (struct places){0};
    return open_peers(f, e);
}

/* ---- a question ---- */

static void take_answer(void *arg, uint32_t shard, struct reader *r)
{
    struct follower_answer *answer = arg;
    (void)shard;
    if (embd__follow_answer_read(r, &answer->found) != EMBD_OK)
        return;
    answer->bytes = malloc(answer->found.n_bytes + 1);
    if (answer->bytes == NULL) {
        embd__error_set(r->error, EMBD_NO_MEMORY, "no memory for records of another server");
        return;
    }
    memcpy(answer->bytes, answer->found.bytes, answer->found.n_bytes);
    answer->sum = XXH3_64bits_dispatch(answer->bytes, answer->found.n_bytes);
    memcpy(answer->skips, answer->found.skips, answer->found.n_skips * sizeof *answer->skips);
    answer->found.bytes = NULL;
    answer->found.skips = NULL;
}

static void take_else(void *arg, uint32_t shard, struct reader *r)
{
    struct follower_question *question = arg;
    (void)shard;
    question->take(question, r);
}

/* The shard said so, and goes on: what was asked for is not there, or not now. */
static bool is_answered(int status)
{
    return status == EMBD_OK || status == EMBD_UNKNOWN_TABLE || status == EMBD_UNSUPPORTED ||
           status == EMBD_FULL || status == EMBD_BUSY;
}

static int ask_else(struct follower *f, struct follower_answer *answer)
{
    struct follower_question *question = f->question;
    question->write(question, peers_add(f->peers, f->config.shard, question->method, ASK_MS));
    answer->sent_ns = monotonic_ns();
    int status = peers_run(f->peers, take_else, question, &answer->error);
    answer->is_lost = !is_answered(status);
    return status;
}

static int ask(struct follower *f, struct follower_answer *answer)
{
    struct embd__error *e = &answer->error;
    if (f->config.n_loaded != NULL && atomic_load(f->config.n_loaded) < f->config.n_shards)
        return embd__error_set(e, EMBD_LOADING, "shards of this server are not loaded yet");
    if (f->peers == NULL && connect_all(f, e) != EMBD_OK)
        return e->status;
    answer->map_version = f->map_version;
    answer->n_shards = f->places.n_members;
    answer->is_spare = f->config.shard >= f->places.n;
    if (answer->is_spare)
        return embd__error_set(e, EMBD_BUSY, "the cluster at %.100s has %u shards", f->address,
                               answer->n_shards);
    snprintf(answer->address, sizeof answer->address, "%s", f->places.addresses[f->config.shard]);
    if (f->question != NULL)
        return ask_else(f, answer);
    uint32_t deadline_ms = ASK_MS + (uint32_t)f->ask.wait_ms;
    struct msg *m = peers_add(f->peers, f->config.shard, METHOD_FOLLOW, deadline_ms);
    embd__follow_ask_write(m, &f->ask);
    answer->sent_ns = monotonic_ns();
    return peers_run(f->peers, take_answer, answer, e);
}

static void ask_once(struct follower *f)
{
    struct follower_answer *answer = &f->answer;
    *answer = (struct follower_answer){.is_lost = true};
    if (ask(f, answer) == EMBD_OK || !answer->is_lost) {
        f->pause_ms = 0;
        return;
    }
    free(answer->bytes);
    answer->bytes = NULL;
    close_peers(f);
    f->pause_ms = f->pause_ms == 0 ? PAUSE_LEAST_MS : 2 * f->pause_ms;
    bool is_in_etcd = f->config.failover != NULL || f->config.find != NULL;
    uint32_t most_ms = is_in_etcd ? PAUSE_ETCD_MS : PAUSE_MOST_MS;
    f->pause_ms = f->pause_ms < most_ms ? f->pause_ms : most_ms;
}

/* ---- the thread ---- */

/* With the lock. */
static void rest(struct follower *f, uint32_t ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    while (!f->stops && !f->leaves &&
           pthread_cond_timedwait(&f->news, &f->lock, &until) != ETIMEDOUT)
        ;
}

static void *run(void *arg)
{
    struct follower *f = arg;
    thread_name("embd-follower");
    pthread_mutex_lock(&f->lock);
    while (!f->stops) {
        if (!f->has_ask) {
            pthread_cond_wait(&f->news, &f->lock);
            continue;
        }
        uint32_t asked_ms = f->question != NULL ? f->question->pause_ms : 0;
        if (f->pause_ms + asked_ms > 0)
            rest(f, f->pause_ms + asked_ms);
        bool leaves = f->leaves;
        f->leaves = false;
        pthread_mutex_unlock(&f->lock);
        if (leaves)
            close_peers(f);
        ask_once(f);
        pthread_mutex_lock(&f->lock);
        f->has_ask = false;
        f->has_answer = true;
        f->config.wake(f->config.wake_arg);
    }
    pthread_mutex_unlock(&f->lock);
    close_peers(f);
    return NULL;
}

/* ---- from outside ---- */

static void destroy(struct follower *f)
{
    peers_proof_fini(&f->proof);
    places_fini(&f->known);
    places_fini(&f->found);
    pthread_cond_destroy(&f->news);
    pthread_mutex_destroy(&f->lock);
    free(f->answer.bytes);
    free(f);
}

static int inherit(struct follower *f, struct follower *before, struct embd__error *e)
{
    if (before == NULL)
        return EMBD_OK;
    pthread_mutex_lock(&before->lock);
    places_copy(&f->known, &before->known, e);
    pthread_mutex_unlock(&before->lock);
    return e->status;
}

int follower_open(const struct follower_config *config, struct follower **out,
                  struct embd__error *e)
{
    struct follower *f = calloc(1, sizeof *f);
    if (f == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory to follow a server");
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&f->news, &clock);
    pthread_condattr_destroy(&clock);
    pthread_mutex_init(&f->lock, NULL);
    f->config = *config;
    if (peers_proof_set_ca(&f->proof, config->ca, config->ca_bytes, config->believes_system, e) ==
            EMBD_OK &&
        inherit(f, config->before, e) == EMBD_OK && thread_start(&f->thread, run, f) != 0)
        embd__error_set(e, EMBD_NO_MEMORY, "cannot start the thread that follows a server");
    if (e->status != EMBD_OK)
        destroy(f);
    else
        *out = f;
    return e->status;
}

void follower_close(struct follower *f)
{
    if (f == NULL)
        return;
    pthread_mutex_lock(&f->lock);
    f->stops = true;
    if (f->asking != NULL)
        peers_stop(f->asking);
    pthread_cond_signal(&f->news);
    pthread_mutex_unlock(&f->lock);
    pthread_join(f->thread, NULL);
    destroy(f);
}

void follower_ask(struct follower *f, const struct follow_ask *ask)
{
    pthread_mutex_lock(&f->lock);
    f->ask = *ask;
    f->question = NULL;
    f->has_ask = true;
    pthread_cond_signal(&f->news);
    pthread_mutex_unlock(&f->lock);
}

void follower_ask_else(struct follower *f, struct follower_question *question)
{
    pthread_mutex_lock(&f->lock);
    f->question = question;
    f->has_ask = true;
    pthread_cond_signal(&f->news);
    pthread_mutex_unlock(&f->lock);
}

void follower_leave(struct follower *f)
{
    pthread_mutex_lock(&f->lock);
    f->leaves = true;
    if (f->asking != NULL)
        peers_stop(f->asking);
    pthread_cond_signal(&f->news);
    pthread_mutex_unlock(&f->lock);
}

bool follower_take(struct follower *f, struct follower_answer *out)
{
    pthread_mutex_lock(&f->lock);
    bool has = f->has_answer;
    if (has) {
        *out = f->answer;
        f->answer = (struct follower_answer){.bytes = NULL};
        f->has_answer = false;
    }
    pthread_mutex_unlock(&f->lock);
    return has;
}
