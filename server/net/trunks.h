/* trunks.h - the trunks of a process (trunk.h), and the threads that move their bytes. A peer
 * begins on a connection to a shard: `trunk` is answered there, then the socket goes to one of
 * these threads. They are started with the first trunk. */
#ifndef EMBD_TRUNKS_H
#define EMBD_TRUNKS_H

#include "server/net/adopting.h"
#include "server/net/trunk_wire.h"

struct trunks;

struct trunks_config {
    uint32_t most; /* trunks */
    struct quota *quota;
    /* Shard `shard` of the cluster serves the peer at the other end of `fd`, which it takes.
     * Negative: it stays the caller's. Between trunks_allow and trunks_refuse; a trunk's thread. */
    int (*adopt)(void *arg, uint32_t shard, int fd, const struct adopted_peer *peer,
                 struct embd__error *e);
    void *arg;
    uint32_t stall_ms; /* a peer takes nothing of what waits for it for so long: it is dropped */
};

int trunks_open(const struct trunks_config *config, struct trunks **out, struct embd__error *e);
/* The process's `n` shards run. */
void trunks_allow(struct trunks *trunks, uint32_t n);
/* Shards end: none of them adopts any more, once it returns. */
void trunks_refuse(struct trunks *trunks);
/* Drops those that are left. NULL is allowed. */
void trunks_close(struct trunks *trunks);

/* Shards that a trunk reaches now; 0: none may begin. Any thread; NULL is allowed. */
uint32_t trunks_shards(const struct trunks *trunks);
/* Takes a peer's socket, and its TLS. Any thread. EMBD_BUSY, EMBD_NO_MEMORY: they stay the
 * caller's. */
int trunks_add(struct trunks *trunks, const struct trunk_wire *wire,
               const struct adopted_peer *peer, struct embd__error *e);

#endif
