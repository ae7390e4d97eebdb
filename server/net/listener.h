/* listener.h - where peers arrive: a TCP port and a Unix socket for data, a Unix socket for
 * administration. */
#ifndef EMBD_LISTENER_H
#define EMBD_LISTENER_H

#include <uv.h>

#include "proto/errors.h"

/* "127.0.0.1:7700", "localhost:0", "[::1]:7700". EMBD_INVALID: not an address. */
struct listen_address {
    char host[64]; /* as written, without brackets */
    uint16_t port;
    struct sockaddr_storage socket;
};
int listen_address_read(const char *text, struct listen_address *out, struct embd__error *e);
/* Only this machine can reach it. */
bool listen_address_is_loopback(const struct listen_address *address);
/* It stands for every address of this machine (0.0.0.0, ::): nothing to connect to. */
bool listen_address_is_any(const struct listen_address *address);
/* "host:port", brackets added where needed. */
void listen_address_write(const struct listen_address *address, uint16_t port, char *out,
                          size_t out_bytes);

/* The address `by` ports further on. */
void listen_address_move(struct listen_address *address, uint32_t by);

/* The path of an admin socket. EMBD_TOO_LARGE: longer than a socket's path can be. */
int admin_socket_path(const char *dir, uint16_t port, char out[108], struct embd__error *e);

/* The path of a data socket. EMBD_TOO_LARGE. */
int data_socket_path(const char *dir, uint16_t port, char out[108], struct embd__error *e);

#define NO_GROUP UINT32_MAX

/* Creates a directory of sockets if it does not exist (0700; with a group 0750), and checks that
 * nobody else can create files there. */
int socket_dir_prepare(const char *dir, uint32_t group, struct embd__error *e);

/* The listeners of a shard; doors.h opens them. */
struct doors_config {
    bool is_private;                            /* no listener: peers come by loop_adopt alone */
    struct listen_address address;              /* port 0: any free one */
    const char *admin_dir;                      /* prepared */
    const char *local_dir;                      /* of the data socket, prepared; NULL: none */
    uint32_t local_group;                       /* that it lets in, or NO_GROUP */
    const struct listen_address *admin_address; /* of a TCP listener for admins; NULL: none */
};

/* Binds and listens; port 0 takes any free one. The handle is initialized in every case; close it
 * with uv_close. EMBD_IO with the cause. */
int listener_open_tcp(uv_loop_t *uv, uv_tcp_t *tcp, const struct listen_address *address,
                      uv_connection_cb on_connection, uint16_t *port_out, struct embd__error *e);

/* Binds with mode 0600, with a group 0660, and listens. Replaces a socket without a listener. */
int listener_open_pipe(uv_loop_t *uv, uv_pipe_t *pipe, const char *path, uint32_t group,
                       uv_connection_cb on_connection, struct embd__error *e);

#endif
