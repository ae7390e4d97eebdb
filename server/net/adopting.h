/* adopting.h - peers of this process on their way to their shard: connected sockets, which no
 * listener has accepted. */
#ifndef EMBD_ADOPTING_H
#define EMBD_ADOPTING_H

#include <stdatomic.h>

#include "server/net/shard_io.h"

struct adopted;

/* Who is at the other end, where that is not this process. */
struct adopted_peer {
    char name[64];
    uint64_t network; /* as connection.h has it */
};

/* Zero is empty. */
struct adopting {
    _Atomic(struct adopted *) last;
};

/* Any thread. `peer` NULL: this process, which has every right. EMBD_NO_MEMORY. */
int adopting_add(struct adopting *adopting, int fd, enum door door, const struct adopted_peer *peer,
                 struct embd__error *e);
/* The shard's thread: all become connections, or are closed. */
void adopting_take(struct adopting *adopting, struct shard_io *io, bool lets_in);
/* Closes those that nobody took. */
void adopting_fini(struct adopting *adopting);

#endif
