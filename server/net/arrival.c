/* arrival.c - a peer comes in: it gets a connection and perhaps a tunnel, or is turned away. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "log.h"
#include "steps.h"
#include "strangers.h"

/* The addresses that one user has at will count as one. */
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

static void name_peer(struct connection *c)
{
    struct sockaddr_storage address;
    int bytes = sizeof address;
    char host[48] = "?";
    snprintf(c->peer, sizeof c->peer, "admin");
    if (c->door == DOOR_ADMIN_SOCKET ||
        uv_tcp_getpeername(&c->uv.tcp, (struct sockaddr *)&address, &bytes) < 0)
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

static uint32_t limit_of(const struct hub *hub, enum door door)
{
    return door == DOOR_DATA ? hub->limits.connections : LIMIT_ADMIN_CONNECTIONS;
}

/* Room at the door of c, which counts there already; a stranger goes for it. */
static bool find_room(const struct connection *c)
{
    const struct hub *hub = c->hub;
    if (hub->n_at[c->door] <= limit_of(hub, c->door))
        return true;
    struct connection *stranger = strangers_at(hub, c->door, c->network);
    if (stranger == NULL)
        return false;
    connection_drop(stranger, "others come in (max_connections)");
    return true;
}

/* Says why, as far as the socket takes it at once, and closes. */
static void turn_away(struct connection *c, uint32_t limit)
{
    char text[100];
    if (c->tunnel != NULL) {
        connection_drop(c, "too many connections (max_connections)");
        return;
    }
    snprintf(text, sizeof text, "the shard has %u connections, the limit is %u (max_connections)",
             limit, limit);
    struct msg notice;
    embd__msg_init(&notice);
    embd__msg_error_notice(&notice, EMBD_BUSY, text);
    uv_buf_t buf = uv_buf_init((char *)notice.head, notice.head_bytes);
    uv_try_write(&c->uv.stream, &buf, 1);
    embd__msg_fini(&notice);
    connection_drop(c, text);
}

/* Who may reach the admin socket is its owner. */
static void begin_session(struct connection *c)
{
    c->session.is_admin = c->listener == LISTENER_ADMIN;
    if (c->door == DOOR_ADMIN_SOCKET)
        c->session.grant = &grant_of_owner;
}

static struct connection *connection_new(struct hub *hub, enum door door, struct embd__error *e)
{
    struct connection *c = calloc(1, sizeof *c);
    bool has_tunnel = hub->keys.tls != NULL && door != DOOR_ADMIN_SOCKET;
    enum listener listener = door == DOOR_DATA ? LISTENER_DATA : LISTENER_ADMIN;
    embd__error_set(e, EMBD_NO_MEMORY, "out of memory");
    if (c == NULL)
        return NULL;
    c->hub = hub;
    c->door = door;
    c->listener = listener;
    c->began_ms = c->state_since_ms = c->busy_ms = connection_now_ms(hub);
    begin_session(c);
    TAILQ_INIT(&c->exchanges);
    outlet_init(&c->outlet);
    if (has_tunnel)
        c->tunnel = tunnel_open(hub, e);
    int status = has_tunnel && c->tunnel == NULL ? UV_ENOMEM
                 : door != DOOR_ADMIN_SOCKET     ? uv_tcp_init(hub->uv, &c->uv.tcp)
                                                 : uv_pipe_init(hub->uv, &c->uv.pipe, 0);
    if (status < 0) {
        tunnel_close(c->tunnel, hub);
        free(c);
        return NULL;
    }
    c->uv.stream.data = c;
    TAILQ_INSERT_TAIL(&hub->connections, c, in_hub);
    hub->n_at[door]++;
    return c;
}

static void set_socket(struct connection *c)
{
    if (c->door == DOOR_ADMIN_SOCKET)
        return;
    uv_tcp_nodelay(&c->uv.tcp, 1);
    uv_tcp_keepalive(&c->uv.tcp, 1, 60);
}

bool connection_accept(struct hub *hub, uv_stream_t *server, enum door door, bool is_told)
{
    struct embd__error e = {0};
    struct connection *c = connection_new(hub, door, &e);
    if (c == NULL && is_told)
        return false;
    if (c == NULL) {
        log_event(LOG_ERROR, "accept_failed", "shard=%u why=\"%s\"", hub->shard_index, e.text);
        return false;
    }
    int status = uv_accept(server, &c->uv.stream);
    if (status < 0) {
        connection_drop(c, uv_strerror(status));
        return true;
    }
    name_peer(c);
    if (!find_room(c)) {
        turn_away(c, limit_of(hub, door));
        return true;
    }
    set_socket(c);
    log_event(LOG_DEBUG, "connection_opened", "shard=%u peer=%s", hub->shard_index, c->peer);
    struct connection *oldest = strangers_add(c);
    if (oldest != NULL)
        connection_drop(oldest, "others wait to say who they are (max_strangers)");
    connection_set_reading(c);
    return true;
}
