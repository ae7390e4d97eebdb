/* trunk_wire.c - see trunk_wire.h. A read takes so little ciphertext that its plaintext, and that
 * of a record which had begun, has room: so none of it is kept sealed. */
#include "server/net/trunk_wire.h"

#include <errno.h>
#include <stddef.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/assert.h"
#include "proto/tls/tls.h"

enum {
    SEAL_BYTES = 128 << 10,  /* encrypted before the socket is asked */
    CHOKE_BYTES = 192 << 10, /* that batch, and answers to what the peer's TLS asks */
};

/* ---- life ---- */

size_t trunk_wire_memory(const struct trunk_wire *w)
{
    return w->tls != NULL ? TLS_SESSION_BYTES : 0;
}

static void charge(struct trunk_wire *w, size_t bytes)
{
    if (bytes > w->charged_bytes)
        quota_force(w->quota, bytes - w->charged_bytes);
    else if (bytes < w->charged_bytes)
        quota_give(w->quota, w->charged_bytes - bytes);
    w->charged_bytes = bytes;
}

/* Of the ciphertext what the socket takes. 0: all; or a negative errno. */
static int push(struct trunk_wire *w)
{
    int error = 0;
    while (error == 0 && trunk_wire_is_pending(w)) {
        size_t n;
        const uint8_t *bytes = embd__tls_outgoing(w->tls, &n);
        ssize_t sent = send(w->fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR)
            error = errno == EWOULDBLOCK ? -EAGAIN : -errno;
        if (sent <= 0)
            continue;
        embd__tls_sent(w->tls, (size_t)sent);
        w->sent_bytes += (uint64_t)sent;
    }
    size_t out = embd__tls_out_bytes(w->tls);
    charge(w, out > TLS_OUT_BYTES ? out - TLS_OUT_BYTES : 0);
    return error;
}

void trunk_wire_close(struct trunk_wire *w)
{
    if (w->tls == NULL)
        return;
    embd__tls_end(w->tls);
    push(w);
    charge(w, 0);
    embd__tls_close(w->tls);
    w->tls = NULL;
}

void trunk_wire_discard(struct trunk_wire *w)
{
    embd__tls_close(w->tls);
    close(w->fd);
}

/* ---- sending ---- */

static size_t waiting(const struct trunk_wire *w)
{
    size_t n = 0;
    if (w->tls != NULL)
        embd__tls_outgoing(w->tls, &n);
    return n;
}

bool trunk_wire_is_pending(const struct trunk_wire *w)
{
    return waiting(w) > 0;
}

bool trunk_wire_is_choked(const struct trunk_wire *w)
{
    return waiting(w) > CHOKE_BYTES;
}

/* What waits goes first, so that there is one batch of ciphertext at most. */
static ssize_t seal(struct trunk_wire *w, const uint8_t *p, size_t n)
{
    struct embd__error e = {0};
    size_t sealed = n < SEAL_BYTES ? n : SEAL_BYTES;
    int error = push(w);
    if (error != 0 || n == 0)
        return error;
    if (embd__tls_write(w->tls, p, sealed, &e) != EMBD_OK)
        return -EPROTO;
    error = push(w);
    return error == 0 || error == -EAGAIN ? (ssize_t)sealed : error;
}

ssize_t trunk_wire_send(struct trunk_wire *w, const uint8_t *p, size_t n)
{
    ssize_t sent;
    if (w->tls != NULL)
        return seal(w, p, n);
    do
        sent = send(w->fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    if (sent < 0)
        return errno == EWOULDBLOCK ? -EAGAIN : -errno;
    w->sent_bytes += (uint64_t)sent;
    return sent;
}

/* ---- receiving ---- */

/* Negative errno, or bytes; 0: the end. */
static ssize_t read_socket(struct trunk_wire *w, uint8_t *to, size_t n, bool *is_empty_out)
{
    ssize_t got = recv(w->fd, to, n, MSG_DONTWAIT);
    *is_empty_out = got > 0 && (size_t)got < n;
    if (got < 0)
        return errno == EWOULDBLOCK ? -EAGAIN : -errno;
    return got;
}

/* All plaintext of what was fed. */
static ssize_t open_records(struct trunk_wire *w, uint8_t *to, struct embd__error *e)
{
    size_t total = 0;
    long n;
    while ((n = embd__tls_read(w->tls, to + total, TRUNK_IN_BYTES - total, e)) > 0) {
        total += (size_t)n;
        EMBD_ASSERT(total < TRUNK_IN_BYTES);
    }
    w->has_ended = n == TLS_ENDED;
    if (n < 0 && !w->has_ended)
        return -EPROTO;
    return total > 0 ? (ssize_t)total : w->has_ended ? 0 : -EINTR;
}

ssize_t trunk_wire_receive(struct trunk_wire *w, uint8_t *to, uint8_t *sealed, bool *is_empty_out,
                           struct embd__error *e)
{
    *is_empty_out = false;
    if (w->tls == NULL)
        return read_socket(w, to, TRUNK_IN_BYTES, is_empty_out);
    if (w->has_ended)
        return 0;
    ssize_t n = read_socket(w, sealed, TRUNK_IN_BYTES - TLS_RECORD_BYTES, is_empty_out);
    if (n <= 0)
        return n;
    embd__tls_feed(w->tls, sealed, (size_t)n);
    n = open_records(w, to, e);
    embd__tls_feed(w->tls, NULL, 0);
    *is_empty_out &= !w->has_ended;
    return n;
}
