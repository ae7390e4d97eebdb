/* sealed.c - the two halves of a connection that lie between its outlet, its intake and a tunnel.
 *
 * The happy path: a batch is encrypted a few records at a time and sent; bytes received become
 * plaintext straight in the memory it belongs to, as far as the connection takes requests. What can
 * fail: the peer's TLS (it is told by an alert, then the stream ends), and what can fail for a
 * plain connection too. While libuv has ciphertext to write, further ciphertext gathers in the
 * session; batches wait. */
#include "server/log/log.h"
#include "server/net/reserve.h"
#include "server/net/steps.h"
#include "server/net/strangers.h"

/* ---- sending ---- */

static void on_sealed_written(uv_write_t *write, int status)
{
    struct connection *c = write->data;
    struct hub *hub = c->hub;
    c->is_writing = false;
    tunnel_rest_sent(c->tunnel);
    tunnel_settle(c->tunnel, c->hub);
    if (c->state == CONNECTION_CLOSED)
        return;
    if (status < 0)
        connection_drop(c, uv_strerror(status));
    else
        connection_go(c);
    connection_flush_dirty(hub);
}

void sealed_push(struct connection *c, bool later)
{
    if (c->is_writing) {
        tunnel_settle(c->tunnel, c->hub);
        return;
    }
    int status = later ? 0 : tunnel_send(c->tunnel, &c->uv.stream);
    if (status == 0 && tunnel_take_rest(c->tunnel)) {
        c->write.data = c;
        status = uv_write(&c->write, &c->uv.stream, &c->tunnel->rest_buf, 1, on_sealed_written);
        c->is_writing = status == 0;
        c->out =
            (struct watch){.since_ms = connection_now_ms(c->hub), .bytes = connection_out_bytes(c)};
    }
    tunnel_settle(c->tunnel, c->hub);
    if (status < 0)
        connection_drop(c, uv_strerror(status));
}

void sealed_write(struct connection *c, bool later)
{
    struct outlet *out = &c->outlet;
    struct embd__error e = {0};
    uint64_t sealed;
    if (tunnel_seal(c->tunnel, out->bufs + out->first, out->n - out->first, &sealed, &e) !=
        EMBD_OK) {
        connection_drop(c, e.text);
        return;
    }
    connection_took(c, sealed);
    sealed_push(c, later);
}

/* ---- receiving ---- */

void sealed_on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    const struct connection *c = handle->data;
    (void)suggested;
    size_t bytes = reserve_room(c->hub, strangers_room(c, HUB_READ_BYTES), TLS_RECORD_BYTES);
    *buf = uv_buf_init((char *)c->hub->seal_buffer, (unsigned)bytes);
}

/* The peer's mistake, or a stranger's: it is told by an alert, as far as it listens. */
static void lose_tunnel(struct connection *c, const char *why)
{
    log_event(LOG_WARN, "tls_failed", "shard=%u peer=%s why=\"%s\"", c->hub->shard_index, c->peer,
              why);
    connection_finish(c);
}

void sealed_read(struct connection *c)
{
    struct embd__error e = {0};
    struct tls_session *session = c->tunnel->session;
    long n = 1;
    if (c->tunnel->is_unsealing)
        return;
    c->tunnel->is_unsealing = true;
    while (n > 0 && c->state == CONNECTION_OPEN && connection_wants(c)) {
        uv_buf_t buf;
        connection_on_alloc((uv_handle_t *)&c->uv.stream, 0, &buf);
        if (buf.len == 0) {
            c->is_starved = true;
            break;
        }
        n = embd__tls_read(session, buf.base, buf.len, &e);
        strangers_look_at(c);
        if (n > 0)
            connection_take(c, &buf, (size_t)n);
    }
    c->tunnel->is_unsealing = false;
    if (c->state == CONNECTION_OPEN && n == TLS_ENDED)
        connection_on_end(c);
    else if (c->state == CONNECTION_OPEN && n < 0)
        lose_tunnel(c, e.text);
    if (c->state == CONNECTION_OPEN && tunnel_keep(c->tunnel, c->hub, &e) != EMBD_OK)
        connection_drop(c, e.text);
    if (c->state != CONNECTION_OPEN)
        embd__tls_feed(session, NULL, 0);
    if (c->state != CONNECTION_CLOSED)
        sealed_push(c, false);
}

void sealed_on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct connection *c = stream->data;
    if (n <= 0) {
        connection_on_read(stream, n, buf);
        return;
    }
    connection_count(c, (size_t)n);
    if (c->state == CONNECTION_OPEN) {
        embd__tls_feed(c->tunnel->session, buf->base, (size_t)n);
        connection_go(c);
    }
    connection_flush_dirty(c->hub);
}
