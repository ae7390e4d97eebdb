/* sweep.c - what is done to all connections of a shard: turns, deadlines, tokens that are not valid
 * any more, and the end of the process. */
#include <poll.h>

#include "server/log/log.h"
#include "server/net/connection_internal.h"

enum {
    LINGER_MS = 2000,          /* for the peer to end its side */
    DRAIN_LINGER_MS = 200,     /* the same while the process waits */
    PROGRESS_BYTES = 16 << 10, /* less than this in stall_ms does not count as progress */
    SLEPT_MS = 1000,           /* between two sweeps: the thread was held up */
};

/* ---- turns ---- */

bool connection_turn(struct shard_io *io)
{
    struct connection *c;
    while ((c = TAILQ_FIRST(&io->yielding)) != NULL && c->turn.number != io->turn)
        connection_retry(c);
    return !TAILQ_EMPTY(&io->yielding);
}

/* ---- deadlines ---- */

/* True when less than PROGRESS_BYTES were added within the limit. */
static bool has_stalled(struct watch *watch, uint64_t bytes, uint64_t now, uint32_t limit_ms)
{
    if (bytes - watch->bytes >= PROGRESS_BYTES)
        *watch = (struct watch){.since_ms = now, .bytes = bytes};
    return now - watch->since_ms > limit_ms;
}

/* A connection whose push waits in a round, or at a gate, may not be read from: its end would not
 * be seen behind what it has sent. */
static void look_for_end(struct connection *c)
{
    uv_os_fd_t fd;
    bool reads = c->state == CONNECTION_READING;
    bool waits = c->session.in_round != NULL || c->session.gated != NULL;
    if (!waits || reads || uv_fileno((uv_handle_t *)&c->uv.stream, &fd) < 0)
        return;
    struct pollfd peer = {.fd = fd, .events = POLLRDHUP};
    if (poll(&peer, 1, 0) == 1 && (peer.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0)
        shard_session_half_end(c->io->shard, &c->session);
}

static void sweep(struct connection *c, uint64_t now)
{
    const struct net_limits *limits = &c->io->limits;
    uint32_t linger_ms = c->io->is_draining ? DRAIN_LINGER_MS : LINGER_MS;
    bool is_within_frame = connection_is_open(c) && !request_parser_is_between_frames(&c->parser);
    const char *fault = c->is_unauthenticated ? unauthenticated_fault(c, now) : NULL;
    if (fault != NULL)
        connection_drop(c, fault);
    else if (c->state == CONNECTION_LINGERING && now - c->linger_since_ms > linger_ms)
        connection_close(c);
    else if (is_within_frame && c->state == CONNECTION_READING &&
             has_stalled(&c->in, c->bytes_in, now, limits->stall_ms))
        connection_drop(c, "a frame made no progress (stall_timeout)");
    else if (c->is_writing && has_stalled(&c->out, connection_out_bytes(c), now, limits->stall_ms))
        connection_drop(c, "the peer does not read its answers (stall_timeout)");
    else if (connection_is_open(c) && limits->idle_ms > 0 && c->n_in_flight == 0 &&
             !is_within_frame && now - c->busy_ms > limits->idle_ms)
        connection_drop(c, "it sent no request (idle_timeout)");
}

/* Has no memory to read on, or, while it ends, to make rows of an answer in. */
static bool is_starved(const struct connection *c)
{
    bool is_ending = c->state == CONNECTION_FINISHING || c->state == CONNECTION_PEER_ENDED;
    return c->state == CONNECTION_STARVED ||
           (is_ending && !c->is_writing && !outlet_is_empty(&c->outlet));
}

/* Starved connections try again, the oldest first. */
static void retry_starved(struct shard_io *io)
{
    struct connection *c, *next;
    for (c = TAILQ_FIRST(&io->connections); c != NULL; c = next) {
        next = TAILQ_NEXT(c, in_io);
        if (is_starved(c))
            connection_retry(c);
    }
}

void connection_sweep(struct shard_io *io)
{
    struct connection *c, *next;
    uint64_t now = connection_now_ms(io), pause = now - io->swept_ms;
    io->swept_ms = now;
    if (pause >
        SLEPT_MS) { /* it was this thread that rested; what peers have sent is not read yet */
        TAILQ_FOREACH(c, &io->connections, in_io)
        c->in.since_ms = c->out.since_ms = now;
        return;
    }
    for (c = TAILQ_FIRST(&io->connections); c != NULL; c = next) {
        next = TAILQ_NEXT(c, in_io);
        if (c->state != CONNECTION_CLOSED)
            sweep(c, now);
        if (connection_is_open(c))
            look_for_end(c);
        if (c->ring.has_ended) /* no doorbell says that there is room */
            ring_watch(c);
    }
    connection_flush_dirty(io);
    retry_starved(io); /* last: the others have given back what they held */
}

/* ---- the end ---- */

void connection_review(struct shard_io *io)
{
    struct connection *c;
    TAILQ_FOREACH(c, &io->connections, in_io)
    if (connection_is_open(c)) {
        shard_session_review(io->shard, &c->session);
        if (c->session.is_refused) {
            log_event(LOG_INFO, "token_gone", "shard=%u peer=%s", io->shard_index, c->peer);
            connection_mark(c);
        }
    }
    connection_flush_dirty(io);
}

void connection_drain(struct shard_io *io)
{
    struct connection *c;
    struct exchange *x;
    io->is_draining = true;
    shard_drain(io->shard);
    TAILQ_FOREACH(c, &io->connections, in_io)
    TAILQ_FOREACH(x, &c->exchanges, in_connection)
    {
        x->is_old = true;
        io->n_old++;
    }
}

static bool is_working(const struct connection *c)
{
    const struct exchange *x;
    TAILQ_FOREACH(x, &c->exchanges, in_connection)
    if (x->is_with_shard && x->request.state != REQUEST_ANSWERED)
        return true;
    return false;
}

/* To peers that have named themselves: others may not expect it. It goes behind all answers: what
 * the peer has sent, and has no answer for, was not done. While a request is under way that would
 * be false. */
static void say_end(struct connection *c)
{
    if (c->session.client == 0 || c->is_unauthenticated || is_working(c))
        return;
    struct exchange *x = exchange_new(c->io, c);
    if (x == NULL)
        return;
    TAILQ_INSERT_TAIL(&c->exchanges, x, in_connection);
    embd__msg_error_notice(&x->request.answer, EMBD_DRAINING, "the server shuts down");
    c->n_in_flight++;
    outlet_add(&c->outlet, x);
}

void connection_finish_all(struct shard_io *io)
{
    struct connection *c;
    TAILQ_FOREACH(c, &io->connections, in_io)
    if (connection_is_open(c)) {
        say_end(c);
        connection_finish(c);
        connection_mark(c);
    }
    connection_flush_dirty(io);
}

void connection_close_all(struct shard_io *io)
{
    struct connection *c;
    TAILQ_FOREACH(c, &io->connections, in_io)
    if (c->state != CONNECTION_CLOSED)
        connection_drop(c, "the process ends");
}
