/* channel.h - what a link sends and receives through: its socket, or TLS over it. The socket stays
 * the link's. Owner: the link. */
#ifndef EMBD_CLIENT_CHANNEL_H
#define EMBD_CLIENT_CHANNEL_H

#include <sys/uio.h>

#include "proto/tls/tls.h"

struct channel {
    int fd;
    struct tls_session *tls;  /* NULL: plain */
    uint8_t *in;              /* [CHANNEL_IN_BYTES] of ciphertext; NULL when plain */
    struct embd__error error; /* of what returned -EPROTO */
    size_t empty_bytes;       /* of ciphertext that came since there was plaintext in it */
};

/* A server that has nothing to say but asks for new keys, each of which has to be answered, is left
 * after so many bytes; the longest record has 16 KiB. */
#define CHANNEL_EMPTY_BYTES (128u << 10)

#define CHANNEL_IN_BYTES   (64u << 10)
#define CHANNEL_SEAL_BYTES (128u << 10) /* encrypted before the socket is asked */

/* A connected socket becomes a channel. `tls` NULL: plain; else the server has to be `host`.
 * EMBD_NO_MEMORY. */
int embd__channel_open(struct channel *ch, int fd, struct tls_context *tls, const char *host,
                       struct embd__error *e);
void embd__channel_close(struct channel *ch); /* also when it was never opened, but zeroed */

/* Before anything is sent. 1: done; 0: goes on when the socket is ready; negative: as below. */
int embd__channel_secure(struct channel *ch);

/* As sendmsg and recvmsg: how many bytes, or a negative errno; -EAGAIN: later. -EPROTO: it is no
 * TLS or nobody to believe, and `error` says why. Through TLS, receive returns fewer bytes than
 * there is room for only when the socket is empty. 0 from receive: the server has ended the stream.
 */
ssize_t embd__channel_send(struct channel *ch, struct iovec *iov, size_t n);
ssize_t embd__channel_receive(struct channel *ch, struct iovec *iov, size_t n);

/* Ciphertext waits for the socket: ask for writability, then flush. */
bool embd__channel_is_pending(const struct channel *ch);
/* 0 or a negative errno, but never -EAGAIN. */
int embd__channel_flush(struct channel *ch);

#endif
