/* unauthenticated.h - connections whose peer has not proved who it is: its TLS handshake is not
 * over, or it has sent no token where tokens are required.
 *
 * Their number is limited (max_strangers). One more displaces the oldest of its own network, or
 * else the oldest of all, so that a flood displaces itself. Each has little time (hello_timeout),
 * one request at a time, and may send UNAUTHENTICATED_BYTES: not a byte more is read. All functions
 * but add and oldest are for connections with is_unauthenticated only. Owner: the shard's thread.
 */
#ifndef EMBD_UNAUTHENTICATED_H
#define EMBD_UNAUTHENTICATED_H

#include "server/net/connection.h"

/* A handshake with a long chain of certificates, and hello. */
#define UNAUTHENTICATED_BYTES (128u << 10)

/* Adds a new connection whose peer is not authenticated yet. Returns the connection to close for
 * it, or NULL. */
struct connection *unauthenticated_add(struct connection *c);
/* The one that has to go where another of `network` comes in by a door (-1: any), and there is no
 * room left; NULL: all there are authenticated. */
struct connection *unauthenticated_oldest(const struct shard_io *io, int door, uint64_t network);
void unauthenticated_remove(struct connection *c);

/* Removes it where its peer is authenticated by now. */
void unauthenticated_look_at(struct connection *c);

/* How much of `bytes` a read may bring; 0: nothing more is read. */
size_t unauthenticated_room(const struct connection *c, size_t bytes);

/* The reason to close it, or NULL. */
const char *unauthenticated_fault(const struct connection *c, uint64_t now_ms);

#endif
