/* doors.c - see doors.h. */
#include "server/net/doors.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "server/log/log.h"
#include "server/net/connection.h"

/* ---- peers ---- */

static uv_stream_t *stream_of(struct doors *doors, enum door door)
{
    switch (door) {
    case DOOR_DATA:
        return (uv_stream_t *)&doors->tcp;
    case DOOR_DATA_SOCKET:
        return (uv_stream_t *)&doors->local;
    case DOOR_ADMIN_SOCKET:
        return (uv_stream_t *)&doors->pipe;
    default:
        return (uv_stream_t *)&doors->admin;
    }
}

static void accept_at(struct doors *doors, enum door door)
{
    doors->is_declined[door] =
        !connection_accept(doors->io, stream_of(doors, door), door, doors->is_declined[door]);
}

static void on_peer(uv_stream_t *server, int status)
{
    struct doors *doors = server->data;
    if (status < 0) {
        log_event(LOG_ERROR, "accept_failed", "shard=%u why=\"%s\"", doors->io->shard_index,
                  uv_strerror(status));
        return;
    }
    for (int door = 0; door < DOORS_LISTENING; door++)
        if (stream_of(doors, (enum door)door) == server)
            accept_at(doors, (enum door)door);
}

void doors_accept_declined(struct doors *doors)
{
    for (int door = 0; door < DOORS_LISTENING; door++)
        if (doors->is_declined[door])
            accept_at(doors, (enum door)door);
}

/* ---- opening ---- */

/* Clients have another working directory. */
static void tell_place(struct doors *doors, const char *path)
{
    char *absolute = realpath(path, NULL);
    if (absolute == NULL || !embd__local_look(absolute, &doors->place, NULL)) {
        log_event(LOG_WARN, "no_local_socket", "path=%s why=\"%s\"", path, strerror(errno));
        doors->place.path[0] = '\0';
    }
    free(absolute);
}

/* Beside the admin socket, where nobody asked for one, and with no room for its name: clients use
 * TCP, as before there were data sockets. */
static bool does_without(const struct doors_config *config, const struct embd__error *e)
{
    if (e->status != EMBD_TOO_LARGE || strcmp(config->local_dir, config->admin_dir) != 0)
        return false;
    log_event(LOG_WARN, "no_local_socket",
              "path=%s why=\"%s: name a shorter local_socket, or off\"", config->local_dir,
              e->text);
    return true;
}

static int open_data_socket(struct doors *doors, uv_loop_t *uv, const struct doors_config *config,
                            struct embd__error *e)
{
    char path[108];
    if (config->local_dir == NULL)
        return EMBD_OK;
    int status = data_socket_path(config->local_dir, doors->port, path, e);
    if (does_without(config, e)) {
        *e = (struct embd__error){.status = EMBD_OK};
        return EMBD_OK;
    }
    if (status == EMBD_OK)
        status = listener_open_pipe(uv, &doors->local, path, config->local_group, on_peer, e);
    if (status == EMBD_OK)
        tell_place(doors, path);
    return status;
}

static int open_admin_socket(struct doors *doors, uv_loop_t *uv, const char *dir,
                             struct embd__error *e)
{
    int status = admin_socket_path(dir, doors->port, doors->admin_path, e);
    if (status != EMBD_OK)
        return status;
    return listener_open_pipe(uv, &doors->pipe, doors->admin_path, NO_GROUP, on_peer, e);
}

int doors_open(struct doors *doors, uv_loop_t *uv, struct shard_io *io,
               const struct doors_config *config, struct embd__error *e)
{
    doors->io = io;
    if (config->is_private)
        return EMBD_OK;
    int status = listener_open_tcp(uv, &doors->tcp, &config->address, on_peer, &doors->port, e);
    if (status == EMBD_OK)
        status = open_data_socket(doors, uv, config, e);
    if (status == EMBD_OK)
        status = open_admin_socket(doors, uv, config->admin_dir, e);
    if (status == EMBD_OK && config->admin_address != NULL)
        status = listener_open_tcp(uv, &doors->admin, config->admin_address, on_peer,
                                   &doors->admin_port, e);
    for (int door = 0; door < DOORS_LISTENING; door++)
        stream_of(doors, (enum door)door)->data = doors;
    return status;
}

void doors_close(struct doors *doors)
{
    for (int door = 0; door < DOORS_LISTENING; door++) {
        uv_handle_t *handle = (uv_handle_t *)stream_of(doors, (enum door)door);
        doors->is_declined[door] = false;
        if (handle->loop != NULL && !uv_is_closing(handle))
            uv_close(handle, NULL); /* a pipe's removes the file */
    }
}
