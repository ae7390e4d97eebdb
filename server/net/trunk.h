/* trunk.h - one peer that reaches many shards of this process by one connection (proto/trunk.h). A
 * stream of it is a pair of sockets: the shard has one end, and serves it as any connection; the
 * trunk moves bytes between the other end and the peer. So a shard knows nothing of trunks, and
 * order, tokens, limits and deadlines are those of connections.
 *
 * What can fail: the peer sends what it may not: the trunk is dropped, and its streams end. The
 * peer ends: its streams end, and what is in flight is answered. A shard takes nothing for a
 * while: its stream is held, in memory that the window bounds; where the held bytes of a trunk
 * pass a limit, nothing is read from it. The peer does not read: nothing is taken from shards,
 * which then drop the stream as a peer that does not read its answers. The trunk itself is dropped
 * when the peer has taken nothing of what waits for it for that time, too (stall_timeout).
 *
 * Owner: a thread of trunks.h. */
#ifndef EMBD_TRUNK_H
#define EMBD_TRUNK_H

#include <stdbool.h>
#include <sys/queue.h>

#include "proto/trunk.h"
#include "server/net/adopting.h"
#include "server/net/quota.h"
#include "server/net/trunk_wire.h"

#define TRUNK_OUT_BYTES (256u << 10) /* for the peer, gathered */
/* Of streams that shards do not take, in one trunk, before nothing is read. */
#define TRUNK_HELD_BYTES (4u << 20)

/* What a thread's epoll knows. */
struct trunk_end {
    int fd; /* -1: closed */
    bool is_stream;
    bool is_readable, is_writable, has_hung_up; /* as far as the edges have told */
};

struct trunk_stream {
    struct trunk_end end; /* first; of the shard's pair */
    struct trunk *trunk;
    uint32_t number;
    uint32_t uncredited; /* bytes the peer has sent that no credit has come back for, */
    uint32_t taken;      /* and of these, those that the shard's socket has */
    bool has_ended;      /* the peer sends nothing more */
    bool has_told;       /* the peer knows that the shard has ended its side */
    bool is_ready;       /* in trunk.ready */
    uint8_t *held;       /* [held_bytes] that the socket had no room for; NULL: none */
    size_t held_at, held_bytes;
    TAILQ_ENTRY(trunk_stream) in_ready;
    struct trunk_stream *next_dead;
};

TAILQ_HEAD(trunk_stream_list, trunk_stream);

/* Of one thread, for its trunks. */
struct trunk_desk {
    int epoll;
    uint64_t now_ms; /* when the thread woke */
    uint8_t *in;     /* [TRUNK_IN_BYTES] */
    uint8_t *sealed; /* the same, of ciphertext */
    struct quota *quota;
    int (*adopt)(void *arg, uint32_t shard, int fd, const struct adopted_peer *peer,
                 struct embd__error *e);
    void *arg;
    struct trunk_stream *dead; /* freed by trunk_bury */
};

struct trunk {
    struct trunk_end end;   /* first; of the peer */
    struct trunk_wire wire; /* over its socket */
    struct trunk_desk *desk;
    struct adopted_peer peer;
    struct trunk_reader reader;
    struct trunk_stream_list ready; /* shards have bytes for the peer */
    uint32_t n_streams;
    uint8_t *out; /* [TRUNK_OUT_BYTES], of which out_bytes are to be sent; NULL: none */
    size_t out_bytes;
    uint8_t *kept; /* received, while it is choked; NULL: nothing */
    size_t kept_at, kept_bytes;
    uint64_t held_bytes; /* of its streams */
    bool is_choked;    /* what came is not wholly looked at: it must wait for shards, or the peer */
    bool has_ended;    /* the peer sends nothing more */
    uint64_t moved_ms; /* by the desk's clock: the peer took of `out`, or `out` began */
    bool is_lost;      /* it is to be freed */
    bool is_active;    /* in the thread's list */
    TAILQ_ENTRY(trunk) in_active, in_all;
    struct trunk_stream *streams[TRUNK_SLOTS];
};

/* Takes what the wire has and charges the quota; NULL: no memory, and all stays the caller's. */
struct trunk *trunk_new(struct trunk_desk *desk, const struct trunk_wire *wire,
                        const struct adopted_peer *peer);
/* Ends its streams. */
void trunk_free(struct trunk *trunk);
/* Frees streams that are over, once no event names them any more. */
void trunk_bury(struct trunk_desk *desk);

/* epoll said so; the trunk wants a turn. */
struct trunk *trunk_on_event(struct trunk_end *end, uint32_t events);
/* Moves what can be moved at once. True: there is more. Look at is_lost then. */
bool trunk_turn(struct trunk *trunk);
/* Whether something waits for its peer, which has taken nothing of it since `stall_ms`. */
bool trunk_has_stalled(struct trunk *trunk, uint32_t stall_ms);

#endif
