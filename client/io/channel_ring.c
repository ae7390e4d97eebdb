/* channel_ring.c - a channel through a ring: bytes are copied, and the server woken where it
 * sleeps. What is on the socket is doorbells, and in the end the connection's. */
#include <errno.h>
#include <sys/socket.h>

#include "client/io/channel.h"
#include "client/io/channel_ring.h"
#include "client/io/ring_memory.h"

enum { DOORBELLS_PER_READ = 256 };

static int fault(struct channel *ch)
{
    embd__error_set(&ch->error, EMBD_PROTOCOL, "the positions in the ring are impossible");
    return -EPROTO;
}

/* One that does not fit need not: the server has others to read. A connection that has ended shows
 * it on the socket. 0, or a negative errno: the server may sleep for good. */
static int ring_doorbell(const struct channel *ch)
{
    ssize_t sent;
    do
        sent = send(ch->fd, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    bool is_heard = sent == 1 || errno == EAGAIN || errno == EWOULDBLOCK || errno == EPIPE ||
                    errno == ECONNRESET;
    return is_heard ? 0 : -errno;
}

ssize_t embd__channel_put(struct channel *ch, const struct iovec *iov, size_t n)
{
    struct ring *ring = &ch->ring->ring;
    size_t total = 0;
    if (embd__ring_room(ring) < 0)
        return fault(ch);
    for (size_t i = 0; i < n; i++) {
        size_t put = embd__ring_put(ring, iov[i].iov_base, iov[i].iov_len);
        total += put;
        if (put < iov[i].iov_len)
            break;
    }
    if (total == 0)
        return -EAGAIN;
    int error = embd__ring_publish(ring) ? ring_doorbell(ch) : 0;
    return error < 0 ? error : (ssize_t)total;
}

ssize_t embd__channel_take(struct channel *ch, const struct iovec *iov, size_t n)
{
    struct channel_ring *r = ch->ring;
    size_t total = 0, got;
    int64_t ready = embd__ring_ready(&r->ring);
    if (ready < 0)
        return fault(ch);
    if (ready == 0)
        return r->has_ended ? 0 : r->error != 0 ? r->error : -EAGAIN;
    for (size_t i = 0; i < n; i++) {
        total += got = embd__ring_take(&r->ring, iov[i].iov_base, iov[i].iov_len);
        if (got < iov[i].iov_len)
            break; /* what comes meanwhile goes there, and not into the next */
    }
    int error = embd__ring_release(&r->ring) ? ring_doorbell(ch) : 0;
    return error < 0 ? error : (ssize_t)total;
}

void embd__channel_hear(struct channel *ch)
{
    uint8_t doorbells[DOORBELLS_PER_READ];
    ssize_t got = recv(ch->fd, doorbells, sizeof doorbells, MSG_DONTWAIT);
    if (got == 0)
        ch->ring->has_ended = true;
    else if (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
        ch->ring->error = -errno;
}

void embd__channel_close_ring(struct channel_ring *ring)
{
    embd__ring_memory_close(ring);
    *ring = (struct channel_ring){.memory = NULL};
}
