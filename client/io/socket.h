/* socket.h - a connected stream socket on the loop: resolve, connect, wait for bytes, close. TCP or
 * Unix.
 *
 * Plain sockets under uv_poll rather than uv_tcp: sends have MSG_NOSIGNAL, so that a closed
 * server never raises SIGPIPE in the user's process, and receives scatter directly into the
 * user's arrays. */
#ifndef EMBD_IO_SOCKET_H
#define EMBD_IO_SOCKET_H

#include <sys/uio.h>
#include <uv.h>

#include "client/io/resolve.h"
#include "proto/dial.h"

struct socket;

/* Called on the loop's thread. After on_fail no other call comes; the owner closes the socket. */
struct socket_events {
    void (*on_connect)(void *owner);
    void (*on_ready)(void *owner, bool readable, bool writable);
    void (*on_fail)(void *owner, const char *why); /* while resolving or connecting */
};

/* Where to connect to. */
struct socket_place {
    const struct address *address; /* by TCP, if none of the following is given */
    const char *path;              /* of a Unix socket */
    const struct dialer *dialer;   /* to `shard`; outlives the socket */
    uint32_t shard;
    bool is_admin;
};

/* Begins to connect; the events report the rest, never from within. NULL with `e` set: out of
 * memory, or EMBD_UNREACHABLE. */
struct socket *embd__socket_connect(uv_loop_t *loop, const struct socket_place *place,
                                    const struct socket_events *events, void *owner,
                                    struct embd__error *e);
/* No events come any more; freed when the loop has run. NULL is allowed. */
void embd__socket_close(struct socket *s);

int embd__socket_fd(const struct socket *s);
/* Whether on_ready also reports when bytes can be sent. */
void embd__socket_want_write(struct socket *s, bool want);

/* sendmsg and recvmsg on a connected socket: how many bytes, or a negative errno; -EAGAIN:
 * later. */
ssize_t embd__socket_send(int fd, struct iovec *iov, size_t n);
ssize_t embd__socket_receive(int fd, struct iovec *iov, size_t n);

#endif
