/* tunnel.h - TLS between a connection and its socket: batches become ciphertext, and what the
 * socket does not take at once waits here. Owner: the shard's thread.
 *
 * The connection asks and decides; nothing here calls back. */
#ifndef EMBD_TUNNEL_H
#define EMBD_TUNNEL_H

#include "server/net/hub.h"

/* Plaintext that is encrypted before the socket is asked: a few records, still in the cache when
 * the kernel copies them. */
#define TUNNEL_SEAL_BYTES (128u << 10)

struct tunnel {
    struct tls_session *session;
    uint8_t *rest; /* malloc'd; what libuv was given to write, or NULL */
    uv_buf_t rest_buf;
    size_t rest_bytes;    /* of its memory */
    size_t kept_bytes;    /* received and not decrypted; charged */
    size_t out_bytes;     /* charged, for what waits to be sent */
    size_t session_bytes; /* charged, for OpenSSL: less once hands are shaken */
    bool is_ended;        /* and not charged any more */
    bool is_unsealing;    /* further up the stack */
};

/* Charged to the frame budget. NULL: `e` says why; EMBD_BUSY: there is no room in that. */
struct tunnel *tunnel_open(struct hub *hub, struct embd__error *e);
/* Gives back what was charged, when its end is certain; then nothing is charged any more. NULL is
 * allowed. */
void tunnel_uncharge(struct tunnel *tunnel, struct hub *hub);
void tunnel_close(struct tunnel *tunnel); /* NULL is allowed */

static inline bool tunnel_is_up(const struct tunnel *tunnel)
{
    return tunnel == NULL || embd__tls_is_up(tunnel->session);
}

/* All that was received is plaintext by now. */
static inline bool tunnel_is_empty(const struct tunnel *tunnel)
{
    return embd__tls_fed(tunnel->session) == 0;
}

/* Encrypts the first bytes of bufs[n], at most TUNNEL_SEAL_BYTES. */
int tunnel_seal(struct tunnel *tunnel, const uv_buf_t *bufs, uint32_t n, uint64_t *sealed_out,
                struct embd__error *e);

/* Keeps what is left of what was fed. */
int tunnel_keep(struct tunnel *tunnel, struct hub *hub, struct embd__error *e);
/* Sets right what is charged, after a step that read, encrypted or sent. */
void tunnel_settle(struct tunnel *tunnel, struct hub *hub);

/* More waits than one who reads leaves: no further bytes are read that might be answered. */
static inline bool tunnel_is_choked(const struct tunnel *tunnel)
{
    size_t waiting;
    embd__tls_outgoing(tunnel->session, &waiting);
    return tunnel->rest != NULL && waiting >= TLS_RECORD_BYTES;
}

/* Gives the socket what it takes at once. Returns an error of libuv's, or 0. */
int tunnel_send(struct tunnel *tunnel, uv_stream_t *stream);
/* Takes what is left into rest_buf, until tunnel_rest_sent. False: nothing is left. */
bool tunnel_take_rest(struct tunnel *tunnel);
void tunnel_rest_sent(struct tunnel *tunnel);

#endif
