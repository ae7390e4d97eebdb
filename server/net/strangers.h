/* strangers.h - connections whose peer has not said who it is: the TLS handshake is not over, or no
 * token was shown where tokens are asked for.
 *
 * They are few (when one too many comes, the oldest of its own network goes, or where there is none
 * the oldest of all: those who linger keep nobody out, and a flood displaces itself), have little
 * time, one request at a time, and may send little: not a byte more is read. Owner: the shard's
 * thread. */
#ifndef EMBD_STRANGERS_H
#define EMBD_STRANGERS_H

#include "server/net/connection.h"

/* Bytes a stranger may send: a handshake with a long chain of certificates, and hello. */
#define STRANGER_BYTES (128u << 10)

/* Takes a new connection in where its peer is not known yet. Returns the one that has to go for it,
 * or NULL. */
struct connection *strangers_add(struct connection *c);
/* The one that has to go where another of `network` comes in by a door (-1: any), and there is no
 * room left; NULL: all there are known. */
struct connection *strangers_oldest(const struct hub *hub, int door, uint64_t network);
void strangers_remove(struct connection *c);

/* Lets those go whose peer is known by now. */
void strangers_look_at(struct connection *c);

/* How much of `bytes` a read may bring: of a stranger, what it may still send; 0: nothing more is
 * read. */
size_t strangers_room(const struct connection *c, size_t bytes);

/* Why a stranger has to go, or NULL. */
const char *strangers_fault(const struct connection *c, uint64_t now_ms);

#endif
