/* doors.h - where the peers of one shard come in: for data a TCP port and a Unix socket beside it,
 * for administration a Unix socket and perhaps a TCP port. Owner: the shard's thread, but for
 * opening. */
#ifndef EMBD_DOORS_H
#define EMBD_DOORS_H

#include "proto/local/place.h"
#include "server/net/listener.h"
#include "server/net/shard_io.h"

struct doors {
    struct shard_io *io;
    uv_tcp_t tcp, admin; /* handles that were not opened are zero */
    uv_pipe_t local, pipe;
    uint16_t port, admin_port; /* admin_port 0: none */
    struct local_place place;  /* of the data socket; no path: hello tells none */
    char admin_path[108];
    bool is_declined[DOORS_LISTENING]; /* somebody waits there for memory */
};

/* Binds all listeners. Main thread. EMBD_IO, EMBD_TOO_LARGE; what was opened is the loop's then, as
 * in doors_close. */
int doors_open(struct doors *doors, uv_loop_t *uv, struct shard_io *io,
               const struct doors_config *config, struct embd__error *e);
/* Peers that were declined for want of memory are looked at again. */
void doors_accept_declined(struct doors *doors);
/* Takes no more peers; removes the files of the sockets. */
void doors_close(struct doors *doors);

#endif
