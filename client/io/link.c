/* link.c - the way of an exchange: it is queued, its pieces are written as far as the socket takes
 * them, it waits in flight, its answer is paired with it by msgid and read, it ends.
 *
 * The first exchange makes the link connect and say hello. Once that is answered, exchanges are
 * written in the order they came, up to LIMIT_REQUESTS_IN_FLIGHT unanswered ones. Answers may come
 * in any order.
 *
 * IDLE -> CONNECTING -> SECURING -> HELLO -> READY; from HELLO over TCP to CONNECTING again where
 * the server has a data socket on this host (connection.c). From CONNECTING, SECURING, HELLO and
 * READY a failure leads to WAITING, and from there to CONNECTING again. Exchanges that were sent
 * fail then, except those that may be sent again; these and the unsent ones wait for the next
 * connection, until their deadlines. SECURING is the TLS handshake, if TLS is used.
 *
 * What can fail (failures.c): connecting (again after a pause that doubles), the hello (wrong
 * version or wrong shard: waiting exchanges fail), the connection (sent exchanges fail with
 * EMBD_CLOSED), an answer that does not match its request (it fails alone if the stream is still in
 * step), a deadline. An exchange whose deadline passes while its answer is due is forgotten: the
 * msgid stays known and the answer is dropped. One that is half written takes the connection with
 * it, because its bytes are the caller's and a frame cannot be taken back. */
#include "client/io/link.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/io/link_internal.h"
#include "client/io/pages.h"
#include "proto/assert.h"

#define PIECES_PER_SEND 64u
/* A pull is sent when fewer bytes of answers are still to come: what a fast wire carries while a
 * server begins to answer. */
#define ANSWERS_DUE_BYTES (4u << 20)
#define NOTICES_MOST      256u /* in a row: a server says once why it turns a client away */

/* ---- sending ---- */

/* The next pieces that can be sent, `max` at most; their number, 0 when the rest is held. */
static uint32_t next_pieces(const struct exchange *x, struct iovec *iov, uint32_t max)
{
    uint32_t n = 0, n_pieces = x->held ? x->held : embd__msg_n_pieces(&x->msg);
    uint64_t skip = x->piece_sent;
    for (uint32_t i = x->piece; i < n_pieces && n < max; i++, skip = 0) {
        struct msg_piece piece = embd__msg_piece(&x->msg, i);
        if (piece.bytes > skip)
            iov[n++] = (struct iovec){(uint8_t *)(uintptr_t)piece.data + skip,
                                      (size_t)(piece.bytes - skip)};
    }
    return n;
}

/* `bytes` more of it are sent; true when all are. */
static bool note_sent(struct exchange *x, uint64_t bytes)
{
    uint32_t n_pieces = embd__msg_n_pieces(&x->msg);
    while (x->piece < n_pieces) {
        uint64_t left = embd__msg_piece(&x->msg, x->piece).bytes - x->piece_sent;
        if (bytes < left) {
            x->piece_sent += bytes;
            return false;
        }
        bytes -= left;
        x->piece++;
        x->piece_sent = 0;
    }
    EMBD_ASSERT(bytes == 0);
    return true;
}

enum written { WRITTEN_ALL = 1, WRITTEN_FULL = 0, WRITTEN_HELD = 2 };

/* Of enum written (the socket is full; the rest is held), or a negative errno. */
static int write_exchange(struct link *link, struct exchange *x)
{
    struct iovec iov[PIECES_PER_SEND];
    x->state = EXCHANGE_SENDING;
    for (;;) {
        uint32_t n = next_pieces(x, iov, PIECES_PER_SEND);
        if (n == 0 && x->held)
            return WRITTEN_HELD;
        ssize_t sent = embd__channel_send(&link->channel, iov, n);
        if (sent < 0)
            return sent == -EAGAIN ? WRITTEN_FULL : (int)sent;
        embd__count(&link->figures.bytes_sent, (uint64_t)sent);
        if (note_sent(x, (uint64_t)sent))
            return WRITTEN_ALL;
    }
}

void embd__link_block(struct link *link, bool is_blocked)
{
    bool is_socket = link->channel.ring == NULL && link->channel.line == NULL;
    if (link->is_blocked != is_blocked && is_socket)
        embd__socket_want_write(link->socket, is_blocked);
    link->is_blocked = is_blocked;
}

/* Bytes of answers that are still to come; of those that nobody waits for none. */
static uint64_t bytes_due(const struct link *link)
{
    const struct receiver *r = &link->receiver;
    uint64_t due = 0, come = r->frame.frame_bytes - r->left;
    for (uint32_t i = 0; i < link->inflight.n; i++)
        due += link->inflight.list[i].x != NULL ? link->inflight.list[i].answer_bytes : 0;
    return due > come ? due - come : 0;
}

/* Answers that the client has no time for yet would fill the kernel's buffers, and leave the cache
 * before they are read. */
static bool must_wait(const struct link *link, const struct exchange *x)
{
    return x->answer_bytes > 0 && x->state == EXCHANGE_QUEUED &&
           bytes_due(link) >= ANSWERS_DUE_BYTES;
}

/* A push of a round may have been made, and the server of now would make it once more. */
static bool is_unknown_again(const struct link *link, const struct exchange *x)
{
    return x->is_of_round && x->was_begun && !link->terms.takes_rounds_again;
}

void embd__link_send_queued(struct link *link)
{
    bool may_send = (link->state == LINK_READY && !link->is_leaving) || link->state == LINK_HELLO;
    while (may_send && link->queue.head != NULL && link->inflight.n < link->max_inflight) {
        if (link->state == LINK_HELLO && link->queue.head != &link->hello)
            break;
        if (link->is_loading && !embd__queue_prefer_while_loading(&link->queue))
            break;
        if (must_wait(link, link->queue.head))
            break;
        if (link->queue.head->is_shared && !link->terms.shares) {
            embd__fail_unshared(link);
            continue;
        }
        if (is_unknown_again(link, link->queue.head)) {
            embd__fail_not_again(link);
            continue;
        }
        int result = write_exchange(link, link->queue.head);
        if (result < 0) {
            embd__connection_lose_channel(link, result);
            return;
        }
        if (link->channel.ring != NULL)
            embd__rings_watch(link->config.rings, link);
        if (result == WRITTEN_HELD)
            return;
        if (result == WRITTEN_FULL) {
            embd__link_block(link, true);
            return;
        }
        struct exchange *x = embd__queue_pop(&link->queue);
        x->state = EXCHANGE_SENT;
        EMBD_ASSERT(link->inflight.n < LIMIT_REQUESTS_IN_FLIGHT);
        link->inflight.list[link->inflight.n++] = (struct pending){x->msgid, x->answer_bytes, x};
    }
    if (may_send)
        embd__link_block(link, embd__channel_is_pending(&link->channel));
}

void embd__link_send(struct link *link, struct exchange *x)
{
    embd__queue_push(&link->queue, x);
    if (link->state == LINK_CLOSED) {
        embd__fail_queued(link, EMBD_MOVED, link->last.text);
        return;
    }
    if (x->deadline_ns < link->deadline_armed_ns)
        embd__deadline_arm(link, x->deadline_ns);
    bool is_urgent = link->next_try_ns >= x->deadline_ns; /* the pause would outlast it */
    if (is_urgent && (link->state == LINK_IDLE || link->state == LINK_WAITING))
        embd__connection_begin(link);
    else if (link->state == LINK_IDLE)
        embd__connection_want(link);
    else if (!link->is_blocked)
        embd__link_send_queued(link);
}

void embd__link_release(struct exchange *x)
{
    x->held = 0;
    if (x->state != EXCHANGE_IDLE && !x->link->is_blocked)
        embd__link_send_queued(x->link);
}

/* ---- in flight ---- */

/* NULL: no such msgid was asked. Valid until the next add or remove. */
static struct pending *find(struct inflight *inflight, uint32_t msgid)
{
    for (uint32_t i = 0; i < inflight->n; i++)
        if (inflight->list[i].msgid == msgid)
            return &inflight->list[i];
    return NULL;
}

static void take_out(struct inflight *inflight, struct pending *pending)
{
    EMBD_ASSERT(pending >= inflight->list && pending < inflight->list + inflight->n);
    size_t after = (size_t)(inflight->list + inflight->n - (pending + 1));
    memmove(pending, pending + 1, after * sizeof *pending);
    inflight->n--;
}

/* ---- answers ---- */

static int out_of_step(const struct frame_scanner *frame, struct embd__error *e)
{
    if (frame->type != 1)
        return embd__error_set(e, EMBD_PROTOCOL, "a message of type %d is not an answer",
                               frame->type);
    if (!frame->has_msgid)
        return embd__error_set(e, EMBD_PROTOCOL, "an answer without a msgid");
    return embd__error_set(e, EMBD_PROTOCOL, "an answer to msgid %u, which no request has",
                           frame->msgid);
}

static int on_bin(void *owner, uint8_t **to_out, uint32_t *unit_out, struct embd__error *e)
{
    struct link *link = owner;
    const struct frame_scanner *frame = &link->receiver.frame;
    const struct pending *pending =
        frame->type == 1 && frame->has_msgid ? find(&link->inflight, frame->msgid) : NULL;
    if (pending == NULL)
        return out_of_step(frame, e);
    struct exchange *x = pending->x;
    *to_out = NULL;
    link->receiving = x;
    if (x == NULL || x->error.status != EMBD_OK)
        return EMBD_OK; /* dropped, the stream stays in step */
    x->unit = 0;
    *to_out = x->on_bin(x, frame->n_bins - 1, frame->bin_bytes);
    *unit_out = *to_out != NULL ? x->unit : 0;
    return EMBD_OK;
}

static void on_units(void *owner, const uint8_t *p, uint32_t bytes)
{
    struct link *link = owner;
    link->receiving->on_units(link->receiving, p, bytes);
}

static void read_answer(struct link *link, struct exchange *x)
{
    struct reader reader;
    struct embd__error e = {0};
    struct trunks *trunks = link->config.trunks;
    msgpack_zone *zone = trunks != NULL ? &trunks->zone : &link->zone;
    x->is_out = true;
    if (x->error.status != EMBD_OK)
        return; /* a bin did not fit */
    if (x->knows != NULL && x->knows(x, &link->receiver.frame))
        return;
    if (embd__reader_init(&reader, &link->receiver.frame, zone, &e) == EMBD_OK) {
        x->is_refused = reader.answer_status != EMBD_OK;
        if (reader.answer_status == EMBD_OK)
            x->on_answer(x, &reader);
        else
            embd__error_set(&x->error, reader.answer_status, "%.*s", (int)reader.answer_text_bytes,
                            reader.answer_text);
    }
    if (e.status != EMBD_OK)
        embd__error_set(&x->error, EMBD_PROTOCOL, "%s", e.text);
}

static int leave(struct embd__error *e)
{
    return embd__error_set(e, EMBD_CLOSED, "the server is shutting down");
}

/* Notifications belong to no exchange; a server that sends nothing else would keep the thread from
 * its deadlines. One that ends says so as the last it says: it takes nothing more. */
static int on_notice(struct link *link, struct embd__error *e)
{
    struct reader reader;
    struct embd__error ignored = {0};
    struct trunks *trunks = link->config.trunks;
    if (++link->n_notices > NOTICES_MOST)
        return embd__error_set(e, EMBD_PROTOCOL, "the server sends notifications without end");
    if (embd__reader_init(&reader, &link->receiver.frame,
                          trunks != NULL ? &trunks->zone : &link->zone, &ignored) != EMBD_OK ||
        reader.answer_status != EMBD_DRAINING || link->state != LINK_READY)
        return EMBD_OK;
    embd__note_all_refused(link);
    return leave(e);
}

/* Refused by a server that ends: it goes to the next one. Whatever else may have been done there is
 * still answered. */
static int take_refusal(struct link *link, struct exchange *x, struct embd__error *e)
{
    x->error.status = EMBD_OK;
    x->is_refused = x->is_out = false;
    x->was_refused = true;
    link->is_leaving = embd__awaits_outcome(link);
    return link->is_leaving ? EMBD_OK : leave(e);
}

/* Answers of a trunk have come when it was read. */
static uint64_t answered_ns(const struct link *link, uint64_t begun_ns)
{
    uint64_t now_ns = link->line.is_open ? link->config.trunks->read_ns : uv_hrtime();
    return now_ns > begun_ns ? now_ns : begun_ns;
}

/* Since the call was started. */
static void count_answer(struct link *link, const struct exchange *x)
{
    uint64_t begun_ns = x->deadline_ns - (uint64_t)x->deadline_ms * 1000000;
    if (x->kind != EXCHANGE_OTHER)
        embd__latency_add(x->kind == EXCHANGE_PULL ? &link->figures.pulls : &link->figures.pushes,
                          answered_ns(link, begun_ns) - begun_ns);
    if (x->kind == EXCHANGE_PUSH && !x->has_effect)
        embd__count(&link->figures.unnumbered, 1);
}

void embd__exchange_end(struct exchange *x)
{
    if (x->error.status != EMBD_OK)
        embd__count(&x->link->figures.failures, 1);
    x->state = EXCHANGE_IDLE;
    x->next = NULL;
    x->on_end(x);
}

static int on_frame(void *owner, struct embd__error *e)
{
    struct link *link = owner;
    const struct frame_scanner *frame = &link->receiver.frame;
    link->receiving = NULL;
    if (frame->type == 2)
        return on_notice(link, e);
    link->n_notices = 0;
    struct pending *pending = frame->type == 1 ? find(&link->inflight, frame->msgid) : NULL;
    if (pending == NULL)
        return out_of_step(frame, e);
    struct exchange *x = pending->x;
    if (x != NULL)
        read_answer(link, x);
    if (x != NULL && (x->may_repeat || x->waits_refused) && x->error.status == EMBD_DRAINING)
        return take_refusal(link, x, e);
    take_out(&link->inflight, pending);
    if (x == NULL)
        return EMBD_OK;
    if (x == &link->hello)
        return embd__connection_on_hello(link, e);
    if (x == &link->share) {
        if (!embd__sharing_go_on(link))
            embd__connection_ready(link);
        return EMBD_OK;
    }
    count_answer(link, x);
    if (x->error.status == EMBD_OK)
        embd__exchange_end(x);
    else
        embd__fail_answered(x);
    return link->is_leaving && !embd__awaits_outcome(link) ? leave(e) : EMBD_OK;
}

/* [1, msgid, ...: bytes up to the msgid's end; 0: it does not begin so, or has not come. */
static size_t read_msgid(const uint8_t *p, size_t n, uint32_t *out)
{
    enum { OF_FOUR = 0x94, ANSWER = 1, FIXNUM_MOST = 0x7f, UINT8 = 0xcc, UINT32 = 0xce };
    enum { MSGID_AT = 2, LEAST = 8 };
    if (n < LEAST || p[0] != OF_FOUR || p[1] != ANSWER)
        return 0;
    uint8_t first = p[MSGID_AT];
    *out = first;
    if (first <= FIXNUM_MOST)
        return MSGID_AT + 1;
    if (first < UINT8 || first > UINT32)
        return 0;
    uint32_t bytes = 1u << (first - UINT8);
    *out = 0;
    for (uint32_t i = 1; i <= bytes; i++)
        *out = *out << 8 | p[MSGID_AT + i];
    return MSGID_AT + 1 + bytes;
}

/* An answer as an earlier one was, which has come whole. */
static size_t on_start(void *owner, uint8_t *p, size_t n)
{
    struct link *link = owner;
    uint32_t msgid;
    size_t at = link->is_leaving ? 0 : read_msgid(p, n, &msgid);
    struct pending *pending = at > 0 ? find(&link->inflight, msgid) : NULL;
    struct exchange *x = pending != NULL ? pending->x : NULL;
    if (x == NULL || x->take_known == NULL || x->error.status != EMBD_OK)
        return 0;
    size_t taken = x->take_known(x, p + at, n - at);
    if (taken == 0)
        return 0;
    x->is_out = true;
    link->n_notices = 0;
    take_out(&link->inflight, pending);
    count_answer(link, x);
    embd__exchange_end(x);
    return at + taken;
}

static void go(struct link *link, bool readable, bool writable)
{
    struct embd__error e = {0};
    int flushed = writable ? embd__channel_flush(&link->channel) : 0;
    if (flushed < 0) {
        embd__connection_lose_channel(link, flushed);
        return;
    }
    if (readable)
        link->heard_ns = uv_now(link->config.loop) * 1000000;
    if (readable && embd__receive(&link->receiver, &link->channel, &e) != EMBD_OK) {
        embd__connection_lose(link, e.status, e.text);
        return;
    }
    if (link->queue.head != NULL && (writable || !link->is_blocked))
        embd__link_send_queued(link);
    else if (writable)
        embd__link_block(link, embd__channel_is_pending(&link->channel));
}

void embd__link_on_soon(void *owner, bool is_next)
{
    const struct link *link = owner;
    if (is_next) {
        const struct exchange *x = link->inflight.n > 0 ? link->inflight.list[0].x : NULL;
        if (x == NULL)
            return;
        __builtin_prefetch(&x->msgid);
        __builtin_prefetch(&x->answer_bytes);
        __builtin_prefetch(&x->owner);
        __builtin_prefetch(&x->state);
        __builtin_prefetch(x + 1); /* what its owner has behind it */
        return;
    }
    __builtin_prefetch(&link->state);
    __builtin_prefetch(&link->heard_ns);
    __builtin_prefetch(&link->line.number);
    __builtin_prefetch(&link->figures.bytes_received);
    __builtin_prefetch(&link->figures.pulls);
    __builtin_prefetch(&link->figures.pushes);
    __builtin_prefetch(&link->inflight);
    __builtin_prefetch(&link->receiver);
    __builtin_prefetch(&link->receiver.owner);
    __builtin_prefetch(&link->receiver.frame);
    __builtin_prefetch(&link->receiver.frame.token_want);
}

void embd__link_on_bytes(void *owner, uint8_t *p, size_t n)
{
    struct link *link = owner;
    struct embd__error e = {0};
    link->heard_ns = uv_now(link->config.loop) * 1000000;
    if (embd__receive_given(&link->receiver, p, n, &e) != EMBD_OK)
        embd__connection_lose(link, e.status, e.text);
    else if (link->queue.head != NULL && !link->is_blocked)
        embd__link_send_queued(link);
}

void embd__link_look(struct link *link)
{
    go(link, true, link->is_blocked);
}

void embd__link_on_ready(void *owner, bool readable, bool writable)
{
    struct link *link = owner;
    if (link->channel.ring != NULL) {
        embd__channel_hear(&link->channel);
        embd__rings_watch(link->config.rings, link);
        embd__link_look(link);
    } else if (link->state == LINK_SECURING) {
        embd__connection_secure(link);
    } else {
        if (link->config.rings != NULL)
            embd__spin_found(&link->config.rings->spin);
        go(link, readable, writable);
    }
}

/* ---- open and close ---- */

static struct link *take_memory(const struct link_config *config)
{
    return config->pool != NULL ? embd__pool_take(config->pool) : calloc(1, sizeof(struct link));
}

static void free_memory(struct link *link)
{
    if (link->config.pool != NULL)
        embd__pool_give(link->config.pool, link);
    else
        free(link);
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct link *link = handle->data;
    if (--link->open_handles > 0)
        return;
    embd__receive_fini(&link->receiver);
    embd__msg_fini(&link->hello.msg);
    embd__msg_fini(&link->share.msg);
    msgpack_zone_destroy(&link->zone);
    free_memory(link);
}

static int init_parts(struct link *link, struct embd__error *e)
{
    const struct link_config *config = &link->config;
    if (!config->is_path && config->dialer == NULL) {
        int status = embd__address_read(config->address, strlen(config->address), &link->host, e);
        if (status != EMBD_OK)
            return status;
    }
    if (!msgpack_zone_init(&link->zone, 1024))
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for a link");
    link->receiver.in = config->buffer;
    int status = embd__receive_init(&link->receiver, e);
    if (status != EMBD_OK)
        msgpack_zone_destroy(&link->zone);
    return status;
}

int embd__link_open(const struct link_config *config, struct link **out, struct embd__error *e)
{
    struct link *link = take_memory(config);
    if (link == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for a link");
    link->config = *config;
    int status = init_parts(link, e);
    if (status != EMBD_OK) {
        free_memory(link);
        return status;
    }
    link->queue.end = &link->queue.head;
    link->pause_ms = config->reconnect_min_ms;
    link->attempt_ms = LINK_ATTEMPT_MS;
    link->deadline_armed_ns = UINT64_MAX;
    link->terms.frame_bytes = link->terms.push_bytes = LIMIT_FRAME_BYTES;
    link->terms.keys = LIMIT_KEYS;
    link->receiver.owner = link;
    link->receiver.bytes = &link->figures.bytes_received;
    link->receiver.on_bin = on_bin;
    link->receiver.on_units = on_units;
    link->receiver.on_start = on_start;
    link->receiver.on_frame = on_frame;
    embd__connection_init(link);
    uv_timer_init(config->loop, &link->retry);
    uv_timer_init(config->loop, &link->deadline);
    link->retry.data = link->deadline.data = link;
    link->open_handles = 2;
    *out = link;
    return EMBD_OK;
}

static void disconnect(struct link *link)
{
    embd__rings_unwatch(link);
    embd__channel_close(&link->channel);
    embd__channel_close_ring(&link->ring);
    embd__trunk_line_close(&link->line);
    embd__socket_close(link->socket);
    link->socket = NULL;
    link->state = LINK_CLOSED;
    link->figures.is_connected = link->figures.is_local = false;
    embd__connection_forget_hello(link);
}

void embd__link_retire(struct link *link, const char *why)
{
    if (link->state == LINK_CLOSED)
        return;
    disconnect(link);
    uv_timer_stop(&link->retry);
    uv_timer_stop(&link->deadline);
    link->last = (struct embd__error){0};
    embd__error_set(&link->last, EMBD_MOVED, "%s", why);
    embd__fail_queued(link, EMBD_MOVED, link->last.text);
    embd__fail_sent(link, EMBD_MOVED, link->last.text);
}

bool embd__link_is_retired(const struct link *link)
{
    return link->state == LINK_CLOSED;
}

void embd__link_close(struct link *link)
{
    disconnect(link);
    embd__fail_queued(link, EMBD_CLOSED, "the client was closed");
    embd__fail_sent(link, EMBD_CLOSED, "the client was closed");
    uv_close((uv_handle_t *)&link->retry, on_timer_closed);
    uv_close((uv_handle_t *)&link->deadline, on_timer_closed);
}

const char *embd__link_address(const struct link *link)
{
    return link->config.address;
}

uint64_t embd__link_process(const struct link *link)
{
    return link->seen.start;
}

const struct link_figures *embd__link_figures(const struct link *link)
{
    return &link->figures;
}
