/* connect.c - from one connection to the next: connecting, the TLS handshake, the greeting, what
 * the socket says, and losing it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "client/link/greeting.h"
#include "client/link/link_state.h"

/* ---- the greeting ---- */

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

static void on_hello_answer(struct exchange *x, struct reader *reader)
{
    struct link *link = x->owner;
    struct greeting greeting;
    embd__greeting_read(reader, link->config.shard, link->config.n_shards, &greeting);
    if (reader->error->status != EMBD_OK)
        return;
    link->frame_bytes = greeting.frame_bytes;
    link->keys = greeting.keys;
    link->max_flights = greeting.requests;
    link->is_loading = greeting.loading[0] != '\0';
    link->last.status = EMBD_OK;
    if (link->is_loading)
        embd__error_set(&link->last, EMBD_LOADING, "%s", greeting.loading);
}

void embd__connect_init(struct link *link)
{
    embd__msg_init(&link->hello.msg);
    link->hello.link = link;
    link->hello.owner = link;
    link->hello.msgid = HELLO_MSGID;
    link->hello.on_bin = on_hello_bin;
    link->hello.on_answer = on_hello_answer;
}

static int begin_greeting(struct link *link)
{
    struct exchange *hello = &link->hello;
    const struct identity *identity = link->config.identity;
    if (embd__greeting_write(&hello->msg, HELLO_MSGID, identity != NULL ? identity->token : NULL,
                             link->config.client_id) != EMBD_OK)
        return hello->msg.status;
    hello->error.status = EMBD_OK;
    embd__queue_push_front(&link->queue, hello);
    return EMBD_OK;
}

/* The server is asked again whether it has loaded its tables. */
static void greet_later(struct link *link)
{
    uint32_t pause_ms = link->pause_ms;
    double_pause(link);
    link->next_try_ns = 0;
    uv_update_time(link->config.loop);
    uv_timer_start(&link->retry, on_retry, pause_ms, 0);
}

int embd__connect_greeted(struct link *link, struct embd__error *e)
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
    link->state = LINK_READY;
    link->attempt_ms = LIVENESS_ATTEMPT_MS;
    if (!was_loading)
        link->pause_ms = link->config.reconnect_min_ms;
    if (link->is_loading) {
        greet_later(link);
        return EMBD_OK;
    }
    link->next_try_ns = 0;
    return EMBD_OK; /* on_ready goes on with what waits */
}

static void greet(struct link *link)
{
    link->state = LINK_GREETING;
    embd__receive_reset(&link->receiver);
    if (begin_greeting(link) != EMBD_OK)
        embd__connect_lose(link, EMBD_UNREACHABLE, "no memory to greet");
    else
        embd__sending_more(link);
}

/* Unless something is half sent, after which it will be time again. */
static void greet_again(struct link *link)
{
    const struct exchange *head = link->queue.head;
    if ((head != NULL && head->state == EXCHANGE_SENDING) || begin_greeting(link) != EMBD_OK)
        greet_later(link);
    else
        embd__sending_more(link);
}

/* ---- connecting ---- */

/* Goes on with the handshake; plain channels have none. */
static void secure(struct link *link)
{
    int done = embd__channel_secure(&link->channel);
    if (done < 0) {
        embd__connect_lose_channel(link, done);
        return;
    }
    embd__sending_block(link, embd__channel_is_pending(&link->channel));
    if (done > 0)
        greet(link);
}

static void on_connect(void *owner)
{
    struct link *link = owner;
    struct embd__error e = {0};
    struct identity *identity = link->config.identity;
    int fd = embd__socket_fd(link->socket);
    link->state = LINK_SECURING;
    if (identity != NULL && embd__identity_may_show(identity, fd, &e) != EMBD_OK)
        embd__connect_lose(link, e.status, e.text);
    else if (embd__channel_open(&link->channel, fd, identity != NULL ? identity->tls : NULL,
                                link->config.tls_host != NULL ? link->config.tls_host
                                                              : link->host.host,
                                &e) != EMBD_OK)
        embd__connect_lose(link, EMBD_UNREACHABLE, e.text);
    else
        secure(link);
}

static void on_connect_fail(void *owner, const char *why)
{
    embd__connect_lose(owner, EMBD_UNREACHABLE, why);
}

static void on_ready(void *owner, bool readable, bool writable)
{
    struct link *link = owner;
    struct embd__error e = {0};
    if (link->state == LINK_SECURING) {
        secure(link);
        return;
    }
    int flushed = writable ? embd__channel_flush(&link->channel) : 0;
    if (flushed < 0) {
        embd__connect_lose_channel(link, flushed);
        return;
    }
    if (readable)
        link->heard_ns = uv_now(link->config.loop) * 1000000;
    if (readable && embd__receive(&link->receiver, &link->channel, &e) != EMBD_OK) {
        embd__connect_lose(link, e.status, e.text);
        return;
    }
    if (link->queue.head != NULL && (writable || !link->is_blocked))
        embd__sending_more(link);
    else if (writable)
        embd__sending_block(link, embd__channel_is_pending(&link->channel));
}

static const struct socket_events events = {on_connect, on_ready, on_connect_fail};

void embd__connect_begin(struct link *link)
{
    struct embd__error e = {0};
    bool is_path = link->config.is_path;
    if (link->config.identity != NULL)
        embd__identity_look(link->config.identity);
    link->state = LINK_CONNECTING;
    uv_update_time(link->config.loop);
    uv_timer_start(&link->retry, on_retry, link->attempt_ms, 0);
    link->is_blocked = false;
    link->max_flights = LIMIT_REQUESTS_IN_FLIGHT;
    link->socket = embd__socket_connect(link->config.loop, &link->host,
                                        is_path ? link->config.address : NULL, &events, link, &e);
    if (link->socket == NULL)
        embd__connect_lose(link, EMBD_UNREACHABLE, e.text);
}

/* Neither refused nor greeted. */
static void give_attempt_up(struct link *link)
{
    char why[100];
    snprintf(why, sizeof why, "no answer to an attempt to connect within %u ms", link->attempt_ms);
    link->attempt_ms = link->attempt_ms * 2 < LIVENESS_ATTEMPT_MOST_MS ? link->attempt_ms * 2
                                                                       : LIVENESS_ATTEMPT_MOST_MS;
    embd__connect_lose(link, EMBD_UNREACHABLE, why);
}

static void on_retry(uv_timer_t *timer)
{
    struct link *link = timer->data;
    if (link->state == LINK_WAITING)
        embd__connect_begin(link);
    else if (link->has_moved)
        embd__connect_lose(link, link->state == LINK_READY ? EMBD_CLOSED : EMBD_UNREACHABLE,
                           "the shard has moved");
    else if (link->state == LINK_READY && link->is_loading)
        greet_again(link);
    else if (link->state == LINK_CONNECTING || link->state == LINK_SECURING ||
             link->state == LINK_GREETING)
        give_attempt_up(link);
}

void embd__connect_leave(struct link *link)
{
    link->has_moved = true;
    uv_update_time(link->config.loop);
    uv_timer_start(&link->retry, on_retry, 0, 0);
}

void embd__connect_want(struct link *link)
{
    uint64_t now = uv_hrtime();
    if (now >= link->next_try_ns) {
        embd__connect_begin(link);
        return;
    }
    link->state = LINK_WAITING;
    uv_update_time(link->config.loop);
    uv_timer_start(&link->retry, on_retry, (link->next_try_ns - now) / 1000000 + 1, 0);
}

/* ---- losing ---- */

void embd__connect_lose_channel(struct link *link, int error)
{
    if (error == -EPROTO && link->channel.error.status != EMBD_OK)
        embd__connect_lose(link, EMBD_PROTOCOL, link->channel.error.text);
    else
        embd__connect_lose(link, link->state == LINK_SECURING ? EMBD_UNREACHABLE : EMBD_CLOSED,
                           strerror(-error));
}

void embd__connect_forget_hello(struct link *link)
{
    if (link->queue.head == &link->hello)
        embd__queue_pop(&link->queue);
}

void embd__connect_lose(struct link *link, int status, const char *why)
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
    link->last = last;
    embd__connect_forget_hello(link);
    double_pause(link);
    if (status == EMBD_CLOSED)
        snprintf(text, sizeof text,
                 "connection closed during the call (%.300s); a push may or may not have "
                 "been applied",
                 link->last.text);
    else
        snprintf(text, sizeof text, "%s", link->last.text);
    embd__ends_keep_repeatable(link, status);
    embd__ends_begun(link, status, text);
    embd__ends_sent(link, status, text);
    bool is_hopeless = status == EMBD_PROTOCOL || status == EMBD_DENIED;
    if ((was == LINK_GREETING || was == LINK_SECURING) && is_hopeless)
        embd__ends_waiting(link, status, text);
    else if (was != LINK_READY)
        embd__ends_hasty(link, EMBD_UNREACHABLE, link->last.text);
    if (link->queue.head != NULL && link->state == LINK_IDLE)
        embd__connect_want(link);
    if (was != LINK_READY && link->config.on_unreached != NULL)
        link->config.on_unreached(link->config.arg);
}
