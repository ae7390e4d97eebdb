/* channel.h - what a link sends and receives through: its socket, TLS over it (channel.c), a ring
 * beside it (channel_ring.c), or a line of a trunk (trunk.h). The socket stays the link's. A plain
 * channel is a system call. Owner: the link. */
#ifndef EMBD_IO_CHANNEL_H
#define EMBD_IO_CHANNEL_H

#include "client/io/socket.h"
#include "client/io/trunk.h"

struct channel_ring;
struct trunk_line;
struct tls_context;
struct tls_session;

struct channel {
    int fd;
    struct channel_ring *ring; /* NULL: bytes go through the socket */
    struct trunk_line *line;   /* of the trunk that has the socket; NULL: it is the link's */
    struct tls_session *tls;   /* NULL: plain */
    uint8_t *in;               /* [CHANNEL_IN_BYTES] of ciphertext; NULL when plain */
    struct embd__error error;  /* of what returned -EPROTO */
    size_t empty_bytes;        /* of ciphertext that came since there was plaintext in it */
    uint32_t turn_reads;       /* of the socket that the turn may still make; has_turns */
    bool has_turns;            /* else it is read until the socket is empty */
};

/* Each key update requires an answer. A server that sends nothing else is given up after this
 * many bytes; the longest record has 16 KiB. */
#define CHANNEL_EMPTY_BYTES (128u << 10)

#define CHANNEL_IN_BYTES   (64u << 10)
#define CHANNEL_SEAL_BYTES (128u << 10) /* encrypted before the socket is asked */

/* ---- TLS, channel.c ---- */

/* TLS over the socket of a zeroed channel; the server must be `host`. EMBD_NO_MEMORY. */
int embd__channel_open_tls(struct channel *ch, struct tls_context *tls, const char *host,
                           struct embd__error *e);
void embd__channel_close_tls(struct channel *ch);
int embd__channel_handshake(struct channel *ch);
ssize_t embd__channel_seal(struct channel *ch, struct iovec *iov, size_t n);
ssize_t embd__channel_unseal(struct channel *ch, struct iovec *iov, size_t n);
bool embd__channel_has_ciphertext(const struct channel *ch);
int embd__channel_flush_tls(struct channel *ch);

/* From here on receive reads the socket so many times, and then says -EAGAIN. All that was read has
 * been returned by then: what is left is in the socket, which a poll tells of. */
static inline void embd__channel_begin_turn(struct channel *ch, uint32_t reads)
{
    ch->has_turns = true;
    ch->turn_reads = reads;
}

/* ---- a ring, channel_ring.c ---- */

ssize_t embd__channel_put(struct channel *ch, const struct iovec *iov, size_t n);
ssize_t embd__channel_take(struct channel *ch, const struct iovec *iov, size_t n);
/* The socket has something: doorbells, or its end. */
void embd__channel_hear(struct channel *ch);
/* Also of one without memory. */
void embd__channel_close_ring(struct channel_ring *ring);

/* ---- all ---- */

/* A connected socket becomes a channel; `tls` NULL: plain. EMBD_NO_MEMORY. */
static inline int embd__channel_open(struct channel *ch, int fd, struct tls_context *tls,
                                     const char *host, struct embd__error *e)
{
    *ch = (struct channel){.fd = fd};
    return tls == NULL ? EMBD_OK : embd__channel_open_tls(ch, tls, host, e);
}

/* Also when it was never opened, but zeroed. */
static inline void embd__channel_close(struct channel *ch)
{
    if (ch->tls != NULL)
        embd__channel_close_tls(ch);
    if (ch->ring != NULL)
        embd__channel_close_ring(ch->ring);
    *ch = (struct channel){.fd = -1};
}

/* What has the socket besides `fd`, goes on over that: a descriptor of the same socket. */
static inline struct channel embd__channel_move(struct channel *from, int fd)
{
    struct channel moved = *from;
    *from = (struct channel){.fd = from->fd};
    moved.fd = fd;
    return moved;
}

/* Before anything is sent. 1: done; 0: goes on when the socket is ready; negative: as below. */
static inline int embd__channel_secure(struct channel *ch)
{
    return ch->tls == NULL ? 1 : embd__channel_handshake(ch);
}

/* As sendmsg and recvmsg: the number of bytes, or a negative errno; -EAGAIN: later. -EPROTO: the
 * peer does not speak TLS or is not trusted, and embd__channel_error says why. Through TLS, receive
 * returns fewer bytes than there is room for only when the socket is empty, or the turn is over. 0
 * from receive: the server has ended the stream. */
static inline ssize_t embd__channel_send(struct channel *ch, struct iovec *iov, size_t n)
{
    if (ch->ring != NULL)
        return embd__channel_put(ch, iov, n);
    if (ch->line != NULL)
        return embd__trunk_send(ch->line, iov, n);
    return ch->tls == NULL ? embd__socket_send(ch->fd, iov, n) : embd__channel_seal(ch, iov, n);
}

static inline ssize_t embd__channel_receive(struct channel *ch, struct iovec *iov, size_t n)
{
    if (ch->ring != NULL)
        return embd__channel_take(ch, iov, n);
    if (ch->line != NULL)
        return embd__trunk_receive(ch->line);
    return ch->tls == NULL ? embd__socket_receive(ch->fd, iov, n)
                           : embd__channel_unseal(ch, iov, n);
}

/* Why it returned -EPROTO; EMBD_OK: nobody said. */
static inline const struct embd__error *embd__channel_error(const struct channel *ch)
{
    return ch->line != NULL ? embd__trunk_error(ch->line) : &ch->error;
}

/* Ciphertext waits for the socket: ask for writability, then flush. */
static inline bool embd__channel_is_pending(const struct channel *ch)
{
    return ch->tls != NULL && embd__channel_has_ciphertext(ch);
}

/* 0 or a negative errno, but never -EAGAIN. */
static inline int embd__channel_flush(struct channel *ch)
{
    return ch->tls == NULL ? 0 : embd__channel_flush_tls(ch);
}

#endif
