/* strangers.h - connections whose peer has not said who it is: the TLS handshake is not over, or no
 * token was shown where tokens are asked for.
 *
 * They are few (the oldest goes when one too many comes, so that those who linger cannot keep
 * others out), have little time, and may send little. Owner: the shard's thread. */
#ifndef EMBD_STRANGERS_H
#define EMBD_STRANGERS_H

#include "connection.h"

/* Bytes a stranger may send: a handshake with a long chain of certificates, and hello. */
#define STRANGER_BYTES (128u << 10)
/* What one read brings of a stranger. */
#define STRANGER_READ_BYTES (16u << 10)

/* Takes a new connection in where its peer is not known yet. Returns the one that has to go for it,
 * or NULL. */
struct connection *strangers_add(struct connection *c);
void strangers_remove(struct connection *c);

/* Lets those go whose peer is known by now. */
void strangers_look_at(struct connection *c);

/* Why a stranger has to go, or NULL. */
const char *strangers_fault(const struct connection *c, uint64_t now_ms);

#endif
