/* http.c - see http.h.
 *
 * The happy path: on_peer accepts, on_read collects a head, answer() finds its page; a page with
 * figures waits for gather; the page is written, our side closes, and the peer's close ends it.
 *
 * What can fail: a head that is not a request, or too long, is answered with its status; the sweep
 * closes an idle peer. Beyond HTTP_CONNECTIONS the oldest idle connection is closed, so that peers
 * without a request do not keep probes out; without an idle one the newest is refused. */
#include "server/net/http/http.h"

#include "proto/assert.h"

#include <stdlib.h>
#include <string.h>

#include "server/net/http/gather.h"
#include "server/net/http/http_request.h"
#include "server/log/log.h"

enum {
    SWEEP_MS = 250,
    READ_MS = 5000,   /* for a whole head */
    WRITE_MS = 10000, /* for a page to be taken */
    LINGER_MS = 1000, /* for the peer to end its side */
};

enum peer_state { PEER_READING, PEER_WAITING, PEER_WRITING, PEER_LINGERING, PEER_CLOSED };

struct peer {
    uv_tcp_t tcp;
    struct http *http;
    enum peer_state state;
    uint64_t since_ms; /* of the state */
    bool is_charged;   /* for itself */
    char head[HTTP_HEAD_BYTES];
    size_t head_bytes;
    struct http_request request;
    const struct http_page *page; /* of a peer that waits */
    struct text body;
    uint64_t page_bytes; /* charged for it */
    char answer_head[640];
    uv_write_t write;
    uv_shutdown_t shutdown;
    TAILQ_ENTRY(peer) in_http;
};

struct http {
    uv_loop_t *uv;
    uv_tcp_t tcp;
    uv_timer_t sweep;
    struct quota *quota;
    uint16_t port;
    bool is_loopback; /* for this host alone: pages of other sites are not to read it through a
                         browser */
    bool is_stopped;
    bool is_declined; /* a peer waits to be accepted, until there is memory */
    const struct http_process *process;
    struct gather *gather; /* NULL before http_start */
    TAILQ_HEAD(, peer) peers;
    uint32_t n_peers;
};

/* ---- closing ---- */

static void on_closed(uv_handle_t *handle)
{
    struct peer *peer = handle->data;
    struct quota *quota = peer->http->quota;
    TAILQ_REMOVE(&peer->http->peers, peer, in_http);
    quota_give(quota, peer->page_bytes);
    if (peer->is_charged)
        quota_give_connection(quota, sizeof *peer);
    text_fini(&peer->body);
    free(peer);
}

static void move(struct peer *peer, enum peer_state to)
{
    peer->state = to;
    peer->since_ms = uv_now(peer->http->uv);
}

static void close_peer(struct peer *peer)
{
    if (peer->state == PEER_CLOSED)
        return;
    move(peer, PEER_CLOSED);
    peer->http->n_peers--;
    uv_close((uv_handle_t *)&peer->tcp, on_closed);
}

static void on_shutdown(uv_shutdown_t *shutdown, int status)
{
    if (status < 0)
        close_peer(shutdown->data);
}

/* ---- answering ---- */

static void on_written(uv_write_t *write, int status)
{
    struct peer *peer = write->data;
    if (peer->state == PEER_CLOSED)
        return;
    move(peer, PEER_LINGERING);
    if (status < 0 || uv_shutdown(&peer->shutdown, (uv_stream_t *)&peer->tcp, on_shutdown) < 0)
        close_peer(peer);
}

/* Sends peer->body with this status. */
static void send_body(struct peer *peer, int status, const char *type)
{
    if (peer->body.has_failed) {
        log_event(LOG_ERROR, "http_failed", "path=%s why=\"out of memory\"", peer->request.path);
        close_peer(peer);
        return;
    }
    int n =
        http_head_write(peer->answer_head, sizeof peer->answer_head, status, type, peer->body.n);
    EMBD_ASSERT(n > 0 && (size_t)n < sizeof peer->answer_head);
    peer->page_bytes = peer->body.capacity;
    quota_force(peer->http->quota, peer->page_bytes);
    uv_buf_t bufs[2] = {uv_buf_init(peer->answer_head, (unsigned)n),
                        uv_buf_init(peer->body.p, (unsigned)peer->body.n)};
    peer->write.data = peer->shutdown.data = peer;
    move(peer, PEER_WRITING);
    unsigned n_bufs = peer->request.is_head || peer->body.n == 0 ? 1 : 2;
    if (uv_write(&peer->write, (uv_stream_t *)&peer->tcp, bufs, n_bufs, on_written) < 0)
        close_peer(peer);
}

static void refuse(struct peer *peer, int status)
{
    http_refusal_write(&peer->body, status);
    send_body(peer, status, "text/plain; charset=utf-8");
}

static void send_page(struct peer *peer, const struct shard_view *views, uint32_t n)
{
    const struct http *http = peer->http;
    struct http_view view = {http->process, views, n, http_request_has(&peer->request, "verbose")};
    int status = peer->page->write(&peer->body, &view);
    send_body(peer, status, peer->page->type);
}

static void on_gathered(void *arg, const struct shard_view *views, uint32_t n)
{
    struct http *http = arg;
    struct peer *peer, *next;
    for (peer = TAILQ_FIRST(&http->peers); peer != NULL; peer = next) {
        next = TAILQ_NEXT(peer, in_http);
        if (peer->state == PEER_WAITING)
            send_page(peer, views, n);
    }
}

static void answer(struct peer *peer)
{
    struct http *http = peer->http;
    peer->page = http_page_find(peer->request.path);
    if (http->is_loopback && peer->request.has_strange_host) {
        refuse(peer, 421);
    } else if (peer->page == NULL) {
        refuse(peer, 404);
    } else if (!peer->page->needs_figures) {
        send_page(peer, NULL, 0);
    } else {
        move(peer, PEER_WAITING);
        gather_ask(http->gather);
    }
}

/* ---- receiving ---- */

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct peer *peer = handle->data;
    (void)suggested;
    if (peer->state != PEER_READING)
        peer->head_bytes = 0; /* what comes now is thrown away */
    *buf = uv_buf_init(peer->head + peer->head_bytes,
                       (unsigned)(sizeof peer->head - peer->head_bytes));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct peer *peer = stream->data;
    (void)buf;
    if (n < 0 && (n != UV_EOF || peer->state == PEER_READING || peer->state == PEER_LINGERING)) {
        close_peer(peer);
        return;
    }
    if (n <= 0 || peer->state != PEER_READING)
        return;
    peer->head_bytes += (size_t)n;
    int status = http_request_read(peer->head, peer->head_bytes, &peer->request);
    if (status == HTTP_OK)
        answer(peer);
    else if (status != HTTP_MORE)
        refuse(peer, status);
}

static struct peer *peer_new(struct http *http)
{
    struct peer *peer = calloc(1, sizeof *peer);
    if (peer == NULL || uv_tcp_init(http->uv, &peer->tcp) < 0) {
        free(peer);
        return NULL;
    }
    peer->http = http;
    peer->tcp.data = peer;
    move(peer, PEER_READING);
    TAILQ_INSERT_TAIL(&http->peers, peer, in_http);
    http->n_peers++;
    return peer;
}

/* The oldest that has not asked yet, or has its page, goes for a newer one. */
static void find_room(struct http *http)
{
    struct peer *peer;
    if (http->n_peers < HTTP_CONNECTIONS)
        return;
    TAILQ_FOREACH(peer, &http->peers, in_http)
    if (peer->state == PEER_READING || peer->state == PEER_LINGERING) {
        close_peer(peer);
        return;
    }
}

static bool is_charged(struct peer *peer)
{
    peer->is_charged = quota_take_connection(peer->http->quota, sizeof *peer);
    return peer->is_charged;
}

static void on_peer(uv_stream_t *server, int status)
{
    struct http *http = server->data;
    if (status < 0)
        return;
    find_room(http);
    struct peer *peer = peer_new(http);
    http->is_declined = peer == NULL;
    if (peer == NULL)
        return;
    if (uv_accept(server, (uv_stream_t *)&peer->tcp) < 0 ||
        uv_read_start((uv_stream_t *)&peer->tcp, on_alloc, on_read) < 0)
        close_peer(peer);
    else if (http->n_peers > 2 * HTTP_CONNECTIONS)
        close_peer(peer); /* and it was not logged */
    else if (http->n_peers > HTTP_CONNECTIONS || http->gather == NULL || !is_charged(peer))
        refuse(peer, 503);
}

/* ---- deadlines ---- */

static void on_sweep(uv_timer_t *timer)
{
    static const uint64_t limits_ms[] = {
        [PEER_READING] = READ_MS,     [PEER_WAITING] = UINT64_MAX, [PEER_WRITING] = WRITE_MS,
        [PEER_LINGERING] = LINGER_MS, [PEER_CLOSED] = UINT64_MAX,
    };
    struct http *http = timer->data;
    struct peer *peer, *next;
    for (peer = TAILQ_FIRST(&http->peers); peer != NULL; peer = next) {
        next = TAILQ_NEXT(peer, in_http);
        if (uv_now(http->uv) - peer->since_ms > limits_ms[peer->state])
            close_peer(peer);
    }
    if (http->is_declined)
        on_peer((uv_stream_t *)&http->tcp, 0);
}

/* ---- life ---- */

int http_open(uv_loop_t *uv, const struct listen_address *address, struct quota *quota,
              struct http **out, struct embd__error *e)
{
    *out = NULL;
    struct http *http = calloc(1, sizeof *http);
    if (http == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for the HTTP server");
    http->uv = uv;
    http->quota = quota;
    http->is_loopback = listen_address_is_loopback(address);
    TAILQ_INIT(&http->peers);
    http->tcp.data = http->sweep.data = http;
    uv_timer_init(uv, &http->sweep);
    int status = listener_open_tcp(uv, &http->tcp, address, on_peer, &http->port, e);
    *out = http;
    return status;
}

uint16_t http_port(const struct http *http)
{
    return http->port;
}

int http_start(struct http *http, const struct http_process *process, struct loop *const *loops,
               char *const *addresses, struct embd__error *e)
{
    http->process = process;
    uv_timer_start(&http->sweep, on_sweep, SWEEP_MS, SWEEP_MS);
    if (gather_open(http->uv, loops, addresses, process->n_shards, on_gathered, http,
                    &http->gather) != EMBD_OK)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for the figures of %u shards",
                               process->n_shards);
    return EMBD_OK;
}

void http_stop(struct http *http)
{
    if (http == NULL || http->is_stopped)
        return;
    http->is_stopped = true;
    struct peer *peer, *next;
    for (peer = TAILQ_FIRST(&http->peers); peer != NULL; peer = next) {
        next = TAILQ_NEXT(peer, in_http);
        close_peer(peer);
    }
    if (http->gather != NULL)
        gather_stop(http->gather);
    uv_close((uv_handle_t *)&http->tcp, NULL);
    uv_close((uv_handle_t *)&http->sweep, NULL);
}

void http_free(struct http *http)
{
    if (http == NULL)
        return;
    gather_free(http->gather);
    free(http);
}
