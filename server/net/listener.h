/* listener.h - where peers arrive: a TCP port for data, a Unix socket for administration. */
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

/* Creates `dir` (0700) if it does not exist, and checks that nobody else can create files there. */
int admin_dir_prepare(const char *dir, struct embd__error *e);

/* Binds and listens; port 0 takes any free one. The handle is initialized in every case; close it
 * with uv_close. EMBD_IO with the cause. */
int listener_open_tcp(uv_loop_t *uv, uv_tcp_t *tcp, const struct listen_address *address,
                      uv_connection_cb on_connection, uint16_t *port_out, struct embd__error *e);

/* Binds with mode 0600 and listens. Replaces a socket without a listener. Only while the process
 * has one thread. */
int listener_open_pipe(uv_loop_t *uv, uv_pipe_t *pipe, const char *path,
                       uv_connection_cb on_connection, struct embd__error *e);

#endif
