/* connection.c - from one connection to the next: connecting, the TLS handshake, hello, and losing
 * the connection. Hello finds out a server of another protocol version, or another shard than the
 * map of the cluster named at this address, before anything is asked of it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "client/io/link_internal.h"
#include "proto/tls/tls.h"

/* ---- hello ---- */

#define FEATURES_MOST 64u

/* The server's limits, never more than this library's own. */
struct server_limits {
    uint64_t frame_bytes, keys;
    uint32_t requests;  /* in flight on one connection */
    bool takes_order;   /* of pushes */
    bool takes_columns; /* for parts */
    bool takes_packed;  /* i8 and i4 for rows and gradients */
    bool takes_put_numbers;
    char loading[LIMIT_ERROR_TEXT]; /* why it takes no requests yet; "": it does */
    struct server_start start;
    char version[VERSION_BYTES];
};

/* The whole message; `who` may be NULL. Returns m->status. */
static int write_hello(struct msg *m, const struct credentials *who, uint64_t client_id)
{
    const char *token = who != NULL ? who->token : NULL;
    const char *acts_for = who != NULL ? who->acts_for : NULL;
    embd__msg_request(m, HELLO_MSGID, METHOD_HELLO);
    embd__msg_map(m, 2u + (token != NULL) + (acts_for != NULL) + (client_id != 0));
    embd__msg_field_uint(m, "protocol", LIMIT_PROTOCOL);
    embd__msg_field_str(m, "client", "libembd " EMBD_VERSION);
    if (token != NULL)
        embd__msg_field_str(m, "token", token);
    if (acts_for != NULL)
        embd__msg_field_str(m, "for", acts_for);
    if (client_id != 0)
        embd__msg_field_uint(m, "client_id", client_id);
    return embd__msg_end(m);
}

static void check_shard(struct fields *fields, uint32_t shard, uint32_t n_shards)
{
    struct embd__error *e = fields->reader->error;
    uint64_t n = embd__field_uint(fields, "shards", 1, LIMIT_SHARDS, FIELD_REQUIRED);
    uint64_t own = embd__field_uint(fields, "shard", 0, LIMIT_SHARDS - 1, FIELD_REQUIRED);
    if (shard == SHARD_ANY || (own == shard && n == n_shards))
        return;
    embd__error_set(e, EMBD_PROTOCOL, "is shard %llu of %llu; shard %u of %u is expected",
                    (unsigned long long)own, (unsigned long long)n, shard, n_shards);
}

/* A limit of the server's, or ours where that is less or the server names none. */
static uint64_t read_limit(struct fields *fields, const char *name, uint64_t least, uint64_t ours)
{
    uint64_t theirs = embd__field_uint(fields, name, least, UINT64_MAX - 1, ours);
    return theirs < ours ? theirs : ours;
}

static bool has_feature(struct fields *fields, const char *name)
{
    const msgpack_object *items;
    uint32_t n = embd__field_list(fields, "features", FEATURES_MOST, &items);
    for (uint32_t i = 0; i < n; i++)
        if (items[i].type == MSGPACK_OBJECT_STR && items[i].via.str.size == strlen(name) &&
            memcmp(items[i].via.str.ptr, name, items[i].via.str.size) == 0)
            return true;
    return false;
}

/* "embd 0.1.0" without the name. It gets into errors, so it has harmless characters only. */
static void read_version(struct fields *fields, char out[VERSION_BYTES])
{
    static const char name[] = "embd ";
    static const char allowed[] =
        "0123456789.+-~abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    char server[LIMIT_HEADER_BYTES];
    embd__field_str(fields, "server", server, sizeof server, "");
    const char *version = server + sizeof name - 1;
    bool is_embd = strncmp(server, name, sizeof name - 1) == 0;
    out[0] = '\0';
    if (is_embd && strlen(version) < VERSION_BYTES && version[strspn(version, allowed)] == '\0')
        strcpy(out, version);
}

/* Sets the reader's error when the server is of another version, or is not shard `shard` of
 * `n_shards` (SHARD_ANY: any). *out is set on success. */
static void read_hello(struct reader *r, uint32_t shard, uint32_t n_shards,
                       struct server_limits *out)
{
    struct fields fields;
    embd__read_fields(&fields, r, "hello");
    uint64_t protocol = embd__field_uint(&fields, "protocol", 0, UINT32_MAX, FIELD_REQUIRED);
    if (r->error->status == EMBD_OK && protocol != LIMIT_PROTOCOL)
        embd__error_set(r->error, EMBD_PROTOCOL, "uses version %llu of the protocol; expected %d",
                        (unsigned long long)protocol, LIMIT_PROTOCOL);
    check_shard(&fields, shard, n_shards);
    struct server_limits limits = {
        .frame_bytes = read_limit(&fields, "frame_bytes", 1u << 17, LIMIT_FRAME_BYTES),
        .keys = read_limit(&fields, "keys", 1, LIMIT_KEYS),
        .requests = (uint32_t)read_limit(&fields, "requests", 1, LIMIT_REQUESTS_IN_FLIGHT),
        .takes_order = has_feature(&fields, "order"),
        .takes_columns = has_feature(&fields, "columns"),
        .takes_packed = has_feature(&fields, "i8") && has_feature(&fields, "i4"),
        .takes_put_numbers = has_feature(&fields, "put_writer"),
    };
    embd__field_str(&fields, "loading", limits.loading, sizeof limits.loading, "");
    limits.start = (struct server_start){
        .start = embd__field_uint(&fields, "start", 0, UINT64_MAX - 1, 0),
        .history = embd__field_uint(&fields, "history", 0, UINT64_MAX - 1, 0),
        .epoch = embd__field_uint(&fields, "epoch", 0, UINT64_MAX - 1, 0),
    };
    read_version(&fields, limits.version);
    if (r->error->status == EMBD_OK)
        *out = limits;
}

static void on_retry(uv_timer_t *timer);

static void double_pause(struct link *link)
{
    link->next_try_ns = uv_hrtime() + (uint64_t)link->pause_ms * 1000000;
    uint64_t next = (uint64_t)link->pause_ms * 2;
    link->pause_ms =
        next > link->config.reconnect_max_ms ? link->config.reconnect_max_ms : (uint32_t)next;
}

static void *on_hello_bin(struct exchange *x, uint32_t index, uint32_t bytes)
{
    (void)index;
    embd__error_set(&x->error, EMBD_PROTOCOL, "the answer to hello has a bin of %u bytes", bytes);
    return NULL;
}

/* An epoch that a start has not passed is one of an older copy of the data directory. Servers of
 * earlier versions tell nothing, and nor do those that load. */
static void compare_starts(struct link *link, const struct server_start *now)
{
    const struct server_start before = link->seen;
    if (now->start == 0)
        return;
    link->seen = *now;
    if (before.start == 0 || before.start == now->start)
        return;
    bool is_older = now->epoch != 0 && now->epoch <= before.epoch;
    embd__count(&link->figures.restarts, 1);
    embd__count(&link->figures.rollbacks, now->history != before.history || is_older);
}

static void on_hello_answer(struct exchange *x, struct reader *reader)
{
    struct link *link = x->owner;
    struct server_limits limits;
    read_hello(reader, link->config.shard, link->config.n_shards, &limits);
    if (reader->error->status != EMBD_OK)
        return;
    link->frame_bytes = limits.frame_bytes;
    link->keys = limits.keys;
    link->max_inflight = limits.requests;
    link->takes_order = limits.takes_order;
    link->takes_columns = limits.takes_columns;
    link->takes_packed = limits.takes_packed;
    link->takes_put_numbers = limits.takes_put_numbers;
    link->is_loading = limits.loading[0] != '\0';
    compare_starts(link, &limits.start);
    memcpy(link->server_version, limits.version, sizeof link->server_version);
    link->last.status = EMBD_OK;
    if (link->is_loading)
        embd__error_set(&link->last, EMBD_LOADING, "%s", limits.loading);
}

void embd__connection_init(struct link *link)
{
    embd__msg_init(&link->hello.msg);
    link->hello.link = link;
    link->hello.owner = link;
    link->hello.msgid = HELLO_MSGID;
    link->hello.on_bin = on_hello_bin;
    link->hello.on_answer = on_hello_answer;
}

static int queue_hello(struct link *link)
{
    struct exchange *hello = &link->hello;
    if (write_hello(&hello->msg, link->config.credentials, link->config.client_id) != EMBD_OK)
        return hello->msg.status;
    hello->error.status = EMBD_OK;
    embd__queue_push_front(&link->queue, hello);
    return EMBD_OK;
}

/* The server is asked again whether it has loaded its tables. */
static void hello_later(struct link *link)
{
    uint32_t pause_ms = link->pause_ms;
    double_pause(link);
    link->next_try_ns = 0;
    uv_update_time(link->config.loop);
    uv_timer_start(&link->retry, on_retry, pause_ms, 0);
}

int embd__connection_on_hello(struct link *link, struct embd__error *e)
{
    int status = link->hello.error.status;
    if (status == EMBD_DRAINING)
        return embd__error_set(e, EMBD_UNREACHABLE, "%s", link->hello.error.text);
    if (status != EMBD_OK)
        return embd__error_set(e, status == EMBD_DENIED ? EMBD_DENIED : EMBD_PROTOCOL, "%s",
                               link->hello.error.text);
    bool was_loading = link->state == LINK_READY;
    if (!was_loading && !link->has_moved)
        uv_timer_stop(&link->retry);
    embd__count(&link->figures.connections, !was_loading);
    link->figures.is_connected = true;
    link->state = LINK_READY;
    link->attempt_ms = LINK_ATTEMPT_MS;
    if (!was_loading)
        link->pause_ms = link->config.reconnect_min_ms;
    if (link->is_loading) {
        hello_later(link);
        return EMBD_OK;
    }
    link->next_try_ns = 0;
    return EMBD_OK; /* on_ready goes on with what waits */
}

static void say_hello(struct link *link)
{
    link->state = LINK_HELLO;
    embd__receive_reset(&link->receiver);
    if (queue_hello(link) != EMBD_OK)
        embd__connection_lose(link, EMBD_UNREACHABLE, "no memory for the hello");
    else
        embd__link_send_queued(link);
}

/* Unless something is half sent, after which it will be time again. */
static void hello_again(struct link *link)
{
    const struct exchange *head = link->queue.head;
    if ((head != NULL && head->state == EXCHANGE_SENDING) || queue_hello(link) != EMBD_OK)
        hello_later(link);
    else
        embd__link_send_queued(link);
}

/* ---- connecting ---- */

void embd__connection_secure(struct link *link)
{
    int done = embd__channel_secure(&link->channel);
    if (done < 0) {
        embd__connection_lose_channel(link, done);
        return;
    }
    embd__link_block(link, embd__channel_is_pending(&link->channel));
    if (done > 0)
        say_hello(link);
}

static void on_connect(void *owner)
{
    struct link *link = owner;
    struct embd__error e = {0};
    struct credentials *credentials = link->config.credentials;
    int fd = embd__socket_fd(link->socket);
    link->state = LINK_SECURING;
    if (credentials != NULL && embd__credentials_may_send(credentials, fd, &e) != EMBD_OK)
        embd__connection_lose(link, e.status, e.text);
    else if (embd__channel_open(&link->channel, fd, credentials != NULL ? credentials->tls : NULL,
                                link->config.tls_host != NULL ? link->config.tls_host
                                                              : link->host.host,
                                &e) != EMBD_OK)
        embd__connection_lose(link, EMBD_UNREACHABLE, e.text);
    else
        embd__connection_secure(link);
}

static void on_connect_fail(void *owner, const char *why)
{
    embd__connection_lose(owner, EMBD_UNREACHABLE, why);
}

static const struct socket_events events = {on_connect, embd__link_on_ready, on_connect_fail};

void embd__connection_begin(struct link *link)
{
    struct embd__error e = {0};
    bool is_path = link->config.is_path;
    if (link->config.credentials != NULL)
        embd__credentials_refresh(link->config.credentials);
    link->state = LINK_CONNECTING;
    uv_update_time(link->config.loop);
    uv_timer_start(&link->retry, on_retry, link->attempt_ms, 0);
    link->is_blocked = false;
    link->max_inflight = LIMIT_REQUESTS_IN_FLIGHT;
    link->socket = embd__socket_connect(link->config.loop, &link->host,
                                        is_path ? link->config.address : NULL, &events, link, &e);
    if (link->socket == NULL)
        embd__connection_lose(link, EMBD_UNREACHABLE, e.text);
}

/* Neither refused nor greeted. */
static void give_attempt_up(struct link *link)
{
    char why[100];
    snprintf(why, sizeof why, "no answer to an attempt to connect within %u ms", link->attempt_ms);
    link->attempt_ms =
        link->attempt_ms * 2 < LINK_ATTEMPT_MOST_MS ? link->attempt_ms * 2 : LINK_ATTEMPT_MOST_MS;
    embd__connection_lose(link, EMBD_UNREACHABLE, why);
}

static void on_retry(uv_timer_t *timer)
{
    struct link *link = timer->data;
    if (link->state == LINK_WAITING)
        embd__connection_begin(link);
    else if (link->has_moved)
        embd__connection_lose(link, link->state == LINK_READY ? EMBD_CLOSED : EMBD_UNREACHABLE,
                              "the shard has moved");
    else if (link->state == LINK_READY && link->is_loading)
        hello_again(link);
    else if (link->state == LINK_CONNECTING || link->state == LINK_SECURING ||
             link->state == LINK_HELLO)
        give_attempt_up(link);
}

void embd__connection_want(struct link *link)
{
    uint64_t now = uv_hrtime();
    if (now >= link->next_try_ns) {
        embd__connection_begin(link);
        return;
    }
    link->state = LINK_WAITING;
    uv_update_time(link->config.loop);
    uv_timer_start(&link->retry, on_retry, (link->next_try_ns - now) / 1000000 + 1, 0);
}

/* ---- moving ---- */

bool embd__link_is_up(const struct link *link)
{
    return link->state == LINK_READY;
}

int embd__link_move(struct link *link, const char *address, bool is_path, struct embd__error *e)
{
    struct address host = link->host;
    if (!is_path && embd__address_read(address, strlen(address), &host, e) != EMBD_OK)
        return e->status;
    link->host = host;
    link->config.address = address;
    link->config.is_path = is_path;
    link->pause_ms = link->config.reconnect_min_ms;
    link->attempt_ms = LINK_ATTEMPT_MS;
    link->next_try_ns = 0;
    if (link->state == LINK_WAITING) {
        uv_timer_stop(&link->retry);
        embd__connection_begin(link);
    }
    return EMBD_OK;
}

void embd__link_leave(struct link *link)
{
    if (link->state == LINK_IDLE || link->state == LINK_WAITING || link->state == LINK_CLOSED)
        return;
    link->has_moved = true;
    uv_update_time(link->config.loop);
    uv_timer_start(&link->retry, on_retry, 0, 0);
}

/* ---- losing ---- */

void embd__connection_lose_channel(struct link *link, int error)
{
    if (error == -EPROTO && link->channel.error.status != EMBD_OK)
        embd__connection_lose(link, EMBD_PROTOCOL, link->channel.error.text);
    else
        embd__connection_lose(link, link->state == LINK_SECURING ? EMBD_UNREACHABLE : EMBD_CLOSED,
                              strerror(-error));
}

void embd__connection_forget_hello(struct link *link)
{
    if (link->queue.head == &link->hello)
        embd__queue_pop(&link->queue);
}

void embd__connection_lose(struct link *link, int status, const char *why)
{
    enum link_state was = link->state;
    char text[LIMIT_ERROR_TEXT];
    struct embd__error last = {0}; /* `why` may lie in the channel */
    embd__error_set(&last, status, "%s", why);
    embd__channel_close(&link->channel);
    embd__socket_close(link->socket);
    link->socket = NULL;
    link->is_blocked = link->is_loading = link->has_moved = false;
    link->state = LINK_IDLE;
    link->figures.is_connected = false;
    link->last = last;
    embd__connection_forget_hello(link);
    double_pause(link);
    if (status == EMBD_CLOSED)
        snprintf(text, sizeof text,
                 "connection closed during the call (%.300s); a push may or may not have "
                 "been applied",
                 link->last.text);
    else
        snprintf(text, sizeof text, "%s", link->last.text);
    embd__requeue_repeatable(link, status);
    embd__fail_begun(link, status, text);
    embd__fail_sent(link, status, text);
    /* One that let us in before may do so again: certificates and tokens are replaced. */
    bool is_hopeless = (status == EMBD_PROTOCOL || status == EMBD_DENIED) &&
                       atomic_load(&link->figures.connections) == 0;
    if ((was == LINK_HELLO || was == LINK_SECURING) && is_hopeless)
        embd__fail_queued(link, status, text);
    else if (was != LINK_READY)
        embd__fail_fast(link, EMBD_UNREACHABLE, link->last.text);
    if (link->queue.head != NULL && link->state == LINK_IDLE)
        embd__connection_want(link);
    if (was != LINK_READY && link->config.on_unreached != NULL)
        link->config.on_unreached(link->config.arg);
}
