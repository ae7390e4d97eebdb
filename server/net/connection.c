/* connection.c - see connection.h.
 *
 * The happy path: bytes come, digest.c cuts them into requests, the shard answers each,
 * connection_flush() sends the answers, the request is forgotten when its last byte is taken by the
 * kernel. Through TLS sealed.c stands between this and the socket.
 *
 * What can fail, and what follows:
 * - The stream is out of step: the peer is told, what was in flight is answered, then we close.
 * - A frame is too large: its payload is dropped, the request answered with the error.
 * - Too many requests in flight, or answers not taken: reading pauses; nobody is told.
 * - Frame memory is used up: reading pauses; a request that has begun is refused with BUSY after
 *   EXCHANGE_WAIT_MS, one that has not waits.
 * - The peer rests within a frame, or does not take its answers: closed, with a line in the log.
 * - The peer ends its side: what is in flight is still answered (data), or all ends (admin: a hold
 *   must not outlive the one who asked for it).
 * After our last byte we end our side and wait a moment for the peer's, since closing a socket that
 * has unread input would throw away what the peer has not read yet.
 *
 * A peer cannot hold up others: one read takes at most INTAKE_DIRECT_BYTES, one turn of sending
 * TURN_BYTES; then libuv serves the next one. */
#include "server/net/connection.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "server/log/log.h"
#include "server/net/reserve.h"
#include "server/net/steps.h"
#include "server/net/strangers.h"

enum {
    TURN_BYTES = 4 << 20, /* sent before others get a turn */
};

/* ---- states ---- */

static void move(struct connection *c, enum connection_state to)
{
    static const bool allowed[4][4] = {
        [CONNECTION_OPEN] = {[CONNECTION_FINISHING] = true, [CONNECTION_CLOSED] = true},
        [CONNECTION_FINISHING] = {[CONNECTION_LINGERING] = true, [CONNECTION_CLOSED] = true},
        [CONNECTION_LINGERING] = {[CONNECTION_CLOSED] = true},
    };
    assert(allowed[c->state][to]);
    (void)allowed;
    c->state = to;
    c->state_since_ms = connection_now_ms(c->hub);
}

/* ---- exchanges ---- */

void connection_forget(struct connection *c, struct exchange *x, bool was_in_flight)
{
    TAILQ_REMOVE(&c->exchanges, x, in_connection);
    if (was_in_flight) {
        c->n_in_flight--;
        c->answer_bytes -= x->answer_bytes;
    }
    exchange_free(c->hub, x);
}

static void drop_arriving(struct connection *c)
{
    if (!intake_is_between_frames(&c->intake))
        connection_forget(c, intake_take(&c->intake), false);
}

/* ---- closing ---- */

static void on_closed(uv_handle_t *handle)
{
    struct connection *c = handle->data;
    TAILQ_REMOVE(&c->hub->connections, c, in_hub);
    tunnel_close(c->tunnel);
    free(c);
}

void connection_close(struct connection *c)
{
    struct hub *hub = c->hub;
    if (c->state == CONNECTION_CLOSED)
        return;
    move(c, CONNECTION_CLOSED);
    drop_arriving(c);
    struct exchange *x;
    while ((x = TAILQ_FIRST(&c->exchanges)) != NULL)
        connection_forget(c, x, true);
    outlet_fini(&c->outlet, hub);
    digest_drop_kept(c);
    shard_session_end(hub->shard, &c->session);
    strangers_remove(c);
    tunnel_uncharge(c->tunnel, hub);
    if (c->is_charged)
        frame_budget_give_connection(hub->pool.budget, CONNECTION_BYTES);
    c->is_charged = false;
    if (c->is_resting)
        TAILQ_REMOVE(&hub->resting, c, in_resting);
    c->is_resting = false;
    if (c->is_dirty)
        TAILQ_REMOVE(&hub->dirty, c, in_dirty);
    c->is_dirty = false;
    hub->n_at[c->door]--;
    log_event(LOG_DEBUG, "connection_closed", "shard=%u peer=%s bytes_in=%llu bytes_out=%llu",
              hub->shard_index, c->peer, (unsigned long long)c->bytes_in,
              (unsigned long long)c->bytes_out);
    uv_close((uv_handle_t *)&c->uv.stream, on_closed);
}

void connection_drop(struct connection *c, const char *why)
{
    if (c->state == CONNECTION_CLOSED)
        return;
    log_event(LOG_WARN, "connection_dropped", "shard=%u peer=%s why=\"%s\" in_flight=%u",
              c->hub->shard_index, c->peer, why, c->n_in_flight);
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
    if (c->peer_ended) {
        connection_close(c);
        return;
    }
    move(c, CONNECTION_LINGERING);
    if (c->tunnel != NULL) {
        embd__tls_end(c->tunnel->session);
        sealed_push(c, false);
        if (c->state == CONNECTION_CLOSED)
            return;
    }
    c->shutdown.data = c;
    if (uv_shutdown(&c->shutdown, &c->uv.stream, on_shutdown) < 0)
        connection_close(c);
}

void connection_finish(struct connection *c)
{
    if (c->state != CONNECTION_OPEN)
        return;
    drop_arriving(c);
    digest_drop_kept(c);
    move(c, CONNECTION_FINISHING);
}

/* ---- sending ---- */

void connection_mark(struct connection *c)
{
    if (c->is_dirty)
        return;
    c->is_dirty = true;
    TAILQ_INSERT_TAIL(&c->hub->dirty, c, in_dirty);
}

/* Without an answer the connection ends, so that the peer does not wait for it. */
void connection_on_answer(struct request *request)
{
    struct exchange *x = (struct exchange *)request;
    if (!request->has_answer) {
        x->connection->lost_answer = true;
        connection_mark(x->connection);
        return;
    }
    x->connection->answer_bytes += exchange_charge_answer(x->connection->hub, x);
    outlet_add(&x->connection->outlet, x);
    connection_mark(x->connection);
}

void connection_took(struct connection *c, uint64_t n)
{
    c->bytes_out += n;
    c->hub->bytes_out += n;
    c->busy_ms = connection_now_ms(c->hub);
    outlet_sent(&c->outlet, c->hub, n);
    if (c->is_starved)
        digest_next_turn(c); /* perhaps it waits for what goes now */
    struct exchange *x;
    uint64_t now_ns = uv_hrtime();
    while ((x = outlet_next_sent(&c->outlet)) != NULL) {
        if (x->is_with_shard)
            shard_request_sent(c->hub->shard, &x->request, now_ns);
        connection_forget(c, x, true);
    }
}

static void on_written(uv_write_t *write, int status)
{
    struct connection *c = write->data;
    struct hub *hub = c->hub;
    c->is_writing = false;
    if (c->state == CONNECTION_CLOSED)
        return;
    if (status < 0) {
        connection_drop(c, uv_strerror(status));
        return;
    }
    connection_took(c, c->outlet.batch_bytes);
    connection_go(c);
    connection_flush_dirty(hub);
}

uint64_t connection_out_bytes(const struct connection *c)
{
    uint64_t given = c->bytes_out + (c->tunnel == NULL ? c->outlet.batch_bytes : 0);
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
    c->out =
        (struct watch){.since_ms = connection_now_ms(c->hub), .bytes = connection_out_bytes(c)};
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

void connection_flush(struct connection *c)
{
    uint64_t begin = c->bytes_out;
    int status = EMBD_OK;
    while (c->state <= CONNECTION_FINISHING && !c->is_writing &&
           outlet_gather(&c->outlet, c->hub, &status)) {
        if (c->tunnel != NULL)
            sealed_write(c, c->bytes_out - begin >= TURN_BYTES);
        else if (c->bytes_out - begin < TURN_BYTES)
            write_now(c);
        else
            write_later(c);
    }
    if (status == EMBD_BUSY)
        c->is_starved = true;
    else if (status != EMBD_OK)
        connection_drop(c, embd_status_text(status));
}

void connection_flush_dirty(struct hub *hub)
{
    struct connection *c;
    while ((c = TAILQ_FIRST(&hub->dirty)) != NULL) {
        TAILQ_REMOVE(&hub->dirty, c, in_dirty);
        c->is_dirty = false;
        connection_go(c);
    }
}

/* ---- receiving ---- */

void connection_on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct connection *c = handle->data;
    size_t bytes;
    uint8_t *direct = c->state == CONNECTION_OPEN ? intake_direct(&c->intake, &bytes) : NULL;
    (void)suggested;
    if (direct != NULL)
        *buf = uv_buf_init((char *)direct, (unsigned)bytes);
    else
        *buf = uv_buf_init((char *)c->hub->read_buffer, HUB_READ_BYTES);
    if (c->tunnel == NULL) /* of what comes through one, the ciphertext counts */
        buf->len = strangers_room(c, buf->len);
    if (direct == NULL)
        buf->len = reserve_room(c->hub, buf->len, 0);
}

void connection_on_end(struct connection *c)
{
    c->peer_ended = true;
    if (c->listener == LISTENER_ADMIN || c->state == CONNECTION_LINGERING) {
        connection_close(c);
        return;
    }
    if (!intake_is_between_frames(&c->intake))
        log_event(LOG_INFO, "half_frame", "shard=%u peer=%s why=\"the peer ended within a frame\"",
                  c->hub->shard_index, c->peer);
    shard_session_half_end(c->hub->shard, &c->session);
    connection_finish(c);
    connection_go(c);
}

void connection_count(struct connection *c, size_t n)
{
    c->bytes_in += n;
    c->hub->bytes_in += n;
    c->busy_ms = connection_now_ms(c->hub);
}

/* What the shard can do before the request is complete, it does now. */
static void look_ahead(struct connection *c)
{
    uint64_t arrived;
    struct request *request = intake_ending(&c->intake, &arrived);
    if (request != NULL && c->state == CONNECTION_OPEN && c->listener == LISTENER_DATA)
        shard_arriving(c->hub->shard, request, arrived);
}

void connection_take(struct connection *c, const uv_buf_t *buf, size_t n)
{
    struct hub *hub = c->hub;
    if (c->state != CONNECTION_OPEN)
        return;
    bool was_direct = (uint8_t *)buf->base != hub->read_buffer;
    if (was_direct) {
        intake_landed(&c->intake, n);
        digest_bytes(c, hub->read_buffer, 0);
    } else {
        size_t used = digest_bytes(c, hub->read_buffer, n);
        digest_keep(c, hub->read_buffer + used, n - used);
    }
    look_ahead(c);
    if (c->state != CONNECTION_CLOSED)
        connection_go(c);
}

void connection_on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct connection *c = stream->data;
    struct hub *hub = c->hub;
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
    connection_flush_dirty(hub);
}

void connection_starve(struct connection *c)
{
    c->is_starved = true;
    connection_set_reading(c);
}

bool connection_wants(const struct connection *c)
{
    if (c->peer_ended || c->state == CONNECTION_CLOSED)
        return false;
    if (c->state != CONNECTION_OPEN)
        return true; /* and throws it away */
    return c->kept_bytes == 0 && !c->is_starved && !c->is_resting &&
           (!intake_is_between_frames(&c->intake) || !digest_is_full(c));
}

void connection_set_reading(struct connection *c)
{
    bool wants = connection_wants(c) && strangers_room(c, 1) > 0 &&
                 (c->tunnel == NULL || !tunnel_is_choked(c->tunnel));
    if (wants == c->is_reading || c->state == CONNECTION_CLOSED)
        return;
    c->is_reading = wants;
    c->in = (struct watch){.since_ms = connection_now_ms(c->hub), .bytes = c->bytes_in};
    if (!wants)
        uv_read_stop(&c->uv.stream);
    else if (uv_read_start(&c->uv.stream, c->tunnel != NULL ? sealed_on_alloc : connection_on_alloc,
                           c->tunnel != NULL ? sealed_on_read : connection_on_read) < 0)
        connection_drop(c, "cannot read");
}

void connection_go(struct connection *c)
{
    if (c->lost_answer)
        connection_drop(c, "no memory for an answer");
    connection_flush(c);
    while (c->kept_bytes > 0 && c->state == CONNECTION_OPEN && !digest_is_full(c) &&
           !c->is_starved && !c->is_resting) {
        digest_kept(c);
        connection_flush(c);
    }
    if (c->tunnel != NULL && c->state == CONNECTION_OPEN)
        sealed_read(c);
    strangers_look_at(c);
    if (c->session.is_refused)
        connection_finish(c);
    if (c->state == CONNECTION_FINISHING && c->n_in_flight == 0 && !c->is_writing)
        end_stream(c);
    connection_set_reading(c);
}
