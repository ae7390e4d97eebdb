/* connection.c - from one connection to the next: connecting, the TLS handshake, hello, and losing
 * the connection. Hello finds out a server of another protocol version, or another shard than the
 * map of the cluster named at this address, before anything is asked of it.
 *
 * Where hello over TCP names a data socket on this host (local.h), the link turns to that: it
 * closes TCP, connects and says hello there. If that fails before it is let in, it goes back to
 * TCP, and stays there until this connection is lost. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "client/io/hello.h"
#include "client/io/link_internal.h"
#include "proto/tls/tls.h"

/* ---- hello ---- */

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
    bool lacks = now->history != before.history || is_older, lacks_replicated = lacks;
    if (before.promoted != 0 && now->promoted > before.promoted) { /* another directory's */
        lacks = now->kept > before.promoted;
        lacks_replicated = now->kept_replicated > before.promoted;
    }
    embd__count(&link->figures.restarts, 1);
    embd__count(&link->figures.rollbacks, lacks);
    embd__count(&link->figures.replicated_rollbacks, lacks_replicated);
}

static void on_hello_answer(struct exchange *x, struct reader *reader)
{
    struct link *link = x->owner;
    struct server_limits limits;
    embd__hello_read(reader, link->config.shard, link->config.n_shards, &limits);
    if (reader->error->status != EMBD_OK)
        return;
    link->terms.frame_bytes = limits.frame_bytes;
    link->terms.push_bytes = limits.push_bytes;
    link->terms.keys = limits.keys;
    link->max_inflight = limits.requests;
    link->terms.takes_order = limits.takes_order;
    link->terms.takes_columns = limits.takes_columns;
    link->terms.takes_packed = limits.takes_packed;
    link->terms.takes_put_numbers = limits.takes_put_numbers;
    link->terms.takes_rounds_again = limits.takes_rounds_again;
    link->is_loading = limits.loading[0] != '\0';
    link->share_most = limits.share_most;
    if (!link->is_local || link->config.dialer != NULL) {
        link->place = limits.place;
        link->takes_share = limits.takes_share;
        link->takes_ring = limits.takes_ring;
    }
    if (!link->is_by_trunk)
        link->process = limits.process;
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
    embd__sharing_init(link);
}

static int queue_hello(struct link *link)
{
    struct exchange *hello = &link->hello;
    bool is_first = link->state == LINK_HELLO;
    bool shares = is_first && embd__sharing_is_wanted(link, SHARING_MEMORY);
    bool rings = is_first && embd__sharing_is_wanted(link, SHARING_RING);
    if (embd__hello_write(&hello->msg, link->config.credentials, link->config.client_id, shares,
                          rings) != EMBD_OK)
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

/* It loads its tables, or follows another server, which may be found elsewhere. */
static void wait_for_server(struct link *link)
{
    hello_later(link);
    if (link->config.on_unreached != NULL)
        link->config.on_unreached(link->config.arg);
}

/* Of EMBD_OK (this connection will do), 1 (the data socket is better) or EMBD_UNREACHABLE: it is
 * asked for, and cannot be taken. */
static int compare_ways(struct link *link, struct embd__error *e)
{
    struct embd__error why = {0};
    if (link->config.transport == TRANSPORT_TCP || link->config.is_path ||
        link->state != LINK_HELLO || link->is_local || link->stays_on_tcp)
        return EMBD_OK;
    if (embd__local_find(&link->place, &link->place_owner, &why) == EMBD_OK)
        return 1;
    return link->config.transport == TRANSPORT_ANY
               ? EMBD_OK
               : embd__error_set(e, EMBD_UNREACHABLE, "EMBD_TRANSPORT is local: %s", why.text);
}

/* The same for a trunk. */
static bool suits_trunk(const struct link *link)
{
    return link->state == LINK_HELLO && !link->is_by_trunk && !link->stays_direct &&
           embd__trunks_suit(link->config.trunks, &link->process, link->config.n_shards);
}

/* Not from within a callback of the socket that is given up. */
static int turn_soon(struct link *link)
{
    link->is_turning = true;
    uv_update_time(link->config.loop);
    uv_timer_start(&link->retry, on_retry, 0, 0);
    return EMBD_OK;
}

int embd__connection_on_hello(struct link *link, struct embd__error *e)
{
    int status = link->hello.error.status;
    if (status == EMBD_DRAINING || status == EMBD_BUSY)
        return embd__error_set(e, EMBD_UNREACHABLE, "%s", link->hello.error.text);
    if (status != EMBD_OK)
        return embd__error_set(e, status == EMBD_DENIED ? EMBD_DENIED : EMBD_PROTOCOL, "%s",
                               link->hello.error.text);
    if (suits_trunk(link)) {
        link->is_by_trunk = true;
        return turn_soon(link);
    }
    status = link->is_by_trunk ? EMBD_OK : compare_ways(link, e);
    if (status != EMBD_OK)
        return status < 0 ? status : turn_soon(link);
    if (link->state != LINK_HELLO || !embd__sharing_begin(link))
        embd__connection_ready(link);
    return EMBD_OK; /* on_ready goes on with what waits */
}

void embd__connection_ready(struct link *link)
{
    bool was_loading = link->state == LINK_READY;
    if (!was_loading && !link->has_moved)
        uv_timer_stop(&link->retry);
    embd__count(&link->figures.connections, !was_loading);
    link->figures.is_connected = true;
    link->figures.is_local = link->is_local;
    link->state = LINK_READY;
    link->attempt_ms = LINK_ATTEMPT_MS;
    if (!was_loading)
        link->pause_ms = link->config.reconnect_min_ms;
    link->next_try_ns = 0;
    if (link->is_loading)
        wait_for_server(link);
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

/* As which TLS knows the server. */
static const char *tls_host(const struct link *link)
{
    return link->config.tls_host != NULL ? link->config.tls_host : link->host.host;
}

static void on_connect(void *owner)
{
    struct link *link = owner;
    struct embd__error e = {0};
    struct credentials *credentials = link->config.credentials;
    int fd = link->is_by_trunk ? embd__trunk_fd(&link->line) : embd__socket_fd(link->socket);
    bool is_plain = link->is_local || link->config.dialer != NULL || link->is_by_trunk;
    struct tls_context *tls = credentials != NULL && !is_plain ? credentials->tls : NULL;
    link->state = LINK_SECURING;
    bool is_file = link->is_local && link->config.dialer == NULL;
    if (is_file && !embd__local_is_of(fd, link->place_owner))
        embd__connection_lose(link, EMBD_UNREACHABLE, "the data socket is another user's");
    else if (credentials != NULL && embd__credentials_may_send(credentials, fd, &e) != EMBD_OK)
        embd__connection_lose(link, e.status, e.text);
    else if (embd__channel_open(&link->channel, fd, tls, tls_host(link), &e) != EMBD_OK)
        embd__connection_lose(link, EMBD_UNREACHABLE, e.text);
    else {
        link->channel.line = link->is_by_trunk ? &link->line : NULL;
        embd__connection_secure(link);
    }
}

static void on_connect_fail(void *owner, const char *why)
{
    embd__connection_lose(owner, EMBD_UNREACHABLE, why);
}

static void on_line_lost(void *owner, int status, const char *why)
{
    embd__connection_lose(owner, status, why);
}

static const struct trunk_line_events line_events = {
    on_connect, embd__link_on_ready, embd__link_on_soon, embd__link_on_bytes, on_line_lost};

static const struct socket_events events = {on_connect, embd__link_on_ready, on_connect_fail};

/* A connection of its own, if the trunk cannot be opened. */
static void begin_line(struct link *link)
{
    struct embd__error e = {0};
    const struct credentials *credentials = link->config.credentials;
    bool has_tls = credentials != NULL && credentials->tls != NULL;
    link->line.events = &line_events;
    link->line.owner = link;
    link->line.shard = link->config.shard;
    int status = embd__trunk_line_open(link->config.trunks, &link->line, link->process.process,
                                       has_tls ? tls_host(link) : "", &link->config, &e);
    if (status != EMBD_OK)
        embd__connection_lose(link, EMBD_UNREACHABLE, e.text);
}

void embd__connection_begin(struct link *link)
{
    struct embd__error e = {0};
    const struct link_config *config = &link->config;
    if (config->dialer != NULL && !config->is_admin)
        link->is_local = link->takes_share = link->takes_ring = true; /* it is of this release */
    const struct socket_place place = {
        .address = &link->host,
        .path = config->is_path  ? config->address
                : link->is_local ? link->place.path
                                 : NULL,
        .dialer = config->dialer,
        .shard = config->shard != SHARD_ANY ? config->shard : 0,
        .is_admin = config->is_admin,
    };
    if (link->config.credentials != NULL)
        embd__credentials_refresh(link->config.credentials);
    link->state = LINK_CONNECTING;
    uv_update_time(link->config.loop);
    uv_timer_start(&link->retry, on_retry, link->attempt_ms, 0);
    link->is_blocked = false;
    link->max_inflight = LIMIT_REQUESTS_IN_FLIGHT;
    if (link->is_by_trunk) {
        begin_line(link);
        return;
    }
    link->socket = embd__socket_connect(config->loop, &place, &events, link, &e);
    if (link->socket == NULL)
        embd__connection_lose(link, EMBD_UNREACHABLE, e.text);
}

static void close_socket(struct link *link)
{
    embd__rings_unwatch(link);
    embd__channel_close(&link->channel);
    embd__channel_close_ring(&link->ring); /* one that was asked for */
    embd__trunk_line_close(&link->line);
    embd__socket_close(link->socket);
    link->socket = NULL;
    link->is_blocked = link->is_loading = link->is_turning = link->is_leaving = false;
    link->terms.shares = false;
}

static void turn(struct link *link)
{
    close_socket(link);
    link->is_local = !link->is_by_trunk;
    embd__connection_begin(link);
}

/* The data socket, or the trunk, did not let us in: back to TCP. */
static bool turn_back(struct link *link)
{
    bool has_tcp = link->config.dialer == NULL && link->config.transport != TRANSPORT_LOCAL;
    bool is_turned = link->is_by_trunk || (link->is_local && has_tcp);
    if (!is_turned || link->is_turning || link->state == LINK_READY || link->has_moved)
        return false;
    embd__connection_forget_hello(link);
    link->inflight.n = 0; /* but for the hello nothing was sent */
    close_socket(link);
    if (link->is_by_trunk)
        link->stays_direct = true;
    else
        link->stays_on_tcp = true;
    link->is_local = link->is_by_trunk = false;
    embd__connection_begin(link);
    return true;
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
    else if (link->is_turning)
        turn(link);
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

bool embd__link_is_loading(const struct link *link)
{
    return link->is_loading;
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
    link->receiver.has_ended |= error == -EPIPE || error == -ECONNRESET;
    const struct embd__error *e = embd__channel_error(&link->channel);
    if (error == -EPROTO && e->status != EMBD_OK)
        embd__connection_lose(link, EMBD_PROTOCOL, e->text);
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
    if (turn_back(link))
        return;
    if (!link->receiver.has_ended)
        embd__loosen(link);
    struct embd__error last = {0}; /* `why` may lie in the channel */
    embd__error_set(&last, status, "%s", why);
    close_socket(link);
    link->has_moved = link->is_local = link->stays_on_tcp = false;
    link->is_by_trunk = link->stays_direct = false;
    link->state = LINK_IDLE;
    link->figures.is_connected = link->figures.is_local = false;
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
    bool has_ended = link->config.dialer != NULL && was == LINK_CONNECTING; /* the only one */
    if (((was == LINK_HELLO || was == LINK_SECURING) && is_hopeless) || has_ended)
        embd__fail_queued(link, status, text);
    else if (was != LINK_READY)
        embd__fail_unreached(link);
    if (link->queue.head != NULL && link->state == LINK_IDLE)
        embd__connection_want(link);
    if (was != LINK_READY && link->config.on_unreached != NULL)
        link->config.on_unreached(link->config.arg);
}
