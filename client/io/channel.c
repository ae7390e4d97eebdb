/* channel.c - TLS over a socket: ciphertext moves between the socket and the session. Received
 * bytes are decrypted where they belong, bytes to send a few records at a time. */
#include "client/io/channel.h"
#include "proto/tls/tls.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

int embd__channel_open_tls(struct channel *ch, struct tls_context *tls, const char *host,
                           struct embd__error *e)
{
    ch->in = malloc(CHANNEL_IN_BYTES);
    if (ch->in == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for a connection");
    int status = embd__tls_open(tls, host, &ch->tls, e);
    if (status != EMBD_OK) {
        free(ch->in);
        ch->in = NULL;
    }
    return status;
}

void embd__channel_close_tls(struct channel *ch)
{
    embd__tls_close(ch->tls);
    free(ch->in);
}

/* ---- ciphertext ---- */

bool embd__channel_has_ciphertext(const struct channel *ch)
{
    size_t n;
    embd__tls_outgoing(ch->tls, &n);
    return n > 0;
}

int embd__channel_flush_tls(struct channel *ch)
{
    while (embd__channel_has_ciphertext(ch)) {
        size_t n;
        const uint8_t *bytes = embd__tls_outgoing(ch->tls, &n);
        ssize_t sent = send(ch->fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -errno;
        embd__tls_sent(ch->tls, (size_t)sent);
    }
    return 0;
}

/* 1: there is more to decrypt; 0: the server ended the stream; negative errno. */
static int refill(struct channel *ch)
{
    for (;;) {
        ssize_t got = recv(ch->fd, ch->in, CHANNEL_IN_BYTES, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return errno == EWOULDBLOCK ? -EAGAIN : -errno;
        embd__tls_feed(ch->tls, ch->in, (size_t)got);
        return got > 0;
    }
}

/* Plaintext: > 0 bytes, 0: ended, negative errno. */
static ssize_t unseal(struct channel *ch, void *to, size_t n)
{
    for (;;) {
        long got = embd__tls_read(ch->tls, to, n, &ch->error);
        if (got > 0)
            ch->empty_bytes = 0;
        if (got > 0)
            return got;
        if (got == TLS_ENDED)
            return 0;
        if (got < 0) {
            embd__channel_flush_tls(ch); /* the alert */
            return -EPROTO;
        }
        if (ch->has_turns && ch->turn_reads == 0)
            return -EAGAIN;
        ch->turn_reads--;
        int more = refill(ch);
        if (more <= 0)
            return more;
        ch->empty_bytes += embd__tls_fed(ch->tls);
        if (ch->empty_bytes > CHANNEL_EMPTY_BYTES) {
            embd__error_set(&ch->error, EMBD_PROTOCOL,
                            "TLS: the server sends empty records without end");
            return -EPROTO;
        }
    }
}

int embd__channel_handshake(struct channel *ch)
{
    for (;;) {
        int status = embd__tls_handshake(ch->tls, &ch->error);
        int flushed = embd__channel_flush_tls(ch); /* what is said, also when it is an alert */
        if (status != EMBD_OK || flushed < 0)
            return status != EMBD_OK ? -EPROTO : flushed;
        if (embd__tls_is_up(ch->tls))
            return 1;
        int more = refill(ch);
        if (more <= 0)
            return more == -EAGAIN ? 0 : more == 0 ? -ECONNRESET : more;
    }
}

/* ---- sending ---- */

ssize_t embd__channel_seal(struct channel *ch, struct iovec *iov, size_t n)
{
    size_t sealed = 0;
    int status = embd__channel_flush_tls(ch);
    if (status == 0 && embd__channel_has_ciphertext(ch))
        return -EAGAIN;
    for (size_t i = 0; i < n && status == 0 && sealed < CHANNEL_SEAL_BYTES; i++) {
        size_t room = CHANNEL_SEAL_BYTES - sealed;
        size_t take = iov[i].iov_len < room ? iov[i].iov_len : room;
        if (embd__tls_write(ch->tls, iov[i].iov_base, take, &ch->error) != EMBD_OK)
            status = -EPROTO;
        sealed += take;
    }
    if (status == 0)
        status = embd__channel_flush_tls(ch);
    return status < 0 ? status : (ssize_t)sealed;
}

/* ---- receiving ---- */

ssize_t embd__channel_unseal(struct channel *ch, struct iovec *iov, size_t n)
{
    size_t total = 0;
    for (size_t i = 0; i < n; i++) {
        size_t at = 0;
        while (at < iov[i].iov_len) {
            ssize_t got = unseal(ch, (uint8_t *)iov[i].iov_base + at, iov[i].iov_len - at);
            if (got <= 0)
                return total > 0 ? (ssize_t)total : got;
            at += (size_t)got;
            total += (size_t)got;
        }
    }
    return (ssize_t)total;
}
