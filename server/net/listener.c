/* listener.c - see listener.h. */
#include "server/net/listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/local/place.h"

enum { BACKLOG = 511 };

/* ---- addresses ---- */

/* Splits "host:port" and "[host]:port"; false: neither. */
static bool split(const char *text, char *host, size_t host_bytes, const char **port_out)
{
    const char *colon = strrchr(text, ':');
    if (colon == NULL || colon == text)
        return false;
    const char *begin = text, *end = colon;
    if (*begin == '[') {
        begin++;
        if (*--end != ']')
            return false;
    }
    size_t bytes = (size_t)(end - begin);
    if (bytes == 0 || bytes >= host_bytes)
        return false;
    memcpy(host, begin, bytes);
    host[bytes] = '\0';
    *port_out = colon + 1;
    return true;
}

static bool read_port(const char *text, uint16_t *out)
{
    char *end;
    if (*text < '0' || *text > '9')
        return false;
    unsigned long port = strtoul(text, &end, 10);
    if (*end != '\0' || port > 65535)
        return false;
    *out = (uint16_t)port;
    return true;
}

static bool is_v6(const struct listen_address *address)
{
    return address->socket.ss_family == AF_INET6;
}

static const struct in6_addr *v6(const struct listen_address *address)
{
    return &((const struct sockaddr_in6 *)&address->socket)->sin6_addr;
}

static uint32_t v4(const struct listen_address *address)
{
    return ntohl(((const struct sockaddr_in *)&address->socket)->sin_addr.s_addr);
}

bool listen_address_is_loopback(const struct listen_address *address)
{
    return is_v6(address) ? IN6_IS_ADDR_LOOPBACK(v6(address)) : v4(address) >> 24 == 127;
}

bool listen_address_is_any(const struct listen_address *address)
{
    return is_v6(address) ? IN6_IS_ADDR_UNSPECIFIED(v6(address)) : v4(address) == 0;
}

int listen_address_read(const char *text, struct listen_address *out, struct embd__error *e)
{
    const char *port;
    if (!split(text, out->host, sizeof out->host, &port) || !read_port(port, &out->port))
        return embd__error_set(e, EMBD_INVALID, "'%.100s' is not an address, expected HOST:PORT",
                               text);
    const char *host = strcmp(out->host, "localhost") == 0 ? "127.0.0.1" : out->host;
    if (uv_ip4_addr(host, out->port, (struct sockaddr_in *)&out->socket) != 0 &&
        uv_ip6_addr(host, out->port, (struct sockaddr_in6 *)&out->socket) != 0)
        return embd__error_set(e, EMBD_INVALID, "'%.100s': the host is not an IP address", text);
    return EMBD_OK;
}

void listen_address_write(const struct listen_address *address, uint16_t port, char *out,
                          size_t out_bytes)
{
    snprintf(out, out_bytes, is_v6(address) ? "[%s]:%u" : "%s:%u", address->host, port);
}

void listen_address_move(struct listen_address *address, uint32_t by)
{
    address->port = (uint16_t)(address->port + by);
    if (address->socket.ss_family == AF_INET6)
        ((struct sockaddr_in6 *)&address->socket)->sin6_port = htons(address->port);
    else
        ((struct sockaddr_in *)&address->socket)->sin_port = htons(address->port);
}

/* ---- data ---- */

static uint16_t bound_port(const uv_tcp_t *tcp)
{
    struct sockaddr_storage address = {0};
    int bytes = sizeof address;
    uv_tcp_getsockname(tcp, (struct sockaddr *)&address, &bytes);
    return ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                                               : ((struct sockaddr_in *)&address)->sin_port);
}

int listener_open_tcp(uv_loop_t *uv, uv_tcp_t *tcp, const struct listen_address *address,
                      uv_connection_cb on_connection, uint16_t *port_out, struct embd__error *e)
{
    int status = uv_tcp_init(uv, tcp);
    if (status == 0)
        status = uv_tcp_bind(tcp, (const struct sockaddr *)&address->socket, 0);
    if (status == 0)
        status = uv_listen((uv_stream_t *)tcp, BACKLOG, on_connection);
    if (status < 0)
        return embd__error_set(e, EMBD_IO, "cannot listen on %s port %u: %s", address->host,
                               address->port, uv_strerror(status));
    *port_out = bound_port(tcp);
    return EMBD_OK;
}

/* ---- Unix sockets ---- */

static int socket_path(const char *what, const char *dir, uint16_t port, const char *suffix,
                       char out[108], struct embd__error *e)
{
    int bytes = snprintf(out, 108, "%s/%u%s", dir, port, suffix);
    if (bytes >= 108)
        return embd__error_set(e, EMBD_TOO_LARGE,
                               "the %s socket's path %.120s/%u%s has %d bytes, the limit is 107",
                               what, dir, port, suffix, bytes);
    return EMBD_OK;
}

int admin_socket_path(const char *dir, uint16_t port, char out[108], struct embd__error *e)
{
    return socket_path("admin", dir, port, ".sock", out, e);
}

int data_socket_path(const char *dir, uint16_t port, char out[108], struct embd__error *e)
{
    return socket_path("data", dir, port, LOCAL_SUFFIX, out, e);
}

/* A service may be forbidden to change groups, and needs not to for its own. */
static bool give_to(const char *path, uint32_t group)
{
    struct stat found;
    return lstat(path, &found) == 0 &&
           (found.st_gid == group || lchown(path, (uid_t)-1, group) == 0);
}

/* A directory that was made is for the group from its beginning on. */
static int make_dir(const char *dir, uint32_t group, struct embd__error *e)
{
    if (mkdir(dir, group != NO_GROUP ? 0750 : 0700) != 0)
        return errno == EEXIST ? EMBD_OK
                               : embd__error_set(e, EMBD_IO, "cannot create the directory %s: %s",
                                                 dir, strerror(errno));
    if (group != NO_GROUP && !give_to(dir, group))
        return embd__error_set(e, EMBD_IO, "cannot give the directory %s to group %u: %s", dir,
                               group, strerror(errno));
    return EMBD_OK;
}

int socket_dir_prepare(const char *dir, uint32_t group, struct embd__error *e)
{
    struct stat found;
    if (make_dir(dir, group, e) != EMBD_OK)
        return e->status;
    if (lstat(dir, &found) != 0)
        return embd__error_set(e, EMBD_IO, "cannot look at the directory %s: %s", dir,
                               strerror(errno));
    if (!S_ISDIR(found.st_mode))
        return embd__error_set(e, EMBD_IO, "%s, for sockets, is not a directory", dir);
    if (found.st_uid != geteuid())
        return embd__error_set(e, EMBD_IO,
                               "the directory %s, for sockets, belongs to user %u, expected %u",
                               dir, (unsigned)found.st_uid, (unsigned)geteuid());
    if ((found.st_mode & 022) != 0)
        return embd__error_set(
            e, EMBD_IO, "the directory %s, for sockets, has mode %04o; others may write there", dir,
            (unsigned)(found.st_mode & 07777));
    return EMBD_OK;
}

/* Removes the socket of a server that has ended. Any other file stays, and bind reports it. */
static void remove_stale(const char *path)
{
    struct stat found;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (lstat(path, &found) != 0 || !S_ISSOCK(found.st_mode))
        return;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return;
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    if (connect(fd, (const struct sockaddr *)&address, sizeof address) != 0 &&
        errno == ECONNREFUSED)
        unlink(path);
    close(fd);
}

/* Nobody connects before it listens. The umask would be the whole process's, which may have other
 * threads. */
static int let_in(const char *path, uint32_t group)
{
    bool has_group = group != NO_GROUP;
    bool is_done =
        (!has_group || give_to(path, group)) && chmod(path, has_group ? 0660 : 0600) == 0;
    return is_done ? 0 : uv_translate_sys_error(errno);
}

int listener_open_pipe(uv_loop_t *uv, uv_pipe_t *pipe, const char *path, uint32_t group,
                       uv_connection_cb on_connection, struct embd__error *e)
{
    remove_stale(path);
    int status = uv_pipe_init(uv, pipe, 0);
    if (status == 0)
        status = uv_pipe_bind(pipe, path);
    if (status == 0)
        status = let_in(path, group);
    if (status == 0)
        status = uv_listen((uv_stream_t *)pipe, BACKLOG, on_connection);
    if (status < 0)
        return embd__error_set(e, EMBD_IO, "cannot listen on %s: %s", path, uv_strerror(status));
    return EMBD_OK;
}
