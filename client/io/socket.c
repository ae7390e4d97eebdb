/* socket.c - the happy path: look the host up (or read a numeric one), try its addresses one after
 * the other with non-blocking connects, then poll. What can fail: no address, every connect
 * refused; on_fail gets the last cause. Closing is possible in every state. */
#include "client/io/socket.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct target {
    int family;
    socklen_t bytes;
    struct sockaddr_storage name;
};

#define TARGETS_MAX 8u

/* The buffer of a Unix socket does not grow as TCP's does; a large push would go in pieces of 200
 * KiB, and wake both sides for each. The kernel gives no more than net.core.wmem_max. */
#define UNIX_SEND_BYTES (4 << 20)

struct socket {
    const struct socket_events *events;
    void *owner; /* NULL once closed */
    uv_loop_t *loop;
    uv_getaddrinfo_t lookup;
    bool looking_up;
    uv_timer_t kick;             /* so that no callback runs within embd__socket_connect */
    uv_poll_t *poll;             /* of fd; its own memory, because libuv closes it later */
    int fd;                      /* -1: none */
    const struct dialer *dialer; /* that fd comes from; NULL: fd is of a target */
    uint32_t shard;
    bool is_admin;
    bool is_connected;
    uint32_t handles; /* embedded handles and lookups that libuv still knows */
    struct target targets[TARGETS_MAX];
    uint32_t n_targets, next_target;
    int last_errno;
};

static void free_when_unused(struct socket *s)
{
    if (s->owner == NULL && s->handles == 0)
        free(s);
}

static void on_kick_closed(uv_handle_t *handle)
{
    struct socket *s = handle->data;
    s->handles--;
    free_when_unused(s);
}

static void on_poll_closed(uv_handle_t *handle)
{
    free(handle);
}

static void drop_fd(struct socket *s)
{
    if (s->poll != NULL) {
        uv_poll_stop(s->poll);
        uv_close((uv_handle_t *)s->poll, on_poll_closed);
        s->poll = NULL;
    }
    if (s->fd >= 0 && s->dialer != NULL)
        s->dialer->hang_up(s->dialer, s->fd);
    else if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
}

static void try_next(struct socket *s);

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct socket *s = poll->data;
    if (s->is_connected) {
        s->events->on_ready(s->owner, status < 0 || (events & (UV_READABLE | UV_DISCONNECT)) != 0,
                            (events & UV_WRITABLE) != 0);
        /* After a reset libuv looks no more; what had come before it was read now, and the error is
         * still to come. */
        if (status < 0 && s->owner != NULL && s->poll == poll)
            uv_poll_start(poll, UV_READABLE, on_poll);
        return;
    }
    int error = 0;
    socklen_t bytes = sizeof error;
    if (getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0)
        error = errno;
    if (error == 0 && status == 0) {
        s->is_connected = true;
        uv_poll_start(s->poll, UV_READABLE, on_poll);
        s->events->on_connect(s->owner);
        return;
    }
    s->last_errno = error != 0 ? error : -status;
    try_next(s);
}

/* Detects a host that is gone while nothing is sent to it: see failures.c. A failure here costs
 * only that. */
static void set_options(int fd)
{
    const int on = 1, idle_s = 3, pause_s = 1, probes = 3;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &pause_s, sizeof pause_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

/* False: errno says why not. */
static bool begin_poll(struct socket *s)
{
    s->poll = malloc(sizeof *s->poll);
    if (s->poll == NULL || uv_poll_init(s->loop, s->poll, s->fd) != 0) {
        free(s->poll);
        s->poll = NULL;
        errno = ENOMEM;
        return false;
    }
    s->poll->data = s;
    uv_poll_start(s->poll, UV_WRITABLE, on_poll);
    return true;
}

/* A socket that has begun to connect to one target; false: errno says why not. */
static bool begin_connect(struct socket *s, const struct target *target)
{
    s->fd = socket(target->family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (s->fd < 0)
        return false;
    if (target->family == AF_UNIX)
        setsockopt(s->fd, SOL_SOCKET, SO_SNDBUF, &(int){UNIX_SEND_BYTES}, sizeof(int));
    else
        set_options(s->fd);
    if (connect(s->fd, (const struct sockaddr *)&target->name, target->bytes) != 0 &&
        errno != EINPROGRESS)
        return false;
    return begin_poll(s);
}

/* The shard takes its end when its thread comes to it. */
static void dial(struct socket *s)
{
    struct embd__error e = {0};
    s->fd = s->dialer->dial(s->dialer, s->shard, s->is_admin, &e);
    if (s->fd < 0)
        s->events->on_fail(s->owner, e.text);
    else if (!begin_poll(s)) {
        drop_fd(s);
        s->events->on_fail(s->owner, strerror(errno));
    }
}

static void try_next(struct socket *s)
{
    drop_fd(s);
    while (s->next_target < s->n_targets) {
        if (begin_connect(s, &s->targets[s->next_target++]))
            return;
        s->last_errno = errno;
        drop_fd(s);
    }
    s->events->on_fail(s->owner, strerror(s->last_errno));
}

static void on_kick(uv_timer_t *timer)
{
    struct socket *s = timer->data;
    if (s->dialer != NULL)
        dial(s);
    else
        try_next(s);
}

static void add_target(struct socket *s, const struct sockaddr *name, socklen_t bytes)
{
    if (s->n_targets == TARGETS_MAX || bytes > sizeof s->targets[0].name)
        return;
    struct target *target = &s->targets[s->n_targets++];
    target->family = name->sa_family;
    target->bytes = bytes;
    memcpy(&target->name, name, bytes);
}

static void on_lookup(uv_getaddrinfo_t *lookup, int status, struct addrinfo *found)
{
    struct socket *s = lookup->data;
    char why[200];
    s->looking_up = false;
    s->handles--;
    for (const struct addrinfo *a = found; status == 0 && a != NULL; a = a->ai_next)
        add_target(s, a->ai_addr, a->ai_addrlen);
    uv_freeaddrinfo(found);
    if (s->owner == NULL)
        free_when_unused(s);
    else if (status == 0)
        try_next(s);
    else {
        snprintf(why, sizeof why, "its name is not found: %s", uv_strerror(status));
        s->events->on_fail(s->owner, why);
    }
}

static int begin_lookup(struct socket *s, const struct address *address)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    s->lookup.data = s;
    int status =
        uv_getaddrinfo(s->loop, &s->lookup, on_lookup, address->host, address->port, &hints);
    if (status == 0) {
        s->looking_up = true;
        s->handles++;
    }
    return status;
}

/* Fills in a target that needs no lookup; false: a name. */
static bool add_numeric(struct socket *s, const struct address *address)
{
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    int port = atoi(address->port);
    if (uv_ip4_addr(address->host, port, &v4) == 0)
        add_target(s, (const struct sockaddr *)&v4, sizeof v4);
    else if (uv_ip6_addr(address->host, port, &v6) == 0)
        add_target(s, (const struct sockaddr *)&v6, sizeof v6);
    else
        return false;
    return true;
}

static bool add_path(struct socket *s, const char *path)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    size_t bytes = strlen(path);
    if (bytes == 0 || bytes >= sizeof name.sun_path)
        return false;
    memcpy(name.sun_path, path, bytes + 1);
    add_target(s, (const struct sockaddr *)&name, sizeof name);
    return true;
}

/* 0: it begins soon; else libuv's error. */
static int begin(struct socket *s, const struct socket_place *place)
{
    s->dialer = place->dialer;
    s->shard = place->shard;
    s->is_admin = place->is_admin;
    bool has_target =
        place->dialer != NULL ||
        (place->path != NULL ? add_path(s, place->path) : add_numeric(s, place->address));
    if (has_target)
        return uv_timer_start(&s->kick, on_kick, 0, 0);
    return place->path != NULL ? UV_ENAMETOOLONG : begin_lookup(s, place->address);
}

struct socket *embd__socket_connect(uv_loop_t *loop, const struct socket_place *place,
                                    const struct socket_events *events, void *owner,
                                    struct embd__error *e)
{
    struct socket *s = calloc(1, sizeof *s);
    if (s == NULL) {
        embd__error_set(e, EMBD_NO_MEMORY, "no memory for a connection");
        return NULL;
    }
    s->events = events;
    s->owner = owner;
    s->loop = loop;
    s->fd = -1;
    uv_timer_init(loop, &s->kick);
    s->kick.data = s;
    s->handles = 1;
    int status = begin(s, place);
    if (status == 0)
        return s;
    embd__error_set(e, EMBD_UNREACHABLE, "%s", uv_strerror(status));
    embd__socket_close(s);
    return NULL;
}

void embd__socket_close(struct socket *s)
{
    if (s == NULL)
        return;
    drop_fd(s);
    s->owner = NULL;
    if (s->looking_up)
        uv_cancel((uv_req_t *)&s->lookup);
    uv_close((uv_handle_t *)&s->kick, on_kick_closed);
}

int embd__socket_fd(const struct socket *s)
{
    return s->fd;
}

void embd__socket_want_write(struct socket *s, bool want)
{
    uv_poll_start(s->poll, want ? UV_READABLE | UV_WRITABLE : UV_READABLE, on_poll);
}

ssize_t embd__socket_send(int fd, struct iovec *iov, size_t n)
{
    struct msghdr header = {.msg_iov = iov, .msg_iovlen = n};
    for (;;) {
        ssize_t sent = sendmsg(fd, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent >= 0)
            return sent;
        if (errno != EINTR)
            return errno == EWOULDBLOCK ? -EAGAIN : -errno;
    }
}

ssize_t embd__socket_receive(int fd, struct iovec *iov, size_t n)
{
    struct msghdr header = {.msg_iov = iov, .msg_iovlen = n};
    for (;;) {
        ssize_t got = recvmsg(fd, &header, MSG_DONTWAIT);
        if (got >= 0)
            return got;
        if (errno != EINTR)
            return errno == EWOULDBLOCK ? -EAGAIN : -errno;
    }
}
