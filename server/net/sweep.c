/* sweep.c - what is done to all connections of a shard: those that rest are closed, and all end
 * with the process. */
#include <poll.h>

#include "server/log/log.h"
#include "server/net/steps.h"
#include "server/net/strangers.h"

enum {
    LINGER_MS = 2000,          /* for the peer to end its side */
    DRAIN_LINGER_MS = 200,     /* the same while the process waits */
    PROGRESS_BYTES = 16 << 10, /* less than this in stall_ms is no progress */
    SLEPT_MS = 1000,           /* between two sweeps: the thread was held up */
};

/* ---- deadlines ---- */

/* True when less than PROGRESS_BYTES were added within the limit. */
static bool has_stalled(struct watch *watch, uint64_t bytes, uint64_t now, uint32_t limit_ms)
{
    if (bytes - watch->bytes >= PROGRESS_BYTES)
        *watch = (struct watch){.since_ms = now, .bytes = bytes};
    return now - watch->since_ms > limit_ms;
}

/* One whose push waits in a round may not be read from, and its end would not be seen behind what
 * it has sent. */
static void look_for_end(struct connection *c)
{
    uv_os_fd_t fd;
    if (c->session.in_round == NULL || c->is_reading ||
        uv_fileno((uv_handle_t *)&c->uv.stream, &fd) < 0)
        return;
    struct pollfd peer = {.fd = fd, .events = POLLRDHUP};
    if (poll(&peer, 1, 0) == 1 && (peer.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0)
        shard_session_half_end(c->hub->shard, &c->session);
}

static void sweep(struct connection *c, uint64_t now)
{
    const struct net_limits *limits = &c->hub->limits;
    uint32_t linger_ms = c->hub->is_draining ? DRAIN_LINGER_MS : LINGER_MS;
    bool is_within_frame = c->state == CONNECTION_OPEN && !intake_is_between_frames(&c->intake);
    const char *fault = strangers_fault(c, now);
    if (fault != NULL)
        connection_drop(c, fault);
    else if (c->state == CONNECTION_LINGERING && now - c->state_since_ms > linger_ms)
        connection_close(c);
    else if (is_within_frame && !c->is_starved &&
             has_stalled(&c->in, c->bytes_in, now, limits->stall_ms))
        connection_drop(c, "a frame does not get on (stall_timeout)");
    else if (c->is_writing && has_stalled(&c->out, connection_out_bytes(c), now, limits->stall_ms))
        connection_drop(c, "the peer does not take its answers (stall_timeout)");
    else if (c->state == CONNECTION_OPEN && limits->idle_ms > 0 && c->n_in_flight == 0 &&
             !is_within_frame && now - c->busy_ms > limits->idle_ms)
        connection_drop(c, "no request (idle_timeout)");
}

/* Whoever waits for memory tries again, those first that came first. */
static void feed_starved(struct hub *hub)
{
    struct connection *c, *next;
    for (c = TAILQ_FIRST(&hub->connections); c != NULL; c = next) {
        next = TAILQ_NEXT(c, in_hub);
        if (c->is_starved && c->state <= CONNECTION_FINISHING)
            digest_retry(c);
    }
}

void connection_sweep(struct hub *hub)
{
    struct connection *c, *next;
    uint64_t now = connection_now_ms(hub), pause = now - hub->swept_ms;
    hub->swept_ms = now;
    if (pause >
        SLEPT_MS) { /* it was this thread that rested; what peers have sent is not read yet */
        TAILQ_FOREACH(c, &hub->connections, in_hub)
        c->in.since_ms = c->out.since_ms = now;
        return;
    }
    for (c = TAILQ_FIRST(&hub->connections); c != NULL; c = next) {
        next = TAILQ_NEXT(c, in_hub);
        if (c->state != CONNECTION_CLOSED)
            sweep(c, now);
        if (c->state == CONNECTION_OPEN)
            look_for_end(c);
    }
    connection_flush_dirty(hub);
    feed_starved(hub); /* last: the others have given back what they held */
}

/* ---- the end ---- */

void connection_review(struct hub *hub)
{
    struct connection *c;
    TAILQ_FOREACH(c, &hub->connections, in_hub)
    if (c->state == CONNECTION_OPEN) {
        shard_session_review(hub->shard, &c->session);
        if (c->session.is_refused) {
            log_event(LOG_INFO, "token_gone", "shard=%u peer=%s", hub->shard_index, c->peer);
            connection_mark(c);
        }
    }
    connection_flush_dirty(hub);
}

void connection_drain(struct hub *hub)
{
    struct connection *c;
    struct exchange *x;
    hub->is_draining = true;
    shard_drain(hub->shard);
    TAILQ_FOREACH(c, &hub->connections, in_hub)
    TAILQ_FOREACH(x, &c->exchanges, in_connection)
    {
        x->is_old = true;
        hub->n_old++;
    }
}

void connection_finish_all(struct hub *hub)
{
    struct connection *c;
    TAILQ_FOREACH(c, &hub->connections, in_hub)
    if (c->state == CONNECTION_OPEN) {
        connection_finish(c);
        connection_mark(c);
    }
    connection_flush_dirty(hub);
}

void connection_close_all(struct hub *hub)
{
    struct connection *c;
    TAILQ_FOREACH(c, &hub->connections, in_hub)
    if (c->state != CONNECTION_CLOSED)
        connection_drop(c, "the process ends");
}
