/* ring.c - the road of connections whose bytes go through rings, in place of their sockets.
 *
 * The happy path: `ring` brings memory and is answered by the socket. Then requests come by one
 * ring and answers go by the other. Rings of connections that may have more to do are watched: the
 * loop looks at them in each of its turns, and, where that was worth it lately, for some
 * microseconds before it sleeps. Then the peer learns that we wait (embd__ring_wait), nothing is
 * watched any more, and a doorbell wakes the loop. The socket's end is the connection's.
 *
 * What can fail: the peer writes impossible positions: it is dropped. It does not read its answers,
 * stops within a frame or fills its ring: as on a socket. */
#include "server/net/connection_internal.h"

enum {
    READS_PER_TURN = 4,   /* of one connection, before others have their turn */
    LOOKS_PER_TURN = 100, /* while it spins, before the loop looks at its sockets: some 2 us */
};

/* ---- bytes ---- */

/* False: there is nothing to read, or no memory to read into. */
static bool read_some(struct connection *c)
{
    int64_t ready = embd__ring_ready(&c->ring.ring);
    uv_buf_t buf;
    if (ready < 0)
        connection_drop(c, "the positions in its ring are impossible");
    if (ready <= 0)
        return false;
    connection_on_alloc((uv_handle_t *)&c->uv.stream, IO_READ_BYTES, &buf);
    if (buf.len == 0) {
        connection_starve(c);
        return false;
    }
    size_t n = embd__ring_take(&c->ring.ring, buf.base, buf.len);
    if (embd__ring_release(&c->ring.ring))
        connection_doorbell(c);
    connection_count(c, n);
    connection_take(c, &buf, n);
    return true;
}

static bool has_room(const struct connection *c)
{
    return c->is_writing && embd__ring_room(&c->ring.ring) != 0;
}

/* Whether looking at it brings it on. */
static bool is_due(const struct connection *c)
{
    return has_room(c) || (c->state == CONNECTION_READING &&
                           (c->ring.has_ended || embd__ring_ready(&c->ring.ring) != 0));
}

/* Nothing is left of what the peer wrote before its end. */
static bool is_read_up(const struct connection *c)
{
    return c->ring.has_ended && c->state == CONNECTION_READING &&
           embd__ring_ready(&c->ring.ring) == 0;
}

static void look(struct connection *c)
{
    if (embd__ring_room(&c->ring.ring) < 0) {
        connection_drop(c, "the positions in its ring are impossible");
        return;
    }
    if (has_room(c)) {
        c->is_writing = false;
        connection_go(c);
    }
    for (int i = 0; i < READS_PER_TURN && c->state == CONNECTION_READING && read_some(c); i++)
        ;
    if (is_read_up(c))
        connection_on_end(c);
}

/* ---- doorbells ---- */

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct connection *c = handle->data;
    (void)suggested;
    *buf = uv_buf_init((char *)c->io->read_buffer, IO_READ_BYTES);
}

/* It has ended its side, and may read answers still; or it is gone, and nobody does. */
static void on_end(struct connection *c)
{
    bool is_gone = !connection_doorbell(c);
    c->ring.has_ended = true;
    look(c); /* what was written before the end */
    if (is_gone)
        connection_close(c);
    else if (c->state == CONNECTION_FINISHING || c->state == CONNECTION_LINGERING)
        connection_on_end(c);
    else
        ring_watch(c);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct connection *c = stream->data;
    struct shard_io *io = c->io;
    (void)buf;
    if (n > 0) {
        ring_watch(c);
    } else if (n == UV_EOF) {
        on_end(c);
    } else if (n == UV_ECONNRESET) {
        connection_close(c);
    } else if (n < 0) {
        connection_drop(c, uv_strerror((int)n));
    }
    connection_flush_dirty(io);
}

/* The answer that agreed to it is sent: the socket carries doorbells from now on. */
static void open_ring(struct connection *c)
{
    c->ring.state = RING_OPEN;
    uv_read_stop(&c->uv.stream);
    if (uv_read_start(&c->uv.stream, on_alloc, on_read) < 0)
        connection_drop(c, "cannot read");
}

/* ---- before the loop sleeps ---- */

/* Each of them once, the list as it is now. NULL: all were. */
static struct connection *next_of(struct shard_io *io, uint32_t *left)
{
    struct connection *c = TAILQ_FIRST(&io->ringing);
    if (*left == 0 || c == NULL)
        return NULL;
    --*left;
    TAILQ_REMOVE(&io->ringing, c, in_ringing);
    TAILQ_INSERT_TAIL(&io->ringing, c, in_ringing);
    return c;
}

bool ring_look(struct shard_io *io)
{
    bool found = false;
    uint32_t left = io->n_ringing;
    for (struct connection *c; (c = next_of(io, &left)) != NULL;) {
        if (c->ring.state == RING_AGREED && c->n_in_flight == 0)
            open_ring(c);
        if (!is_due(c))
            continue;
        found = true;
        look(c);
    }
    return found;
}

/* The peer rings for connections that are not watched: none of their events is missed. */
bool ring_sleep(struct shard_io *io)
{
    bool found = false;
    uint32_t left = io->n_ringing;
    for (struct connection *c; (c = next_of(io, &left)) != NULL;) {
        unsigned waits =
            (c->state == CONNECTION_READING ? RING_BYTES : 0u) | (c->is_writing ? RING_ROOM : 0u);
        if (c->ring.state != RING_OPEN)
            continue; /* its answer is on its way */
        if (waits == 0 || embd__ring_wait(&c->ring.ring, waits))
            ring_unwatch(c);
        else
            found = true;
    }
    return found;
}

bool ring_pause(const struct shard_io *io)
{
    const struct connection *c;
    for (int i = 0; i < LOOKS_PER_TURN; i++) {
        embd__spin_pause();
        TAILQ_FOREACH(c, &io->ringing, in_ringing)
        if (is_due(c))
            return true;
    }
    return false;
}
