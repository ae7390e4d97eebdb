/* ring.c - the memory of a connection whose bytes go through a ring (proto/local/ring.h): how it
 * comes, what is put into it, and who is looked at. ring_turn.c has the road of such a connection.
 *
 * `ring` brings the memory, as `share` does. Doorbells are bytes on the socket, sent in a way that
 * cannot block; an eventfd of the peer's could be set to. */
#include <errno.h>
#include <sys/socket.h>

#include "server/net/connection_internal.h"

/* ---- the memory ---- */

int ring_agree(struct shard_session *session, uint64_t requests, uint64_t answers,
               struct embd__error *e)
{
    struct connection *c = connection_of_session(session);
    struct connection_ring *r = &c->ring;
    if (r->base != NULL)
        return embd__error_set(e, EMBD_INVALID, "ring: the connection has one already");
    if (!embd__ring_fits(requests, answers))
        return embd__error_set(e, EMBD_INVALID,
                               "ring fields 'requests' and 'answers' are %llu and %llu, expected "
                               "powers of two from %u to %u",
                               (unsigned long long)requests, (unsigned long long)answers,
                               RING_LEAST_BYTES, RING_MOST_BYTES);
    r->bytes = embd__ring_total(requests, answers);
    r->base = shared_take(c, "ring", "fields 'requests' and 'answers'", r->bytes, e);
    if (r->base == NULL)
        return e->status;
    embd__ring_init(&r->ring, r->base, requests, answers, true);
    r->state = RING_AGREED;
    ring_watch(c);
    return EMBD_OK;
}

void ring_unwatch(struct connection *c)
{
    if (!c->ring.is_watched)
        return;
    c->ring.is_watched = false;
    c->io->n_ringing--;
    TAILQ_REMOVE(&c->io->ringing, c, in_ringing);
}

void ring_close(struct connection *c)
{
    ring_unwatch(c);
    if (c->ring.base != NULL)
        shared_give(c, c->ring.base, c->ring.bytes);
    c->ring.base = NULL;
    c->ring.state = RING_NONE;
}

/* ---- bytes ---- */

/* One that does not fit need not: the peer has others to read. False: it is gone, or cannot be
 * woken, and both sides see the end of the connection. */
bool ring_doorbell(struct connection *c)
{
    uv_os_fd_t fd;
    ssize_t sent;
    if (uv_fileno((uv_handle_t *)&c->uv.pipe, &fd) != 0)
        return false;
    do
        sent = send(fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    if (sent == 1 || errno == EAGAIN || errno == EWOULDBLOCK)
        return true;
    shutdown(fd, SHUT_RDWR);
    return false;
}

size_t ring_put(struct connection *c)
{
    const struct outlet *out = &c->outlet;
    size_t n = 0, put;
    for (uint32_t i = out->first; i < out->n; i++) {
        n += put = embd__ring_put(&c->ring.ring, out->bufs[i].base, out->bufs[i].len);
        if (put < out->bufs[i].len)
            break;
    }
    if (n > 0 && embd__ring_publish(&c->ring.ring))
        ring_doorbell(c);
    return n;
}

/* ---- who is looked at ---- */

void ring_watch(struct connection *c)
{
    if (c->ring.is_watched || c->ring.state == RING_NONE)
        return;
    embd__ring_wake(&c->ring.ring);
    c->ring.is_watched = true;
    c->io->n_ringing++;
    TAILQ_INSERT_TAIL(&c->io->ringing, c, in_ringing);
}
