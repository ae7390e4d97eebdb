/* accept.c - a peer comes in: it gets a connection, perhaps with TLS, or is turned away. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/log/log.h"
#include "server/access/access.h"
#include "server/net/adopting.h"
#include "server/net/connection_internal.h"
#include "server/net/trunks.h"

/* Of the data socket, whose buffer does not grow as TCP's does: a chunk of rows goes at once. The
 * kernel gives no more than net.core.wmem_max. */
enum { SOCKET_SEND_BYTES = 4 << 20 };

/* Addresses that one user can choose from count as one. */
static uint64_t network_of(const struct sockaddr_storage *address)
{
    const struct in6_addr *v6 = &((const struct sockaddr_in6 *)address)->sin6_addr;
    uint64_t first = 0;
    uint32_t last = 0;
    if (address->ss_family == AF_INET)
        return ((const struct sockaddr_in *)address)->sin_addr.s_addr;
    memcpy(&first, v6->s6_addr, sizeof first);
    memcpy(&last, v6->s6_addr + 12, sizeof last);
    return IN6_IS_ADDR_V4MAPPED(v6) ? last : first;
}

/* Of the data socket: a user counts as one network. */
static void name_local_peer(struct connection *c)
{
    struct ucred peer = {.pid = 0};
    socklen_t bytes = sizeof peer;
    uv_os_fd_t fd;
    if (uv_fileno((uv_handle_t *)&c->uv.pipe, &fd) < 0 ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0)
        return;
    c->network = peer.uid;
    snprintf(c->peer, sizeof c->peer, "local:user-%u:process-%d", (unsigned)peer.uid,
             (int)peer.pid);
}

static void name_tcp_peer(struct connection *c)
{
    struct sockaddr_storage address;
    int bytes = sizeof address;
    char host[48] = "?";
    if (uv_tcp_getpeername(&c->uv.tcp, (struct sockaddr *)&address, &bytes) < 0)
        return;
    c->network = network_of(&address);
    bool is_v6 = address.ss_family == AF_INET6;
    if (is_v6)
        uv_ip6_name((struct sockaddr_in6 *)&address, host, sizeof host);
    else
        uv_ip4_name((struct sockaddr_in *)&address, host, sizeof host);
    in_port_t port = is_v6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                           : ((struct sockaddr_in *)&address)->sin_port;
    snprintf(c->peer, sizeof c->peer, is_v6 ? "[%s]:%u" : "%s:%u", host, ntohs(port));
}

static void name_peer(struct connection *c)
{
    if (c->door == DOOR_TRUNK)
        return; /* connection_adopt knows it */
    snprintf(c->peer, sizeof c->peer, "admin");
    if (c->door == DOOR_DATA_SOCKET)
        name_local_peer(c);
    else if (c->door != DOOR_ADMIN_SOCKET)
        name_tcp_peer(c);
}

static uint32_t limit_of(const struct shard_io *io, enum door door)
{
    return door_room(door) == DOOR_DATA ? io->limits.connections : LIMIT_ADMIN_CONNECTIONS;
}

/* Makes room at the door of c, which counts there already; an unauthenticated connection goes for
 * it. */
static bool find_room(const struct connection *c, struct embd__error *e)
{
    const struct shard_io *io = c->io;
    uint32_t limit = limit_of(io, c->door);
    if (shard_io_in_room(io, c->door) <= limit)
        return true;
    struct connection *other = unauthenticated_oldest(io, (int)c->door, c->network);
    if (other == NULL) {
        embd__error_set(e, EMBD_BUSY,
                        door_room(c->door) == DOOR_DATA
                            ? "the shard has %u connections, the limit is %u (max_connections); "
                              "operators come in by its admin socket: embctl --servers SOCKET"
                            : "the admin listener has %u connections, the limit is %u",
                        limit, limit);
        return false;
    }
    connection_drop(other, "it is not authenticated, and others connect (max_connections)");
    return true;
}

static bool has_tls(const struct connection *c)
{
    return c->io->credentials.tls != NULL && !door_is_socket(c->door);
}

/* Charges a connection, and opens its TLS session. Operators on this machine get in though no
 * memory is left: they are few. */
static int charge(struct connection *c, struct embd__error *e)
{
    struct quota *quota = c->io->pool.quota;
    c->charged_bytes = quota_take_connection(quota, CONNECTION_BYTES) ? CONNECTION_BYTES : 0;
    if (c->charged_bytes == 0 && c->door != DOOR_ADMIN_SOCKET)
        return embd__error_set(e, EMBD_BUSY,
                               "no memory for a connection: connections have %llu bytes, "
                               "the limit is half of %llu (frame_memory)",
                               (unsigned long long)atomic_load(&quota->connections),
                               (unsigned long long)quota->limit);
    if (has_tls(c))
        c->tls = tls_connection_open(c->io, e);
    return has_tls(c) && c->tls == NULL ? e->status : EMBD_OK;
}

/* True: c has what it needs. */
static bool find_memory(struct connection *c, struct embd__error *e)
{
    struct connection *other;
    while (charge(c, e) != EMBD_OK) {
        if (c->charged_bytes > 0)
            quota_give_connection(c->io->pool.quota, CONNECTION_BYTES);
        c->charged_bytes = 0;
        other = unauthenticated_oldest(c->io, -1, c->network);
        if (e->status != EMBD_BUSY || other == NULL)
            return false;
        *e = (struct embd__error){0};
        connection_drop(other,
                        "it is not authenticated, and others need its memory (frame_memory)");
    }
    return true;
}

/* Says why, as far as the socket takes it at once, and closes. */
static void turn_away(struct connection *c, int status, const char *why)
{
    if (!has_tls(c)) {
        struct msg notice;
        embd__msg_init(&notice);
        embd__msg_error_notice(&notice, status, why);
        uv_buf_t buf = uv_buf_init((char *)notice.head, notice.head_bytes);
        uv_try_write(&c->uv.stream, &buf, 1);
        embd__msg_fini(&notice);
    }
    connection_drop(c, why);
}

/* Only its owner can reach the admin socket. */
static void begin_session(struct connection *c)
{
    c->session.is_admin = c->listener == LISTENER_ADMIN;
    shared_begin(c);
    if (c->door == DOOR_DATA_SOCKET)
        c->session.ring = shared_agree_ring;
    if (c->door == DOOR_ADMIN_SOCKET)
        c->session.grant = &grant_of_owner;
    bool has_data = c->door == DOOR_DATA_SOCKET || c->door == DOOR_DATA;
    c->session.trunk_shards = has_data ? trunks_shards(c->io->trunks) : 0;
    c->session.trunk = connection_leave;
    c->session.is_sealed = has_tls(c);
}

static struct connection *connection_new(struct shard_io *io, enum door door)
{
    struct connection *c = calloc(1, sizeof *c);
    if (c == NULL)
        return NULL;
    c->io = io;
    c->door = door;
    c->listener = door_room(door) == DOOR_DATA ? LISTENER_DATA : LISTENER_ADMIN;
    c->state = CONNECTION_PAUSED;
    c->began_ms = c->busy_ms = connection_now_ms(io);
    begin_session(c);
    TAILQ_INIT(&c->exchanges);
    outlet_init(&c->outlet);
    if ((door_is_socket(door) ? uv_pipe_init(io->uv, &c->uv.pipe, 0)
                              : uv_tcp_init(io->uv, &c->uv.tcp)) < 0) {
        free(c);
        return NULL;
    }
    c->uv.stream.data = c;
    TAILQ_INSERT_TAIL(&io->connections, c, in_io);
    io->n_at[door]++;
    return c;
}

static void set_socket(struct connection *c)
{
    int bytes = SOCKET_SEND_BYTES;
    if (c->door == DOOR_DATA_SOCKET)
        uv_send_buffer_size((uv_handle_t *)&c->uv.pipe, &bytes);
    if (door_is_socket(c->door))
        return;
    uv_tcp_nodelay(&c->uv.tcp, 1);
    uv_tcp_keepalive(&c->uv.tcp, 1, 60);
}

static void let_in(struct connection *c)
{
    struct embd__error e = {0};
    name_peer(c);
    if (!find_room(c, &e) || !find_memory(c, &e)) {
        turn_away(c, e.status, e.text);
        return;
    }
    set_socket(c);
    log_event(LOG_DEBUG, "connection_opened", "shard=%u peer=%s", c->io->shard_index, c->peer);
    struct connection *oldest = unauthenticated_add(c);
    if (oldest != NULL)
        connection_drop(oldest, "too many connections are not authenticated (max_strangers)");
    connection_set_reading(c);
}

bool connection_accept(struct shard_io *io, uv_stream_t *server, enum door door, bool is_told)
{
    struct connection *c = connection_new(io, door);
    if (c == NULL && !is_told)
        log_event(LOG_ERROR, "accept_failed", "shard=%u why=\"out of memory\"", io->shard_index);
    if (c == NULL)
        return false;
    int status = uv_accept(server, &c->uv.stream);
    if (status < 0) {
        connection_drop(c, uv_strerror(status));
        return true;
    }
    let_in(c);
    return true;
}

void connection_adopt(struct shard_io *io, int fd, enum door door, const struct adopted_peer *peer)
{
    struct connection *c = connection_new(io, door);
    int status = c == NULL ? UV_ENOMEM : uv_pipe_open(&c->uv.pipe, fd);
    if (status < 0)
        close(fd);
    if (c == NULL)
        return;
    c->is_adopted = status == 0;
    if (peer == NULL) {
        c->session.grant = &grant_of_owner;
        c->session.is_own_process = true;
    } else {
        memcpy(c->peer, peer->name, sizeof c->peer);
        c->network = peer->network;
    }
    if (status == 0)
        let_in(c);
    else
        connection_drop(c, uv_strerror(status));
}
