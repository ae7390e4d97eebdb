/* peers.c - see peers.h.
 *
 * The happy path: the shards of this process are asked over their Unix sockets, the others over TCP
 * where their servers take admins there, else over their Unix sockets on this host. A connection is
 * made with its first request and kept: what shards keep for it (a hold, a cut) ends with it. The
 * links are those of the client library (client/io), on a loop of the caller's thread.
 *
 * What can fail: a shard that cannot be reached, or does not let this server in. Without a token a
 * Unix socket is tried even where there is a port. */
#include "server/peers/peers.h"
#include "proto/tls/secret.h"
#include "proto/tls/tls.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include "client/io/answer_bins.h"
#include "client/io/link.h"
#include "client/io/receive.h"

#define RECONNECT_MIN_MS 10u
#define RECONNECT_MAX_MS 1000u
#define TOKEN_TEXT_BYTES 260u /* with a line's end */

/* A request to one shard. */
struct ask {
    struct exchange x;
    struct peer *peer;
    uint32_t lane;
    bool is_added, is_sent;
    bool has_ended;          /* and nobody has looked at its error */
    struct answer_bins bins; /* of the answer coming in */
};

struct peer {
    struct peers *peers;
    struct link *link; /* NULL: not needed yet, or unreachable */
    uint32_t shard;
    struct ask one;    /* of peers_run */
    struct ask *lanes; /* [PEERS_LANES] malloc'd; NULL: none was used */
};

struct peers {
    struct peers_config config;
    struct credentials credentials;
    struct credentials here; /* for Unix sockets */
    uv_loop_t loop;
    uint8_t *buffer; /* of its links */
    uv_async_t stop;
    bool has_loop, has_stop;
    atomic_bool stops;
    uint32_t last_msgid;
    uint32_t n_left;     /* requests of peers_run that have not ended */
    uint32_t n_in_lanes; /* of lanes, on their way */
    void (*take)(void *arg, uint32_t shard, struct reader *reader);
    void *take_arg;
    struct peers_taker taker; /* of lanes */
    struct peer *list;        /* [n_shards] */
};

int peers_proof_set_ca(struct peers_proof *proof, const void *ca, uint64_t ca_bytes,
                       bool believes_system, struct embd__error *e)
{
    void *copy = ca_bytes > 0 ? malloc(ca_bytes) : NULL;
    if (copy == NULL && ca_bytes > 0)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for authorities");
    if (copy != NULL)
        memcpy(copy, ca, ca_bytes);
    free(proof->ca);
    proof->ca = copy;
    proof->ca_bytes = ca_bytes;
    proof->believes_system = believes_system;
    return EMBD_OK;
}

void peers_proof_fini(struct peers_proof *proof)
{
    if (proof->token != NULL)
        explicit_bzero(proof->token, strlen(proof->token));
    free(proof->token);
    free(proof->ca);
    *proof = (struct peers_proof){.token = NULL};
}

const char *peers_name(const struct peers *peers, uint32_t shard)
{
    return peers->config.addresses[shard];
}

/* ---- the way to a shard ---- */

static const char *host_of(const struct peers_config *config, uint32_t shard)
{
    return config->admin_hosts != NULL ? config->admin_hosts[shard] : "";
}

static bool is_own(const struct peers_config *config, uint32_t shard)
{
    return shard >= config->first_own && shard - config->first_own < config->n_own;
}

/* Whether the shard's socket is here. In containers one path may be another server's on every
 * host: this server's sockets are its own alone. */
static bool is_here(const struct peers_config *config, uint32_t shard)
{
    const char *path = config->admin_addresses[shard];
    for (uint32_t i = 0; i < config->n_own && !is_own(config, shard); i++)
        if (strcmp(path, config->admin_addresses[config->first_own + i]) == 0)
            return false;
    return path[0] != '\0' && access(path, W_OK) == 0;
}

static int refuse_way(const struct peers *peers, uint32_t shard, struct embd__error *e)
{
    return embd__error_set(e, EMBD_UNREACHABLE,
                           "%.200s: has no admin listener that this server can reach: it has "
                           "ended, or needs admin_listen",
                           peers_name(peers, shard));
}

/* A token that is for servers alone, and lets nobody read a row, may go over plain TCP. */
static int open_data_link(struct peers *peers, struct peer *peer, struct embd__error *e)
{
    const struct peers_config *config = &peers->config;
    const struct link_config link = {
        .loop = &peers->loop,
        .buffer = peers->buffer,
        .address = config->addresses[peer->shard],
        .credentials = &peers->credentials,
        .shard = peer->shard,
        .n_shards = config->n_shards,
        .reconnect_min_ms = RECONNECT_MIN_MS,
        .reconnect_max_ms = RECONNECT_MAX_MS,
    };
    peers->credentials.plain_token = true;
    return embd__link_open(&link, &peer->link, e);
}

/* To a shard of this process that listens nowhere. */
static int open_own_link(struct peers *peers, struct peer *peer, struct embd__error *e)
{
    const struct peers_config *config = &peers->config;
    const struct link_config link = {
        .loop = &peers->loop,
        .buffer = peers->buffer,
        .address = config->addresses[peer->shard],
        .dialer = config->dialer,
        .is_admin = true,
        .credentials = &peers->here,
        .shard = peer->shard,
        .n_shards = config->n_shards,
        .reconnect_min_ms = RECONNECT_MIN_MS,
        .reconnect_max_ms = RECONNECT_MAX_MS,
    };
    return embd__link_open(&link, &peer->link, e);
}

static int open_link(struct peers *peers, struct peer *peer, struct embd__error *e)
{
    const struct peers_config *config = &peers->config;
    if (config->asks_data)
        return open_data_link(peers, peer, e);
    if (config->dialer != NULL && is_own(config, peer->shard))
        return open_own_link(peers, peer, e);
    const char *host = host_of(config, peer->shard);
    bool here = is_here(config, peer->shard);
    bool prefers_host = !is_own(config, peer->shard) && peers->credentials.token != NULL;
    bool by_host = host[0] != '\0' && (prefers_host || !here);
    struct link_config link = {
        .loop = &peers->loop,
        .buffer = peers->buffer,
        .address = by_host ? host : config->admin_addresses[peer->shard],
        .is_path = !by_host,
        .credentials = by_host ? &peers->credentials : &peers->here,
        .shard = peer->shard,
        .n_shards = config->n_shards,
        .reconnect_min_ms = RECONNECT_MIN_MS,
        .reconnect_max_ms = RECONNECT_MAX_MS,
    };
    if (!by_host && !here)
        return refuse_way(peers, peer->shard, e);
    return embd__link_open(&link, &peer->link, e);
}

/* ---- opening ---- */

static void on_stop(uv_async_t *async)
{
    (void)async; /* peers_run looks at `stops` */
}

static int open_loop(struct peers *peers, struct embd__error *e)
{
    peers->has_loop = uv_loop_init(&peers->loop) == 0;
    peers->has_stop = peers->has_loop && uv_async_init(&peers->loop, &peers->stop, on_stop) == 0;
    peers->buffer = embd__receive_buffer_new();
    if (!peers->has_stop || peers->buffer == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no loop to ask other shards");
    return EMBD_OK;
}

/* This server's own. */
static int read_token(const char *path, char **out, struct embd__error *e)
{
    char text[TOKEN_TEXT_BYTES];
    size_t n;
    if (embd__secret_read(path, "token", text, sizeof text, &n, e) != EMBD_OK)
        return e->status;
    *out = strndup(text, strcspn(text, "\r\n"));
    explicit_bzero(text, sizeof text);
    return *out != NULL ? EMBD_OK : embd__error_set(e, EMBD_NO_MEMORY, "no memory for a token");
}

static int copy(const char *text, char **out, struct embd__error *e)
{
    *out = text != NULL ? strdup(text) : NULL;
    return text == NULL || *out != NULL
               ? EMBD_OK
               : embd__error_set(e, EMBD_NO_MEMORY, "no memory for a token");
}

static int find_token(struct peers *peers, struct embd__error *e)
{
    const struct peers_config *config = &peers->config;
    if (config->token_file != NULL)
        return read_token(config->token_file, &peers->credentials.token, e);
    return copy(config->proof->token, &peers->credentials.token, e);
}

static int open_credentials(struct peers *peers, struct embd__error *e)
{
    const struct peers_config *config = &peers->config;
    const struct peers_proof *proof = config->proof;
    const struct tls_files files = {.cert = config->cert,
                                    .key = config->key,
                                    .ca = proof->believes_system ? "system" : NULL,
                                    .ca_pem = proof->ca,
                                    .ca_pem_bytes = proof->ca_bytes};
    if (find_token(peers, e) != EMBD_OK ||
        copy(config->acts_for, &peers->credentials.acts_for, e) != EMBD_OK ||
        copy(config->acts_for, &peers->here.acts_for, e) != EMBD_OK)
        return e->status;
    if (files.ca == NULL && files.ca_pem == NULL)
        return EMBD_OK;
    return embd__tls_client(&files, &peers->credentials.tls, e);
}

int peers_open(const struct peers_config *config, struct peers **out, struct embd__error *e)
{
    struct peers *peers = calloc(1, sizeof *peers);
    struct peer *list = calloc(config->n_shards, sizeof *list);
    if (peers == NULL || list == NULL) {
        free(peers);
        free(list);
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory to ask %u shards", config->n_shards);
    }
    *peers = (struct peers){.config = *config, .list = list};
    for (uint32_t i = 0; i < config->n_shards; i++) {
        list[i].shard = i;
        list[i].peers = peers;
        list[i].one.peer = &list[i];
        embd__msg_init(&list[i].one.x.msg);
    }
    if (open_loop(peers, e) == EMBD_OK && open_credentials(peers, e) == EMBD_OK) {
        *out = peers;
        return EMBD_OK;
    }
    peers_close(peers);
    return e->status;
}

static void close_lanes(struct peer *peer)
{
    for (uint32_t i = 0; peer->lanes != NULL && i < PEERS_LANES; i++)
        embd__msg_fini(&peer->lanes[i].x.msg);
    free(peer->lanes);
}

void peers_close(struct peers *peers)
{
    if (peers == NULL)
        return;
    for (uint32_t i = 0; i < peers->config.n_shards; i++)
        if (peers->list[i].link != NULL)
            embd__link_close(peers->list[i].link);
    if (peers->has_stop)
        uv_close((uv_handle_t *)&peers->stop, NULL);
    if (peers->has_loop) {
        uv_run(&peers->loop, UV_RUN_DEFAULT);
        uv_loop_close(&peers->loop);
    }
    for (uint32_t i = 0; i < peers->config.n_shards; i++) {
        embd__msg_fini(&peers->list[i].one.x.msg);
        close_lanes(&peers->list[i]);
    }
    embd__credentials_fini(&peers->credentials);
    embd__credentials_fini(&peers->here);
    free(peers->list);
    free(peers->buffer);
    free(peers);
}

void peers_stop(struct peers *peers)
{
    atomic_store(&peers->stops, true);
    uv_async_send(&peers->stop);
}

/* ---- a request ---- */

static struct msg *add(struct peers *peers, struct ask *ask, enum method method,
                       uint32_t deadline_ms)
{
    struct exchange *x = &ask->x;
    struct msg msg = x->msg;
    *x = (struct exchange){.msg = msg, .msgid = ++peers->last_msgid, .deadline_ms = deadline_ms};
    x->fail_fast = true;
    x->while_loading = method == METHOD_IDENTITY;
    x->deadline_ns = uv_hrtime() + (uint64_t)deadline_ms * 1000000u;
    ask->is_added = true;
    ask->is_sent = ask->has_ended = false;
    ask->bins.n = 0;
    embd__msg_request(&x->msg, x->msgid, method);
    return &x->msg;
}

struct msg *peers_add(struct peers *peers, uint32_t shard, enum method method, uint32_t deadline_ms)
{
    return add(peers, &peers->list[shard].one, method, deadline_ms);
}

static void *on_bin(struct exchange *x, uint32_t index, uint32_t bytes)
{
    struct ask *ask = x->owner;
    return embd__answer_bins_add(&ask->bins, x, index, bytes);
}

static bool is_in_lane(const struct ask *ask)
{
    return ask != &ask->peer->one;
}

static void on_answer(struct exchange *x, struct reader *reader)
{
    struct ask *ask = x->owner;
    struct peers *peers = ask->peer->peers;
    if (is_in_lane(ask) && peers->taker.take != NULL)
        peers->taker.take(peers->taker.arg, ask->peer->shard, ask->lane, reader);
    else if (!is_in_lane(ask) && peers->take != NULL)
        peers->take(peers->take_arg, ask->peer->shard, reader);
    else
        reader->next = reader->n_items;
    embd__reader_end(reader);
}

static void on_end(struct exchange *x)
{
    struct ask *ask = x->owner;
    struct peers *peers = ask->peer->peers;
    embd__answer_bins_fini(&ask->bins);
    ask->has_ended = true;
    if (is_in_lane(ask))
        peers->n_in_lanes--;
    else
        peers->n_left--;
}

static void send_one(struct peers *peers, struct ask *ask)
{
    struct exchange *x = &ask->x;
    struct peer *peer = ask->peer;
    struct embd__error *e = &x->error;
    ask->is_sent = ask->has_ended = true;
    if (embd__msg_end(&x->msg) != EMBD_OK) {
        embd__error_set(e, x->msg.status, "a request could not be built: %s",
                        embd_status_text(x->msg.status));
        return;
    }
    if (peer->link == NULL && open_link(peers, peer, e) != EMBD_OK)
        return;
    x->link = peer->link;
    x->owner = ask;
    x->on_bin = on_bin;
    x->on_answer = on_answer;
    x->on_end = on_end;
    ask->has_ended = false;
    if (is_in_lane(ask))
        peers->n_in_lanes++;
    else
        peers->n_left++;
    embd__link_send(peer->link, x);
}

/* ---- what to do ---- */

/* A trainer cannot do anything about it. */
static const char *advice_for_trainers(bool has_tls, bool has_token, int status)
{
    if (status == EMBD_DENIED && !has_token)
        return "set peer_token on the coordinating server: the file of a token with the role "
               "server, which all servers' lists have";
    if (status == EMBD_UNREACHABLE || status == EMBD_CLOSED || status == EMBD_PROTOCOL)
        return has_tls ? "the coordinating server could not connect; check admin_listen and the "
                         "network between the servers"
                       : "set peer_ca on the coordinating server, which needs it to ask by TLS";
    return NULL;
}

/* The text of a link's error says where and why. */
static const char *advice(const struct peers *peers, const struct peer *peer, int status)
{
    bool has_tls = peers->credentials.tls != NULL, has_token = peers->credentials.token != NULL;
    if (peers->config.asks_data || peers->config.follows || is_own(&peers->config, peer->shard))
        return NULL;
    if (peers->config.acts_for != NULL)
        return advice_for_trainers(has_tls, has_token, status);
    if (status == EMBD_DENIED && !has_token)
        return "give embctl an admin's token (EMBD_TOKEN_FILE), which the coordinating server "
               "shows there";
    if (status != EMBD_UNREACHABLE && status != EMBD_CLOSED && status != EMBD_PROTOCOL)
        return NULL;
    if (!has_tls)
        return "give embctl EMBD_TLS_CA, which the coordinating server needs to ask there by TLS";
    return "the coordinating server could not connect; check admin_listen, the network between the "
           "servers, and tls_client_ca if that server uses it";
}

static void take_error(const struct peers *peers, const struct ask *ask, struct embd__error *e)
{
    const struct peer *peer = ask->peer;
    const struct embd__error *own = &ask->x.error;
    const char *what = advice(peers, peer, own->status);
    if (e->status != EMBD_OK || own->status == EMBD_OK)
        return;
    if (what == NULL || peer->link == NULL)
        embd__error_set(e, own->status, "%s", own->text);
    else
        embd__error_set(e, own->status, "shard %u at %.220s: %s", peer->shard, own->text, what);
}

static void close_links(struct peers *peers)
{
    for (uint32_t i = 0; i < peers->config.n_shards; i++) {
        if (peers->list[i].link != NULL)
            embd__link_close(peers->list[i].link);
        peers->list[i].link = NULL;
    }
}

const struct embd__error *peers_error(const struct peers *peers, uint32_t shard)
{
    return &peers->list[shard].one.x.error;
}

static void end_stopped(struct peers *peers, struct embd__error *e)
{
    if (!atomic_load(&peers->stops))
        return;
    close_links(peers);
    embd__error_set(e, EMBD_CLOSED, "it was ended");
}

int peers_run(struct peers *peers, void (*take)(void *arg, uint32_t shard, struct reader *reader),
              void *arg, struct embd__error *e)
{
    uint32_t n = peers->config.n_shards;
    peers->take = take;
    peers->take_arg = arg;
    for (uint32_t i = 0; i < n && !atomic_load(&peers->stops); i++)
        if (peers->list[i].one.is_added)
            send_one(peers, &peers->list[i].one);
    while (peers->n_left > 0 && !atomic_load(&peers->stops))
        uv_run(&peers->loop, UV_RUN_ONCE);
    end_stopped(peers, e);
    for (uint32_t i = 0; i < n; i++) {
        if (peers->list[i].one.is_added)
            take_error(peers, &peers->list[i].one, e);
        peers->list[i].one.is_added = false;
    }
    return e->status;
}

/* ---- lanes ---- */

static bool open_lanes(struct peer *peer)
{
    if (peer->lanes == NULL)
        peer->lanes = calloc(PEERS_LANES, sizeof *peer->lanes);
    for (uint32_t i = 0; peer->lanes != NULL && i < PEERS_LANES && peer->lanes[i].peer == NULL;
         i++) {
        peer->lanes[i].peer = peer;
        peer->lanes[i].lane = i;
        embd__msg_init(&peer->lanes[i].x.msg);
    }
    return peer->lanes != NULL;
}

struct msg *peers_add_to(struct peers *peers, uint32_t shard, uint32_t lane, enum method method,
                         uint32_t deadline_ms)
{
    struct peer *peer = &peers->list[shard];
    return open_lanes(peer) ? add(peers, &peer->lanes[lane], method, deadline_ms) : NULL;
}

bool peers_is_busy(const struct peers *peers, uint32_t shard, uint32_t lane)
{
    const struct ask *lanes = peers->list[shard].lanes;
    return lanes != NULL && lanes[lane].is_added;
}

static void send_lanes(struct peers *peers, struct peer *peer)
{
    for (uint32_t i = 0; peer->lanes != NULL && i < PEERS_LANES; i++)
        if (peer->lanes[i].is_added && !peer->lanes[i].is_sent)
            send_one(peers, &peer->lanes[i]);
}

/* What has ended, or was never sent. */
static bool end_lanes(struct peers *peers, struct peer *peer, struct embd__error *e)
{
    bool any = false;
    for (uint32_t i = 0; peer->lanes != NULL && i < PEERS_LANES; i++) {
        struct ask *ask = &peer->lanes[i];
        if (!ask->is_added || (ask->is_sent && !ask->has_ended))
            continue;
        take_error(peers, ask, e);
        ask->is_added = false;
        any = true;
    }
    return any;
}

static bool end_all_lanes(struct peers *peers, struct embd__error *e)
{
    bool any = false;
    for (uint32_t i = 0; i < peers->config.n_shards; i++)
        any = end_lanes(peers, &peers->list[i], e) || any;
    return any;
}

int peers_wait(struct peers *peers, const struct peers_taker *taker, bool for_all,
               struct embd__error *e)
{
    peers->taker = *taker;
    for (uint32_t i = 0; i < peers->config.n_shards && !atomic_load(&peers->stops); i++)
        send_lanes(peers, &peers->list[i]);
    bool any = end_all_lanes(peers, e);
    while (peers->n_in_lanes > 0 && (for_all || !any) && !atomic_load(&peers->stops)) {
        uv_run(&peers->loop, UV_RUN_ONCE);
        any = end_all_lanes(peers, e);
    }
    end_stopped(peers, e);
    end_all_lanes(peers, e);
    return e->status;
}
