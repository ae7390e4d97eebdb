/* connection.c - see connection.h.
 *
 * The happy path: bytes arrive, request_parser.c cuts them into requests, the shard answers each,
 * connection_flush() sends the answers, and a request is forgotten when the kernel has taken its
 * last byte. With TLS, tls_connection.c is between this file and the socket.
 *
 * What can fail, and what follows:
 *
 * - The stream is out of step: the peer gets an error, requests in flight are answered, then the
 * connection closes.
 *
 * - A frame is too large: its payload is dropped, and the request answered with the error.
 *
 * - Too many requests are in flight, or answers are not read: reading pauses.
 *
 * - Frame memory is used up: reading pauses; a request that has begun is refused with BUSY after
 * EXCHANGE_WAIT_MS, a later one waits.
 *
 * - The peer stops within a frame, or does not read its answers: closed, with a line in the log.
 *
 * - The peer closes its side: requests in flight are still answered (data), or all ends (admin: a
 * hold must not outlive its connection). After our last byte we close our side and wait a moment
 * for the peer's: closing a socket with unread input would throw away answers that the peer has not
 * read yet.
 *
 * A peer cannot delay others: one read takes at most PARSER_DIRECT_BYTES, one turn of sending
 * TURN_BYTES, one turn of requests what turn.h says; then libuv serves the next one. */
#include "server/net/connection.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/assert.h"
#include "server/log/log.h"
#include "server/net/connection_internal.h"
#include "server/net/trunks.h"

enum {
    TURN_BYTES = 4 << 20, /* sent before others get a turn */
};

/* ---- states ---- */

#define TO(state) (1u << CONNECTION_##state)
#define TO_END    (TO(FINISHING) | TO(PEER_ENDED) | TO(FAILED) | TO(CLOSED))

/* Into which states each may go. */
static const unsigned moves[CONNECTION_STATES] = {
    [CONNECTION_READING] = TO(PAUSED) | TO(YIELDING) | TO(STARVED) | TO_END,
    [CONNECTION_PAUSED] = TO(READING) | TO(YIELDING) | TO(STARVED) | TO_END,
    [CONNECTION_YIELDING] = TO(PAUSED) | TO_END,
    [CONNECTION_STARVED] = TO(PAUSED) | TO(YIELDING) | TO_END,
    [CONNECTION_FINISHING] = TO(PEER_ENDED) | TO(FAILED) | TO(LINGERING) | TO(CLOSED),
    [CONNECTION_PEER_ENDED] = TO(FAILED) | TO(CLOSED),
    [CONNECTION_FAILED] = TO(CLOSED),
    [CONNECTION_LINGERING] = TO(CLOSED),
};

void connection_move(struct connection *c, enum connection_state to)
{
    if (c->state == to)
        return;
    EMBD_ASSERT((moves[c->state] >> to & 1) != 0);
    if (c->state == CONNECTION_YIELDING)
        TAILQ_REMOVE(&c->io->yielding, c, in_yielding);
    if (to == CONNECTION_YIELDING)
        TAILQ_INSERT_TAIL(&c->io->yielding, c, in_yielding);
    c->state = to;
}

/* ---- reading ---- */

bool connection_wants(const struct connection *c)
{
    bool may_begin = request_parser_is_between_frames(&c->parser) && !request_parser_is_full(c);
    return c->state <= CONNECTION_PAUSED && c->kept_bytes == 0 &&
           (may_begin || !request_parser_is_between_frames(&c->parser));
}

/* False: it is closed now. */
static bool start_reading(struct connection *c)
{
    bool is_plain = c->tls == NULL, by_ring = c->ring.state == RING_OPEN;
    int status = by_ring ? 0
                         : uv_read_start(&c->uv.stream,
                                         is_plain ? connection_on_alloc : tls_connection_on_alloc,
                                         is_plain ? connection_on_read : tls_connection_on_read);
    if (status < 0 && status != UV_EALREADY)
        connection_drop(c, "cannot read");
    c->in = (struct watch){.since_ms = connection_now_ms(c->io), .bytes = c->bytes_in};
    return c->state != CONNECTION_CLOSED;
}

/* Where more ciphertext waits to be sent than a peer that reads leaves, and of a peer that is not
 * authenticated, nothing further is read. */
static bool may_read(const struct connection *c)
{
    return connection_read_room(c, 1) > 0 && (c->tls == NULL || !tls_connection_is_choked(c->tls));
}

/* An open connection is READING or PAUSED as fits; what comes to one that ends is dropped. */
void connection_set_reading(struct connection *c)
{
    bool is_open = c->state <= CONNECTION_PAUSED;
    bool drops = c->state == CONNECTION_FINISHING || c->state == CONNECTION_LINGERING;
    if (c->state == CONNECTION_CLOSED)
        return;
    bool reads = ((is_open && connection_wants(c)) || drops) && may_read(c);
    bool by_ring = c->ring.state == RING_OPEN; /* doorbells, and the end, are always read */
    if (!reads && c->state != CONNECTION_PAUSED && !by_ring)
        uv_read_stop(&c->uv.stream);
    if (reads && c->state != CONNECTION_READING && !start_reading(c))
        return;
    if (is_open)
        connection_move(c, reads ? CONNECTION_READING : CONNECTION_PAUSED);
    if (by_ring)
        ring_watch(c);
}

/* ---- exchanges ---- */

void connection_forget(struct connection *c, struct exchange *x, bool was_in_flight)
{
    TAILQ_REMOVE(&c->exchanges, x, in_connection);
    if (was_in_flight) {
        c->n_in_flight--;
        c->answer_bytes -= x->answer_bytes;
    }
    exchange_free(c->io, x);
}

/* ---- closing ---- */

static void on_closed(uv_handle_t *handle)
{
    struct connection *c = handle->data;
    TAILQ_REMOVE(&c->io->connections, c, in_io);
    tls_connection_close(c->tls);
    free(c);
}

/* A forked child of this process may have the socket, too: then closing it here would tell the peer
 * nothing. */
static void end_for_peer(struct connection *c)
{
    uv_os_fd_t fd;
    if (uv_fileno((uv_handle_t *)&c->uv.pipe, &fd) == 0)
        shutdown(fd, SHUT_RDWR);
}

static void end_sender(struct connection *c)
{
    sender_close(c->sender);
    c->sender = NULL;
    if (c->is_sending)
        TAILQ_REMOVE(&c->io->sending, c, in_sending);
    c->is_sending = false;
}

void connection_close(struct connection *c)
{
    struct shard_io *io = c->io;
    if (c->state == CONNECTION_CLOSED)
        return;
    connection_move(c, CONNECTION_CLOSED);
    end_sender(c); /* before what it sends is freed */
    request_parser_drop(c);
    struct exchange *x;
    while ((x = TAILQ_FIRST(&c->exchanges)) != NULL)
        connection_forget(c, x, true);
    outlet_fini(&c->outlet, io);
    shard_session_end(io->shard, &c->session);
    shared_close_ring(c);
    shared_end(c);
    if (c->is_unauthenticated)
        unauthenticated_remove(c);
    tls_connection_uncharge(c->tls, io);
    if (c->charged_bytes > 0)
        quota_give_connection(io->pool.quota, c->charged_bytes);
    c->charged_bytes = 0;
    if (c->is_dirty)
        TAILQ_REMOVE(&io->dirty, c, in_dirty);
    c->is_dirty = false;
    io->n_at[c->door]--;
    log_event(LOG_DEBUG, "connection_closed", "shard=%u peer=%s bytes_in=%llu bytes_out=%llu",
              io->shard_index, c->peer, (unsigned long long)c->bytes_in,
              (unsigned long long)c->bytes_out);
    if (c->is_adopted)
        end_for_peer(c);
    uv_close((uv_handle_t *)&c->uv.stream, on_closed);
}

void connection_drop(struct connection *c, const char *why)
{
    if (c->state == CONNECTION_CLOSED)
        return;
    /* A trainer that closes its handle with calls in flight does not warn itself. */
    log_event(c->is_adopted ? LOG_INFO : LOG_WARN, "connection_dropped",
              "shard=%u peer=%s why=\"%s\" in_flight=%u", c->io->shard_index, c->peer, why,
              c->n_in_flight);
    connection_close(c);
}

static void on_shutdown(uv_shutdown_t *shutdown, int status)
{
    struct connection *c = shutdown->data;
    if (status < 0)
        connection_close(c);
}

/* Everything is sent. */
static void end_stream(struct connection *c)
{
    if (c->state == CONNECTION_PEER_ENDED) {
        connection_close(c);
        return;
    }
    connection_move(c, CONNECTION_LINGERING);
    c->linger_since_ms = connection_now_ms(c->io);
    if (c->tls != NULL) {
        embd__tls_end(c->tls->session);
        tls_connection_push(c, false);
        if (c->state == CONNECTION_CLOSED)
            return;
    }
    c->shutdown.data = c;
    if (uv_shutdown(&c->shutdown, &c->uv.stream, on_shutdown) < 0)
        connection_close(c);
}

void connection_finish(struct connection *c)
{
    if (!connection_is_open(c))
        return;
    request_parser_drop(c);
    connection_move(c, CONNECTION_FINISHING);
}

/* ---- sending ---- */

/* Without an answer the connection ends, so that the peer does not wait for it. */
void connection_on_answer(struct request *request)
{
    struct exchange *x = (struct exchange *)request;
    EMBD_ASSERT(x->is_with_shard && request->state == REQUEST_ANSWERED);
    if (!request->has_answer) {
        connection_move(x->connection, CONNECTION_FAILED);
        connection_mark(x->connection);
        return;
    }
    x->answer_bytes = x->request.answer.head_capacity; /* charged until it is sent */
    x->connection->answer_bytes += x->answer_bytes;
    quota_force(x->connection->io->pool.quota, x->answer_bytes);
    outlet_add(&x->connection->outlet, x);
    connection_mark(x->connection);
}

/* More of an answer that is sent while it is made. The peer knows a cut one by the end. */
void connection_on_more(struct request *request)
{
    struct exchange *x = (struct exchange *)request;
    if (!request->has_answer)
        connection_move(x->connection, CONNECTION_FAILED);
    connection_mark(x->connection);
}

void connection_took(struct connection *c, uint64_t n)
{
    c->bytes_out += n;
    c->io->bytes_out += n;
    c->busy_ms = connection_now_ms(c->io);
    outlet_sent(&c->outlet, c->io, n);
    if (c->state == CONNECTION_STARVED)
        connection_move(c, CONNECTION_YIELDING); /* perhaps it waits for what goes now */
    struct exchange *x;
    uint64_t now_ns = uv_hrtime();
    turn_count(&c->turn, now_ns);
    while ((x = outlet_next_sent(&c->outlet)) != NULL) {
        if (x->is_with_shard)
            shard_request_sent(c->io->shard, &x->request, now_ns);
        connection_forget(c, x, true);
    }
}

static void on_written(uv_write_t *write, int status)
{
    struct connection *c = write->data;
    struct shard_io *io = c->io;
    c->is_writing = false;
    if (c->state == CONNECTION_CLOSED)
        return;
    if (status < 0) {
        connection_drop(c, uv_strerror(status));
        return;
    }
    connection_took(c, c->outlet.batch_bytes);
    connection_go(c);
    connection_flush_dirty(io);
}

uint64_t connection_out_bytes(const struct connection *c)
{
    if (c->is_sending)
        return c->bytes_out + sender_sent(c->sender);
    bool is_plain = c->tls == NULL && c->ring.state != RING_OPEN;
    uint64_t given = c->bytes_out + (is_plain ? c->outlet.batch_bytes : 0);
    return given - uv_stream_get_write_queue_size(&c->uv.stream);
}

/* Leaves the batch to libuv, which goes on when the socket takes more, or on the next turn of the
 * loop. */
static void write_later(struct connection *c)
{
    struct outlet *out = &c->outlet;
    c->write.data = c;
    int status =
        uv_write(&c->write, &c->uv.stream, out->bufs + out->first, out->n - out->first, on_written);
    if (status < 0) {
        connection_drop(c, uv_strerror(status));
        return;
    }
    c->is_writing = true;
    c->out = (struct watch){.since_ms = connection_now_ms(c->io), .bytes = connection_out_bytes(c)};
}

static void write_now(struct connection *c)
{
    struct outlet *out = &c->outlet;
    int n = uv_try_write(&c->uv.stream, out->bufs + out->first, out->n - out->first);
    if (n < 0 && n != UV_EAGAIN) {
        connection_drop(c, uv_strerror(n));
        return;
    }
    if (n > 0)
        connection_took(c, (uint64_t)n);
    if (out->batch_bytes > 0)
        write_later(c);
}

/* ---- by a sender ---- */

/* False: the shard's thread sends the batch. */
static bool has_sender(struct connection *c)
{
    if (!c->session.sends_aside || c->outlet.batch_bytes < SENDER_LEAST_BYTES ||
        c->outlet.chunk != NULL)
        return false;
    if (c->sender == NULL)
        c->sender = sender_open(c->io->wake, c->io->wake_arg);
    return c->sender != NULL;
}

static void write_aside(struct connection *c)
{
    const struct outlet *out = &c->outlet;
    uv_os_fd_t fd;
    if (uv_fileno((uv_handle_t *)&c->uv.stream, &fd) != 0) {
        connection_drop(c, "its socket has no descriptor");
        return;
    }
    sender_begin(c->sender, fd, out->bufs + out->first, out->n - out->first);
    c->is_writing = c->is_sending = true;
    TAILQ_INSERT_TAIL(&c->io->sending, c, in_sending);
    c->out = (struct watch){.since_ms = connection_now_ms(c->io), .bytes = connection_out_bytes(c)};
}

static void on_sent(struct connection *c, int error)
{
    TAILQ_REMOVE(&c->io->sending, c, in_sending);
    c->is_sending = c->is_writing = false;
    if (error != 0) {
        connection_drop(c, uv_strerror(error));
        return;
    }
    connection_took(c, c->outlet.batch_bytes);
    connection_go(c);
}

void connection_go_sent(struct shard_io *io)
{
    struct connection *c, *next;
    int error;
    for (c = TAILQ_FIRST(&io->sending); c != NULL; c = next) {
        next = TAILQ_NEXT(c, in_sending);
        if (sender_is_over(c->sender, &error))
            on_sent(c, error);
    }
}

/* One that does not fit need not: the peer has others to read. False: it is gone, or cannot be
 * woken, and both sides see the end of the connection. */
bool connection_doorbell(struct connection *c)
{
    uv_os_fd_t fd;
    ssize_t sent;
    if (uv_fileno((uv_handle_t *)&c->uv.pipe, &fd) != 0)
        return false;
    do
        sent = send(fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    if (sent == 1 || errno == EAGAIN || errno == EWOULDBLOCK)
        return true;
    shutdown(fd, SHUT_RDWR);
    return false;
}

/* Writes what the ring has room for; `later`: the next batch when others had their turn. */
static void write_ring(struct connection *c, bool later)
{
    size_t n = outlet_put(&c->outlet, &c->ring.ring);
    if (n > 0 && embd__ring_publish(&c->ring.ring))
        connection_doorbell(c);
    if (n > 0)
        connection_took(c, n);
    if (c->outlet.batch_bytes == 0 && !later)
        return;
    c->is_writing = true;
    c->out = (struct watch){.since_ms = connection_now_ms(c->io), .bytes = connection_out_bytes(c)};
    ring_watch(c);
}

void connection_flush(struct connection *c)
{
    uint64_t begin = c->bytes_out;
    int status = EMBD_OK;
    if (c->turn.counted_ns == 0 && !outlet_is_empty(&c->outlet))
        turn_work(&c->turn, uv_hrtime());
    c->outlet.most =
        c->session.sends_aside && c->tls == NULL ? OUTLET_ASIDE_BYTES : OUTLET_BATCH_BYTES;
    while (connection_may_send(c) && !c->is_writing && !outlet_is_empty(&c->outlet) &&
           outlet_gather(&c->outlet, c->io, c->turn.counted_ns + TURN_NS, &status)) {
        bool is_over = c->bytes_out - begin >= TURN_BYTES || turn_is_over(&c->turn);
        if (c->ring.state == RING_OPEN)
            write_ring(c, is_over);
        else if (c->tls != NULL)
            tls_connection_write(c, is_over);
        else if (has_sender(c))
            write_aside(c);
        else if (!is_over)
            write_now(c);
        else
            write_later(c);
    }
    if (status == EMBD_BUSY && connection_is_open(c) && c->state != CONNECTION_YIELDING)
        connection_move(c, CONNECTION_STARVED);
    else if (status != EMBD_OK && status != EMBD_BUSY)
        connection_drop(c, embd_status_text(status));
}

void connection_go_dirty(struct shard_io *io)
{
    struct connection *c;
    while ((c = TAILQ_FIRST(&io->dirty)) != NULL) {
        TAILQ_REMOVE(&io->dirty, c, in_dirty);
        c->is_dirty = false;
        connection_go(c);
    }
}

/* ---- receiving ---- */

void connection_on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct connection *c = handle->data;
    size_t bytes;
    if (c->session.awaits_share || c->session.awaits_ring)
        shared_look(c);
    uint8_t *direct = connection_is_open(c) ? request_parser_direct(c, &bytes) : NULL;
    (void)suggested;
    if (direct != NULL)
        *buf = uv_buf_init((char *)direct, (unsigned)bytes);
    else
        *buf = uv_buf_init((char *)c->io->read_buffer, IO_READ_BYTES);
    if (c->tls == NULL) /* with TLS the ciphertext counts */
        buf->len = connection_read_room(c, buf->len);
    if (direct == NULL)
        buf->len = read_allowance_room(&c->io->allowance, buf->len, 0);
}

void connection_on_end(struct connection *c)
{
    if (c->listener == LISTENER_ADMIN || c->state == CONNECTION_LINGERING) {
        connection_close(c);
        return;
    }
    if (!request_parser_is_between_frames(&c->parser))
        log_event(LOG_INFO, "half_frame",
                  "shard=%u peer=%s why=\"the peer closed the connection within a frame\"",
                  c->io->shard_index, c->peer);
    shard_session_half_end(c->io->shard, &c->session);
    if (connection_is_open(c) || c->state == CONNECTION_FINISHING) {
        request_parser_drop(c);
        connection_move(c, CONNECTION_PEER_ENDED);
    }
    connection_go(c);
}

void connection_take(struct connection *c, const uv_buf_t *buf, size_t n)
{
    if (!connection_is_open(c))
        return;
    if ((uint8_t *)buf->base != c->io->read_buffer)
        request_parser_landed(c, n);
    else
        request_parser_take(c, c->io->read_buffer, n);
    if (c->state != CONNECTION_CLOSED)
        connection_go(c);
}

void connection_on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct connection *c = stream->data;
    struct shard_io *io = c->io;
    if (n > 0) {
        connection_count(c, (size_t)n);
        connection_take(c, buf, (size_t)n);
    } else if (n == UV_ENOBUFS) {
        connection_starve(c);
    } else if (n == UV_EOF) {
        connection_on_end(c);
    } else if (n == UV_ECONNRESET) {
        connection_close(c);
    } else if (n < 0) {
        connection_drop(c, uv_strerror((int)n));
    }
    connection_flush_dirty(io);
}

void connection_starve(struct connection *c)
{
    if (connection_is_open(c))
        connection_move(c, CONNECTION_STARVED);
    connection_set_reading(c);
}

/* ---- going on ---- */

static void parse_kept(struct connection *c)
{
    while (c->kept_bytes > 0 && c->state <= CONNECTION_PAUSED && !request_parser_is_full(c)) {
        request_parser_go_on(c);
        connection_flush(c);
    }
}

/* ---- becoming a trunk ---- */

int connection_leave(struct shard_session *session, struct embd__error *e)
{
    struct connection *c = connection_of_session(session);
    bool is_alone =
        c->n_in_flight == 1 && request_parser_is_between_frames(&c->parser) && c->kept_bytes == 0;
    if (!is_alone || c->ring.state != RING_NONE || c->session.shared.base != NULL)
        return embd__error_set(e, EMBD_INVALID,
                               "trunk: the connection has other requests in flight, or memory that "
                               "it shares");
    c->is_leaving = true;
    return EMBD_OK;
}

/* Nothing of it is at work, here or further up the stack. */
static bool may_leave(const struct connection *c)
{
    bool is_quiet = connection_is_open(c) && c->n_in_flight == 0 && !c->is_writing;
    return is_quiet && (c->tls == NULL || tls_connection_may_leave(c->tls));
}

/* The socket's second descriptor is the trunk's, and so is its TLS. What came behind the answer is
 * the trunk's, too; what came before it is not allowed, and was parsed as requests. */
static void leave(struct connection *c)
{
    struct embd__error e = {0};
    struct adopted_peer peer = {.network = c->network};
    struct trunk_wire wire = {.fd = -1, .tls = c->tls != NULL ? c->tls->session : NULL};
    uv_os_fd_t fd;
    memcpy(peer.name, c->peer, sizeof peer.name);
    if (uv_fileno((uv_handle_t *)&c->uv.stream, &fd) == 0)
        wire.fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (wire.fd < 0)
        embd__error_set(&e, EMBD_NO_MEMORY, "trunk: no descriptor for it");
    else if (trunks_add(c->io->trunks, &wire, &peer, &e) != EMBD_OK)
        close(wire.fd);
    else if (c->tls != NULL)
        c->tls->session = NULL;
    if (e.status != EMBD_OK)
        connection_drop(c, e.text);
    else
        connection_close(c);
}

void connection_go(struct connection *c)
{
    if (c->state == CONNECTION_FAILED) {
        connection_drop(c, "a request ended without an answer");
        return;
    }
    connection_flush(c);
    parse_kept(c);
    if (c->tls != NULL && connection_is_open(c))
        tls_connection_read(c);
    connection_look_at_peer(c);
    if (c->session.is_refused)
        connection_finish(c);
    bool is_ending = c->state == CONNECTION_FINISHING || c->state == CONNECTION_PEER_ENDED;
    if (is_ending && c->n_in_flight == 0 && !c->is_writing)
        end_stream(c);
    if (c->is_leaving && may_leave(c))
        leave(c);
    connection_set_reading(c);
    turn_rest(&c->turn);
}

void connection_retry(struct connection *c)
{
    if (connection_is_open(c)) {
        connection_move(c, CONNECTION_PAUSED);
        request_parser_go_on(c);
    }
    connection_go(c);
}
