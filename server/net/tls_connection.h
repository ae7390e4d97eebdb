/* tls_connection.h - TLS of one connection: its session, what waits to be sent or decrypted, and
 * what it is charged with. Owner: the shard's thread. connection_internal.h has what a connection
 * asks of it. */
#ifndef EMBD_TLS_CONNECTION_H
#define EMBD_TLS_CONNECTION_H

#include "server/net/shard_io.h"
#include "proto/tls/tls.h"

struct tls_connection {
    struct tls_session *session;
    uint8_t *rest; /* malloc'd; what libuv was given to write, or NULL */
    uv_buf_t rest_buf;
    size_t rest_bytes;    /* of its memory */
    size_t kept_bytes;    /* received and not decrypted; charged */
    size_t out_bytes;     /* charged, for what waits to be sent */
    size_t session_bytes; /* charged, for OpenSSL: less once the handshake is over */
    bool is_ended;        /* and not charged any more */
    bool is_decrypting;   /* further up the stack */
};

/* Charged to the quota. NULL: `e` says why; EMBD_BUSY: the quota has no room. */
struct tls_connection *tls_connection_open(struct shard_io *io, struct embd__error *e);
/* Gives back what was charged, when its end is certain; then nothing is charged any more. NULL is
 * allowed. */
void tls_connection_uncharge(struct tls_connection *tls, struct shard_io *io);
void tls_connection_close(struct tls_connection *tls); /* NULL is allowed */

/* The handshake is complete, or not required. */
static inline bool tls_connection_is_up(const struct tls_connection *tls)
{
    return tls == NULL || embd__tls_is_up(tls->session);
}

/* All that was received is plaintext by now. */
static inline bool tls_connection_is_drained(const struct tls_connection *tls)
{
    return embd__tls_fed(tls->session) == 0;
}

/* It has nothing to decrypt or to send, and is not at work. */
static inline bool tls_connection_may_leave(const struct tls_connection *tls)
{
    size_t waiting;
    embd__tls_outgoing(tls->session, &waiting);
    return !tls->is_decrypting && waiting == 0 && tls->rest == NULL &&
           tls_connection_is_drained(tls);
}

/* More waits than for a peer that reads: no further bytes are read that might be answered. */
static inline bool tls_connection_is_choked(const struct tls_connection *tls)
{
    size_t waiting;
    embd__tls_outgoing(tls->session, &waiting);
    return tls->rest != NULL && waiting >= TLS_RECORD_BYTES;
}

#endif
