/* local.h - whether a link may take the Unix socket beside the server's port, instead of TCP: the
 * server is on this host, the socket is the file that the server named, and this user may write to
 * it. Owner: the loop's thread. */
#ifndef EMBD_IO_LOCAL_H
#define EMBD_IO_LOCAL_H

#include "client/io/link.h"

struct local_place;

/* By EMBD_TRANSPORT: tcp, local or auto (the default). EMBD_INVALID. */
int embd__transport_read(enum transport *out, struct embd__error *e);

/* EMBD_UNREACHABLE says why the place that a server named cannot be taken. *owner_out: the user who
 * made it. */
int embd__local_find(const struct local_place *named, uint32_t *owner_out, struct embd__error *e);
/* Whether a process of this user listens at the other end of a connected socket: a token goes
 * there. */
bool embd__local_is_of(int fd, uint32_t owner);

#endif
