/* tls_connection.c - TLS between a connection's outlet and parser and its socket.
 *
 * The happy path: a batch is encrypted a few records at a time and sent; bytes received become
 * plaintext straight in the memory it belongs to, as far as the connection takes requests. What can
 * fail: the peer's TLS (it gets an alert, then the stream ends), and what can fail for a plain
 * connection too. While libuv has ciphertext to write, further ciphertext gathers in the session;
 * batches wait. */
#include "server/net/tls_connection.h"

#include <stdlib.h>
#include <string.h>

#include "proto/assert.h"
#include "server/log/log.h"
#include "server/net/connection_internal.h"

/* Plaintext that is encrypted before the socket is asked: a few records, still in the cache when
 * the kernel copies them. */
#define ENCRYPT_BYTES (128u << 10)
/* Plaintext of one record. */
#define RECORD_PLAIN (16u << 10)

struct tls_connection *tls_connection_open(struct shard_io *io, struct embd__error *e)
{
    struct quota *quota = io->pool.quota;
    if (!quota_take_connection(quota, TLS_HANDSHAKE_BYTES)) {
        embd__error_set(e, EMBD_BUSY, "no memory for a TLS session (frame_memory)");
        return NULL;
    }
    struct tls_connection *tls = calloc(1, sizeof *tls);
    if (tls == NULL) {
        embd__error_set(e, EMBD_NO_MEMORY, "no memory for a TLS session");
    } else if (embd__tls_open(io->credentials.tls, NULL, &tls->session, e) == EMBD_OK) {
        tls->session_bytes = TLS_HANDSHAKE_BYTES;
        return tls;
    }
    quota_give_connection(quota, TLS_HANDSHAKE_BYTES);
    free(tls);
    return NULL;
}

void tls_connection_uncharge(struct tls_connection *tls, struct shard_io *io)
{
    if (tls == NULL || tls->is_ended)
        return;
    quota_give_connection(io->pool.quota, tls->session_bytes);
    quota_give(io->pool.quota, tls->kept_bytes + tls->out_bytes);
    tls->is_ended = true;
}

void tls_connection_close(struct tls_connection *tls)
{
    if (tls == NULL)
        return;
    embd__tls_close(tls->session);
    free(tls->rest);
    free(tls);
}

/* ---- what it holds ---- */

static int keep_received(struct tls_connection *tls, struct shard_io *io, struct embd__error *e)
{
    size_t before = tls->kept_bytes, left = embd__tls_fed(tls->session);
    if (embd__tls_keep(tls->session, e) != EMBD_OK)
        return e->status;
    if (left > before)
        read_allowance_spend(&io->allowance, left - before);
    else
        quota_give(io->pool.quota, before - left);
    tls->kept_bytes = left;
    return EMBD_OK;
}

static void charge(struct tls_connection *tls, struct shard_io *io)
{
    struct quota *quota = io->pool.quota;
    if (tls->is_ended)
        return;
    size_t out = embd__tls_out_bytes(tls->session), before = tls->out_bytes;
    out = tls->rest_bytes + (out > TLS_OUT_BYTES ? out - TLS_OUT_BYTES : 0);
    if (out > before)
        quota_force(quota, out - before);
    else if (out < before)
        quota_give(quota, before - out);
    tls->out_bytes = out;
    if (tls->session_bytes == TLS_SESSION_BYTES || !embd__tls_is_up(tls->session))
        return;
    quota_give_connection(quota, tls->session_bytes - TLS_SESSION_BYTES);
    tls->session_bytes = TLS_SESSION_BYTES;
}

/* ---- sealing ---- */

/* Where a batch is read: bufs[0] from `offset` on. */
struct cursor {
    const uv_buf_t *bufs;
    uint32_t n;
    size_t offset;
};

/* Small pieces share a record. Returns how many bytes were put together, at most `most`. */
static size_t gather(struct cursor *at, uint8_t *record, size_t most)
{
    size_t n = 0;
    while (at->n > 0 && n < most) {
        size_t left = at->bufs->len - at->offset, take = left < most - n ? left : most - n;
        memcpy(record + n, at->bufs->base + at->offset, take);
        n += take;
        at->offset += take;
        if (take == left) {
            at->bufs++;
            at->n--;
            at->offset = 0;
        }
    }
    return n;
}

static int encrypt(struct tls_connection *tls, const uv_buf_t *bufs, uint32_t n,
                   uint64_t *encrypted_out, struct embd__error *e)
{
    uint8_t record[RECORD_PLAIN];
    struct cursor at = {bufs, n, 0};
    int status = EMBD_OK;
    *encrypted_out = 0;
    while (at.n > 0 && *encrypted_out < ENCRYPT_BYTES && status == EMBD_OK) {
        size_t left = at.bufs->len - at.offset, take;
        if (left >= RECORD_PLAIN) { /* whole records, from where they lie */
            take = left < ENCRYPT_BYTES ? left / RECORD_PLAIN * RECORD_PLAIN : ENCRYPT_BYTES;
            status = embd__tls_write(tls->session, at.bufs->base + at.offset, take, e);
            at.offset += take;
            if (take == left)
                at = (struct cursor){at.bufs + 1, at.n - 1, 0};
        } else {
            take = gather(&at, record, RECORD_PLAIN);
            status = embd__tls_write(tls->session, record, take, e);
        }
        *encrypted_out += take;
    }
    return status;
}

/* ---- ciphertext to the socket ---- */

static int send_now(struct tls_connection *tls, uv_stream_t *stream)
{
    size_t n;
    const uint8_t *bytes = embd__tls_outgoing(tls->session, &n);
    if (n == 0)
        return 0;
    uv_buf_t buf = uv_buf_init((char *)(uintptr_t)bytes, (unsigned)n);
    int sent = uv_try_write(stream, &buf, 1);
    if (sent < 0)
        return sent == UV_EAGAIN ? 0 : sent;
    embd__tls_sent(tls->session, (size_t)sent);
    return 0;
}

static bool take_rest(struct tls_connection *tls)
{
    size_t first, n, bytes = embd__tls_out_bytes(tls->session);
    tls->rest = embd__tls_detach(tls->session, &first, &n);
    if (tls->rest == NULL)
        return false;
    tls->rest_bytes = bytes;
    tls->rest_buf = uv_buf_init((char *)tls->rest + first, (unsigned)n);
    return true;
}

static void rest_sent(struct tls_connection *tls)
{
    free(tls->rest);
    tls->rest = NULL;
    tls->rest_bytes = 0;
}

/* ---- the connection sends ---- */

static void on_written(uv_write_t *write, int status)
{
    struct connection *c = write->data;
    struct shard_io *io = c->io;
    c->is_writing = false;
    rest_sent(c->tls);
    charge(c->tls, c->io);
    if (c->state == CONNECTION_CLOSED)
        return;
    if (status < 0)
        connection_drop(c, uv_strerror(status));
    else
        connection_go(c);
    connection_flush_dirty(io);
}

void tls_connection_push(struct connection *c, bool later)
{
    if (c->is_writing) {
        charge(c->tls, c->io);
        return;
    }
    int status = later ? 0 : send_now(c->tls, &c->uv.stream);
    if (status == 0 && take_rest(c->tls)) {
        c->write.data = c;
        status = uv_write(&c->write, &c->uv.stream, &c->tls->rest_buf, 1, on_written);
        c->is_writing = status == 0;
        c->out =
            (struct watch){.since_ms = connection_now_ms(c->io), .bytes = connection_out_bytes(c)};
    }
    charge(c->tls, c->io);
    if (status < 0)
        connection_drop(c, uv_strerror(status));
}

void tls_connection_write(struct connection *c, bool later)
{
    struct outlet *out = &c->outlet;
    struct embd__error e = {0};
    uint64_t encrypted;
    if (encrypt(c->tls, out->bufs + out->first, out->n - out->first, &encrypted, &e) != EMBD_OK) {
        connection_drop(c, e.text);
        return;
    }
    connection_took(c, encrypted);
    tls_connection_push(c, later);
}

/* ---- the connection receives ---- */

void tls_connection_on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    const struct connection *c = handle->data;
    (void)suggested;
    size_t bytes = read_allowance_room(&c->io->allowance, connection_read_room(c, IO_READ_BYTES),
                                       TLS_RECORD_BYTES);
    *buf = uv_buf_init((char *)c->io->seal_buffer, (unsigned)bytes);
}

/* The session has an alert for the peer, which is sent as far as the peer reads it. */
static void lose_tls(struct connection *c, const char *why)
{
    log_event(LOG_WARN, "tls_failed", "shard=%u peer=%s why=\"%s\"", c->io->shard_index, c->peer,
              why);
    connection_finish(c);
}

void tls_connection_read(struct connection *c)
{
    struct embd__error e = {0};
    struct tls_session *session = c->tls->session;
    long n = 1;
    if (c->tls->is_decrypting)
        return;
    c->tls->is_decrypting = true;
    while (n > 0 && connection_is_open(c) && connection_wants(c)) {
        uv_buf_t buf;
        connection_on_alloc((uv_handle_t *)&c->uv.stream, 0, &buf);
        if (buf.len == 0) {
            connection_move(c, CONNECTION_STARVED);
            break;
        }
        n = embd__tls_read(session, buf.base, buf.len, &e);
        connection_look_at_peer(c);
        if (n > 0)
            connection_take(c, &buf, (size_t)n);
    }
    c->tls->is_decrypting = false;
    EMBD_ASSERT(c->tls->session == session); /* no trunk got it meanwhile */
    if (connection_is_open(c) && n == TLS_ENDED)
        connection_on_end(c);
    else if (connection_is_open(c) && n < 0)
        lose_tls(c, e.text);
    if (connection_is_open(c) && keep_received(c->tls, c->io, &e) != EMBD_OK)
        connection_drop(c, e.text);
    if (!connection_is_open(c))
        embd__tls_feed(session, NULL, 0);
    if (c->state != CONNECTION_CLOSED)
        tls_connection_push(c, false);
}

void tls_connection_on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct connection *c = stream->data;
    if (n <= 0) {
        connection_on_read(stream, n, buf);
        return;
    }
    connection_count(c, (size_t)n);
    if (connection_is_open(c)) {
        embd__tls_feed(c->tls->session, buf->base, (size_t)n);
        connection_go(c);
    }
    connection_flush_dirty(c->io);
}
