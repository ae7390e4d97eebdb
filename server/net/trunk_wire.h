/* trunk_wire.h - how the bytes of a trunk reach its peer: by its socket, or through TLS over it.
 *
 * What can fail: the socket, and the peer's TLS, which gets an alert. Ciphertext that waits is
 * bounded by what is encrypted at once; a peer that has more of it to take is not read from.
 *
 * Owner: the trunk, on its thread. */
#ifndef EMBD_TRUNK_WIRE_H
#define EMBD_TRUNK_WIRE_H

#include <stdbool.h>
#include <sys/types.h>

#include "proto/errors.h"
#include "server/net/quota.h"

#define TRUNK_IN_BYTES (64u << 10) /* plaintext of one read, at most */

struct tls_session;

struct trunk_wire {
    int fd;
    struct tls_session *tls; /* NULL: plain */
    struct quota *quota;     /* the trunk's */
    size_t charged_bytes;    /* for ciphertext that waits */
    uint64_t sent_bytes;     /* that the socket took */
    bool has_ended;          /* the peer has said that it sends no more */
};

/* To be charged for it, as a connection is. */
size_t trunk_wire_memory(const struct trunk_wire *w);
/* Says that no more comes, as far as the socket takes it at once. The socket stays open. */
void trunk_wire_close(struct trunk_wire *w);
/* Of one that no trunk took: closes the socket, too. */
void trunk_wire_discard(struct trunk_wire *w);

/* How many of n bytes it has taken, also none, where what waited before is sent; -EAGAIN: the
 * socket takes no more now; another negative errno: the peer is gone. */
ssize_t trunk_wire_send(struct trunk_wire *w, const uint8_t *p, size_t n);
/* Ciphertext waits for the socket; */
bool trunk_wire_is_pending(const struct trunk_wire *w);
/* so much, that the peer has to take of it before it is read from. */
bool trunk_wire_is_choked(const struct trunk_wire *w);

/* Into to[TRUNK_IN_BYTES], by way of sealed[TRUNK_IN_BYTES]. > 0: bytes; 0: the peer sends no more;
 * -EINTR: again; -EAGAIN; -EPROTO: `e` says why; another negative errno. *is_empty_out: the socket
 * had no more. */
ssize_t trunk_wire_receive(struct trunk_wire *w, uint8_t *to, uint8_t *sealed, bool *is_empty_out,
                           struct embd__error *e);

#endif
