/* link.c - the happy path: the first exchange makes the link connect and greet; once the hello is
 * answered, exchanges are written in the order they came, up to LIMIT_REQUESTS_IN_FLIGHT unanswered
 * ones; answers are paired by msgid, in any order.
 *
 *     IDLE -> CONNECTING -> SECURING -> GREETING -> READY
 *       ^         |            |           |          |
 *       +-- WAITING <----------+-----------+----------+
 *
 * On the way back, lose(), exchanges that were sent fail, but for those that may be sent again; these
 * and the others wait for the next connection, until their deadlines. SECURING is the TLS handshake, where there is TLS.
 *
 * What can fail: connecting (again after a pause that doubles), the greeting (wrong version or
 * wrong shard: what waits fails), the connection (what was sent fails with EMBD_CLOSED), an answer
 * that is not what was asked for (fails alone where the stream is still in step), a deadline. An
 * exchange whose deadline passes while its answer is due is forgotten: the msgid stays known and
 * the answer is dropped. One that is half written takes the connection with it, because its bytes
 * are the caller's and a frame cannot be taken back. */
#include "link.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "address.h"
#include "channel.h"
#include "flights.h"
#include "greeting.h"
#include "receive.h"
#include "socket.h"

#define HELLO_MSGID     UINT32_MAX
#define PIECES_PER_SEND 64u

enum link_state {
    LINK_IDLE,
    LINK_WAITING,
    LINK_CONNECTING,
    LINK_SECURING,
    LINK_GREETING,
    LINK_READY,
    LINK_CLOSED
};

struct link {
    struct link_config config;
    struct address host; /* data links */
    enum link_state state;
    struct socket *socket;
    struct channel channel; /* over it, once it is connected */
    uv_timer_t retry, deadline;
    uint32_t open_handles;
    uint64_t next_try_ns;       /* not to connect before */
    uint32_t pause_ms;          /* after the next failure */
    uint64_t deadline_armed_ns; /* when the deadline timer goes off; UINT64_MAX: not armed */
    struct embd__error last;    /* why there is no connection */
    struct exchange hello;
    struct queue queue;
    bool is_loading; /* the server takes but few requests yet, and `last` says why */
    bool is_blocked; /* the socket takes no more bytes for now */
    struct flights flights;
    uint32_t max_flights;
    struct exchange *receiving; /* owns the destination of the bin that is coming in */
    struct receiver receiver;
    msgpack_zone zone;
    atomic_uint_fast64_t frame_bytes, keys; /* limits of the server; read on any thread */
};

static void lose(struct link *link, int status, const char *why);

/* ---- ends of exchanges ---- */

static void end(struct exchange *x)
{
    x->state = EXCHANGE_IDLE;
    x->next = NULL;
    x->on_end(x);
}

static void fail(struct exchange *x, int status, const char *why)
{
    x->error.status = EMBD_OK;
    embd__error_set(&x->error, status, "%s: %s", x->link->config.address, why);
    end(x);
}

/* An error found while reading an answer: puts the server's name before it. */
static void end_named(struct exchange *x)
{
    struct embd__error plain = x->error;
    if (plain.status == EMBD_OK)
        end(x);
    else
        fail(x, plain.status, plain.text);
}

/* No answer comes any more: of what was sent and counts but once nobody can say what became of it. */
static void give_up(struct exchange *x, int status, const char *why)
{
    bool is_out = x->was_begun || x->state == EXCHANGE_SENDING || x->state == EXCHANGE_SENT;
    char text[LIMIT_ERROR_TEXT];
    if (!x->may_repeat || !is_out) {
        fail(x, status, why);
        return;
    }
    snprintf(text, sizeof text, "the push was sent, and may or may not have been applied: %.300s", why);
    fail(x, EMBD_UNKNOWN, text);
}

static void fail_all(struct exchange *list, int status, const char *why)
{
    while (list != NULL) {
        struct exchange *x = list;
        list = x->next;
        give_up(x, status, why);
    }
}

static bool is_any(const struct exchange *x, uint64_t now)
{
    (void)x;
    (void)now;
    return true;
}

static bool goes_while_loading(const struct exchange *x, uint64_t now)
{
    (void)now;
    return x->while_loading || x->msgid == HELLO_MSGID || x->state == EXCHANGE_SENDING;
}

static bool is_fail_fast(const struct exchange *x, uint64_t now)
{
    (void)now;
    return x->fail_fast;
}

static bool was_begun(const struct exchange *x, uint64_t now)
{
    (void)now;
    return x->state == EXCHANGE_SENDING && !x->may_repeat;
}

static bool is_late(const struct exchange *x, uint64_t now)
{
    return x->msgid != HELLO_MSGID && x->deadline_ns <= now;
}

/* ---- what is in flight ---- */

static void fail_flights(struct link *link, int status, const char *why)
{
    struct flights flights = link->flights;
    link->flights.n = 0;
    link->receiving = NULL;
    for (uint32_t i = 0; i < flights.n; i++)
        if (flights.list[i].x != NULL && flights.list[i].x != &link->hello)
            give_up(flights.list[i].x, status, why);
}

static void repeat(struct link *link, struct exchange *x)
{
    x->was_begun = true;
    embd__queue_push_front(&link->queue, x);
}

/* What may be sent again goes before what was never sent, in the order it was sent in. */
static void requeue_repeatable(struct link *link)
{
    struct exchange *head = link->queue.head;
    if (head != NULL && head->state == EXCHANGE_SENDING && head->may_repeat)
        repeat(link, embd__queue_pop(&link->queue));
    for (uint32_t i = link->flights.n; i > 0; i--) {
        struct flight *flight = &link->flights.list[i - 1];
        if (flight->x == NULL || !flight->x->may_repeat)
            continue;
        repeat(link, flight->x);
        flight->x = NULL;
    }
}

/* ---- receiving ---- */

static int out_of_step(const struct frame_scanner *frame, struct embd__error *e)
{
    if (frame->type != 1)
        return embd__error_set(e, EMBD_PROTOCOL, "a message of type %d is no answer", frame->type);
    if (!frame->has_msgid)
        return embd__error_set(e, EMBD_PROTOCOL, "an answer without a msgid");
    return embd__error_set(e, EMBD_PROTOCOL, "an answer to msgid %u, which was not asked",
                           frame->msgid);
}

static int on_bin(void *owner, uint8_t **to_out, struct embd__error *e)
{
    struct link *link = owner;
    const struct frame_scanner *frame = &link->receiver.frame;
    const struct flight *flight = frame->type == 1 && frame->has_msgid
                                      ? embd__flights_find(&link->flights, frame->msgid)
                                      : NULL;
    if (flight == NULL)
        return out_of_step(frame, e);
    struct exchange *x = flight->x;
    *to_out = NULL;
    link->receiving = x;
    if (x == NULL || x->error.status != EMBD_OK)
        return EMBD_OK; /* dropped, the stream stays in step */
    *to_out = x->on_bin(x, frame->n_bins - 1, frame->bin_bytes);
    return EMBD_OK;
}

static void read_answer(struct link *link, struct exchange *x)
{
    struct reader reader;
    struct embd__error e = {0};
    if (x->error.status != EMBD_OK)
        return; /* a bin did not fit */
    if (embd__reader_init(&reader, &link->receiver.frame, &link->zone, &e) == EMBD_OK) {
        if (reader.answer_status == EMBD_OK)
            x->on_answer(x, &reader);
        else
            embd__error_set(&x->error, reader.answer_status, "%.*s", (int)reader.answer_text_bytes,
                            reader.answer_text);
    }
    if (e.status != EMBD_OK)
        embd__error_set(&x->error, EMBD_PROTOCOL, "%s", e.text);
}

static int finish_greeting(struct link *link, struct embd__error *e);

static int on_frame(void *owner, struct embd__error *e)
{
    struct link *link = owner;
    const struct frame_scanner *frame = &link->receiver.frame;
    link->receiving = NULL;
    if (frame->type == 2)
        return EMBD_OK; /* notifications are nobody's */
    struct flight *flight =
        frame->type == 1 ? embd__flights_find(&link->flights, frame->msgid) : NULL;
    if (flight == NULL)
        return out_of_step(frame, e);
    struct exchange *x = flight->x;
    if (x != NULL)
        read_answer(link, x);
    if (x != NULL && x->may_repeat && x->error.status == EMBD_DRAINING) {
        x->error.status = EMBD_OK;
        return embd__error_set(e, EMBD_CLOSED, "the server is shutting down");
    }
    embd__flights_remove(&link->flights, flight);
    if (x == NULL)
        return EMBD_OK;
    if (x == &link->hello)
        return finish_greeting(link, e);
    end_named(x);
    return EMBD_OK;
}

/* ---- sending ---- */

enum written { WRITTEN_ALL = 1, WRITTEN_FULL = 0, WRITTEN_HELD = 2 };

/* Of enum written (the socket is full; the rest is held), or a negative errno. */
static int write_exchange(struct link *link, struct exchange *x)
{
    struct iovec iov[PIECES_PER_SEND];
    x->state = EXCHANGE_SENDING;
    for (;;) {
        uint32_t n = embd__exchange_pieces(x, iov, PIECES_PER_SEND);
        if (n == 0 && x->held)
            return WRITTEN_HELD;
        ssize_t sent = embd__channel_send(&link->channel, iov, n);
        if (sent < 0)
            return sent == -EAGAIN ? WRITTEN_FULL : (int)sent;
        if (embd__exchange_sent(x, (uint64_t)sent))
            return WRITTEN_ALL;
    }
}

static void block(struct link *link, bool is_blocked)
{
    if (link->is_blocked != is_blocked)
        embd__socket_want_write(link->socket, is_blocked);
    link->is_blocked = is_blocked;
}

/* The channel has failed with a negative errno. */
static void lose_channel(struct link *link, int error)
{
    if (error == -EPROTO && link->channel.error.status != EMBD_OK)
        lose(link, EMBD_PROTOCOL, link->channel.error.text);
    else
        lose(link, link->state == LINK_SECURING ? EMBD_UNREACHABLE : EMBD_CLOSED, strerror(-error));
}

static void send_more(struct link *link)
{
    bool may_send = link->state == LINK_READY || link->state == LINK_GREETING;
    while (may_send && link->queue.head != NULL && link->flights.n < link->max_flights) {
        if (link->state == LINK_GREETING && link->queue.head != &link->hello)
            break;
        if (link->is_loading && !embd__queue_prefer(&link->queue, goes_while_loading, 0))
            break;
        int result = write_exchange(link, link->queue.head);
        if (result < 0) {
            lose_channel(link, result);
            return;
        }
        if (result == WRITTEN_HELD)
            return;
        if (result == WRITTEN_FULL) {
            block(link, true);
            return;
        }
        struct exchange *x = embd__queue_pop(&link->queue);
        x->state = EXCHANGE_SENT;
        embd__flights_add(&link->flights, x->msgid, x);
    }
    if (may_send)
        block(link, embd__channel_is_pending(&link->channel));
}

static void secure(struct link *link);

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
        lose_channel(link, flushed);
        return;
    }
    if (readable && embd__receive(&link->receiver, &link->channel, &e) != EMBD_OK) {
        lose(link, e.status, e.text);
        return;
    }
    if (link->queue.head != NULL && (writable || !link->is_blocked))
        send_more(link);
    else if (writable)
        block(link, embd__channel_is_pending(&link->channel));
}

/* ---- the greeting ---- */

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

static int begin_greeting(struct link *link)
{
    struct exchange *hello = &link->hello;
    if (embd__greeting_write(&hello->msg, HELLO_MSGID, link->config.token, link->config.client_id) != EMBD_OK)
        return hello->msg.status;
    hello->error.status = EMBD_OK;
    embd__queue_push_front(&link->queue, hello);
    return EMBD_OK;
}

static void on_retry(uv_timer_t *timer);
static void double_pause(struct link *link);

/* The server is asked again whether it has loaded its tables. */
static void greet_later(struct link *link)
{
    uint32_t pause_ms = link->pause_ms;
    double_pause(link);
    link->next_try_ns = 0;
    uv_update_time(link->config.loop);
    uv_timer_start(&link->retry, on_retry, pause_ms, 0);
}

static int finish_greeting(struct link *link, struct embd__error *e)
{
    int status = link->hello.error.status;
    if (status == EMBD_DRAINING)
        return embd__error_set(e, EMBD_UNREACHABLE, "%s", link->hello.error.text);
    if (status != EMBD_OK)
        return embd__error_set(e, status == EMBD_DENIED ? EMBD_DENIED : EMBD_PROTOCOL, "%s",
                               link->hello.error.text);
    bool was_loading = link->state == LINK_READY;
    link->state = LINK_READY;
    if (!was_loading)
        link->pause_ms = link->config.reconnect_min_ms;
    if (link->is_loading) {
        greet_later(link);
        return EMBD_OK;
    }
    link->next_try_ns = 0;
    return EMBD_OK; /* on_ready goes on with what waits */
}

/* ---- connecting and losing ---- */

static void greet(struct link *link)
{
    link->state = LINK_GREETING;
    embd__receive_reset(&link->receiver);
    if (begin_greeting(link) != EMBD_OK)
        lose(link, EMBD_UNREACHABLE, "no memory to greet");
    else
        send_more(link);
}

/* Unless something is half sent, after which it will be time again. */
static void greet_again(struct link *link)
{
    const struct exchange *head = link->queue.head;
    if ((head != NULL && head->state == EXCHANGE_SENDING) || begin_greeting(link) != EMBD_OK)
        greet_later(link);
    else
        send_more(link);
}

/* Goes on with the handshake; plain channels have none. */
static void secure(struct link *link)
{
    int done = embd__channel_secure(&link->channel);
    if (done < 0) {
        lose_channel(link, done);
        return;
    }
    block(link, embd__channel_is_pending(&link->channel));
    if (done > 0)
        greet(link);
}

static void on_connect(void *owner)
{
    struct link *link = owner;
    struct embd__error e = {0};
    link->state = LINK_SECURING;
    if (embd__channel_open(&link->channel, embd__socket_fd(link->socket), link->config.tls,
                           link->config.tls_host != NULL ? link->config.tls_host : link->host.host,
                           &e) != EMBD_OK)
        lose(link, EMBD_UNREACHABLE, e.text);
    else
        secure(link);
}

static void on_connect_fail(void *owner, const char *why)
{
    lose(owner, EMBD_UNREACHABLE, why);
}

static const struct socket_events events = {on_connect, on_ready, on_connect_fail};

static void begin_connect(struct link *link)
{
    struct embd__error e = {0};
    bool is_path = link->config.is_path;
    link->state = LINK_CONNECTING;
    link->is_blocked = false;
    link->max_flights = LIMIT_REQUESTS_IN_FLIGHT;
    link->socket = embd__socket_connect(link->config.loop, &link->host,
                                        is_path ? link->config.address : NULL, &events, link, &e);
    if (link->socket == NULL)
        lose(link, EMBD_UNREACHABLE, e.text);
}

static void on_retry(uv_timer_t *timer)
{
    struct link *link = timer->data;
    if (link->state == LINK_WAITING)
        begin_connect(link);
    else if (link->state == LINK_READY && link->is_loading)
        greet_again(link);
}

/* Connects now, or when the pause after the last failure is over. */
static void want_connection(struct link *link)
{
    uint64_t now = uv_hrtime();
    if (now >= link->next_try_ns) {
        begin_connect(link);
        return;
    }
    link->state = LINK_WAITING;
    uv_update_time(link->config.loop);
    uv_timer_start(&link->retry, on_retry, (link->next_try_ns - now) / 1000000 + 1, 0);
}

static void double_pause(struct link *link)
{
    link->next_try_ns = uv_hrtime() + (uint64_t)link->pause_ms * 1000000;
    uint64_t next = (uint64_t)link->pause_ms * 2;
    link->pause_ms =
        next > link->config.reconnect_max_ms ? link->config.reconnect_max_ms : (uint32_t)next;
}

static void forget_hello(struct link *link)
{
    if (link->queue.head == &link->hello)
        embd__queue_pop(&link->queue);
}

/* No connection any more: fails what was sent, keeps what was not. */
static void lose(struct link *link, int status, const char *why)
{
    enum link_state was = link->state;
    char text[LIMIT_ERROR_TEXT];
    struct embd__error last = {0}; /* `why` may lie in the channel */
    embd__error_set(&last, status, "%s", why);
    embd__channel_close(&link->channel);
    embd__socket_close(link->socket);
    link->socket = NULL;
    link->is_blocked = link->is_loading = false;
    link->state = LINK_IDLE;
    link->last = last;
    forget_hello(link);
    double_pause(link);
    if (status == EMBD_CLOSED)
        snprintf(text, sizeof text,
                 "connection closed during the call (%.300s); a push may or may not have "
                 "been applied",
                 link->last.text);
    else
        snprintf(text, sizeof text, "%s", link->last.text);
    requeue_repeatable(link);
    fail_all(embd__queue_take(&link->queue, was_begun, 0), status, text);
    fail_flights(link, status, text);
    bool is_hopeless = status == EMBD_PROTOCOL || status == EMBD_DENIED;
    if ((was == LINK_GREETING || was == LINK_SECURING) && is_hopeless)
        fail_all(embd__queue_take(&link->queue, is_any, 0), status, text);
    else if (was != LINK_READY)
        fail_all(embd__queue_take(&link->queue, is_fail_fast, 0), EMBD_UNREACHABLE,
                 link->last.text);
    if (link->queue.head != NULL && link->state == LINK_IDLE)
        want_connection(link);
    if (was != LINK_READY && link->config.on_unreached != NULL)
        link->config.on_unreached(link->config.arg);
}

/* ---- deadlines ---- */

static void fail_late(struct link *link, struct exchange *x)
{
    char text[LIMIT_ERROR_TEXT];
    bool is_loading = link->is_loading && x->state == EXCHANGE_QUEUED;
    bool is_up =
        link->state == LINK_READY || link->state == LINK_GREETING || x->state != EXCHANGE_QUEUED;
    if (is_loading)
        snprintf(text, sizeof text, "not ready within the deadline of %u ms: %.300s",
                 x->deadline_ms, link->last.text);
    else if (is_up)
        snprintf(text, sizeof text, "no answer within the deadline of %u ms", x->deadline_ms);
    else
        snprintf(text, sizeof text, "not reached within the deadline of %u ms: %.300s",
                 x->deadline_ms,
                 link->last.status != EMBD_OK ? link->last.text : "still connecting");
    give_up(x, is_loading ? EMBD_LOADING : is_up ? EMBD_DEADLINE : EMBD_UNREACHABLE, text);
}

static void expire_queue(struct link *link, uint64_t now)
{
    struct exchange *late = embd__queue_take(&link->queue, is_late, now);
    while (late != NULL) {
        struct exchange *x = late;
        late = x->next;
        fail_late(link, x);
    }
}

static void expire_flights(struct link *link, uint64_t now)
{
    for (uint32_t i = 0; i < link->flights.n; i++) {
        struct exchange *x = link->flights.list[i].x;
        if (x == NULL || !is_late(x, now))
            continue;
        link->flights.list[i].x = NULL;
        if (link->receiving == x) {
            link->receiving = NULL;
            link->receiver.to = NULL;
        }
        fail_late(link, x);
    }
}

static uint64_t earlier(uint64_t when, const struct link *link, const struct exchange *x)
{
    return x != NULL && x != &link->hello && x->deadline_ns < when ? x->deadline_ns : when;
}

static void on_deadline(uv_timer_t *timer);

static void arm_deadline(struct link *link, uint64_t when)
{
    link->deadline_armed_ns = when;
    if (when == UINT64_MAX)
        return;
    uint64_t now = uv_hrtime();
    uv_update_time(link->config.loop);
    uv_timer_start(&link->deadline, on_deadline, when <= now ? 0 : (when - now) / 1000000 + 1, 0);
}

/* A half-written message, or a greeting without answer, cannot be waited out: the connection goes.
 */
static bool must_lose(const struct link *link, uint64_t now)
{
    const struct exchange *head = link->queue.head;
    if (head != NULL && head->state == EXCHANGE_SENDING && head != &link->hello)
        return is_late(head, now);
    if (link->state != LINK_CONNECTING && link->state != LINK_SECURING &&
        link->state != LINK_GREETING)
        return false;
    for (; head != NULL; head = head->next)
        if (is_late(head, now))
            return true;
    return false;
}

static void on_deadline(uv_timer_t *timer)
{
    struct link *link = timer->data;
    uint64_t now = uv_hrtime(), when = UINT64_MAX;
    bool losing = must_lose(link, now);
    expire_queue(link, now);
    expire_flights(link, now);
    if (losing)
        lose(link, EMBD_CLOSED, "given up after a deadline had passed");
    for (const struct exchange *x = link->queue.head; x != NULL; x = x->next)
        when = earlier(when, link, x);
    for (uint32_t i = 0; i < link->flights.n; i++)
        when = earlier(when, link, link->flights.list[i].x);
    arm_deadline(link, when);
}

/* ---- from outside ---- */

void embd__link_send(struct link *link, struct exchange *x)
{
    embd__queue_push(&link->queue, x);
    if (x->deadline_ns < link->deadline_armed_ns)
        arm_deadline(link, x->deadline_ns);
    bool is_urgent = link->next_try_ns >= x->deadline_ns; /* the pause would outlast it */
    if (is_urgent && (link->state == LINK_IDLE || link->state == LINK_WAITING))
        begin_connect(link);
    else if (link->state == LINK_IDLE)
        want_connection(link);
    else if (!link->is_blocked)
        send_more(link);
}

void embd__link_go_on(struct exchange *x)
{
    x->held = 0;
    if (x->state != EXCHANGE_IDLE && !x->link->is_blocked)
        send_more(x->link);
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct link *link = handle->data;
    if (--link->open_handles > 0)
        return;
    embd__receive_fini(&link->receiver);
    embd__msg_fini(&link->hello.msg);
    msgpack_zone_destroy(&link->zone);
    free(link);
}

static int init_parts(struct link *link, struct embd__error *e)
{
    const struct link_config *config = &link->config;
    if (!config->is_path) {
        int status = embd__address_read(config->address, strlen(config->address), &link->host, e);
        if (status != EMBD_OK)
            return status;
    }
    if (!msgpack_zone_init(&link->zone, 1024))
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for a link");
    int status = embd__receive_init(&link->receiver, e);
    if (status != EMBD_OK)
        msgpack_zone_destroy(&link->zone);
    return status;
}

int embd__link_open(const struct link_config *config, struct link **out, struct embd__error *e)
{
    struct link *link = calloc(1, sizeof *link);
    if (link == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for a link");
    link->config = *config;
    int status = init_parts(link, e);
    if (status != EMBD_OK) {
        free(link);
        return status;
    }
    embd__queue_init(&link->queue);
    link->pause_ms = config->reconnect_min_ms;
    link->deadline_armed_ns = UINT64_MAX;
    link->frame_bytes = LIMIT_FRAME_BYTES;
    link->keys = LIMIT_KEYS;
    link->receiver.owner = link;
    link->receiver.on_bin = on_bin;
    link->receiver.on_frame = on_frame;
    embd__msg_init(&link->hello.msg);
    link->hello.link = link;
    link->hello.owner = link;
    link->hello.msgid = HELLO_MSGID;
    link->hello.on_bin = on_hello_bin;
    link->hello.on_answer = on_hello_answer;
    uv_timer_init(config->loop, &link->retry);
    uv_timer_init(config->loop, &link->deadline);
    link->retry.data = link->deadline.data = link;
    link->open_handles = 2;
    *out = link;
    return EMBD_OK;
}

void embd__link_close(struct link *link)
{
    embd__channel_close(&link->channel);
    embd__socket_close(link->socket);
    link->socket = NULL;
    link->state = LINK_CLOSED;
    forget_hello(link);
    fail_all(embd__queue_take(&link->queue, is_any, 0), EMBD_CLOSED, "the client was closed");
    fail_flights(link, EMBD_CLOSED, "the client was closed");
    uv_close((uv_handle_t *)&link->retry, on_timer_closed);
    uv_close((uv_handle_t *)&link->deadline, on_timer_closed);
}

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
    link->next_try_ns = 0;
    if (link->state == LINK_WAITING) {
        uv_timer_stop(&link->retry);
        begin_connect(link);
    }
    return EMBD_OK;
}

const char *embd__link_address(const struct link *link)
{
    return link->config.address;
}

uint64_t embd__link_frame_bytes(const struct link *link)
{
    return link->frame_bytes;
}

uint64_t embd__link_keys(const struct link *link)
{
    return link->keys;
}
