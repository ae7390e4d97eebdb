/* hub.h - what the connections of one shard share: the shard, memory, limits, counters, and the
 * lists they stand in. Owner: the shard's thread. */
#ifndef EMBD_HUB_H
#define EMBD_HUB_H

#include <sys/queue.h>
#include <uv.h>

#include "server/net/frame_memory.h"
#include "server/net/keys.h"
#include "server/service/shard.h"

struct connection;
struct exchange;
struct chunk;

TAILQ_HEAD(connection_list, connection);
STAILQ_HEAD(exchange_queue, exchange);

struct net_limits {
    uint64_t frame_bytes; /* of one frame */
    uint32_t connections; /* of the data listener of one shard */
    uint32_t stall_ms;    /* a half frame, or an answer nobody takes, may rest so long */
    uint32_t idle_ms;     /* a connection without any request may stay so long; 0: for ever */
    uint32_t strangers;   /* of both listeners: see strangers.h */
    uint32_t hello_ms;    /* a stranger may stay so long */
};

/* Each admin listener has room of its own, so that an operator gets in when the others are full. */
#define LIMIT_ADMIN_CONNECTIONS 64u

/* Where a peer came in. */
enum door { DOOR_DATA, DOOR_ADMIN_SOCKET, DOOR_ADMIN_TCP };
#define DOORS 3

/* What one read may bring of heads and small bins. Reads are synchronous, so one buffer serves all.
 */
#define HUB_READ_BYTES (64u << 10)

struct hub {
    uv_loop_t *uv;
    struct shard *shard;
    uint32_t shard_index; /* in the cluster; for the log */
    struct net_limits limits;
    struct frame_pool pool;
    uint8_t *read_buffer; /* [HUB_READ_BYTES] */
    uint8_t *seal_buffer; /* [HUB_READ_BYTES] of ciphertext; NULL without TLS */
    uint64_t reserve;     /* charged ahead: what a read brings can be kept. See reserve.h */
    struct keys keys;

    struct connection_list connections;
    uint32_t n_at[DOORS];             /* connections that are not being closed */
    struct connection_list strangers; /* those, the oldest first */
    uint32_t n_strangers;
    struct connection_list resting; /* those that have had their turn, and have more to be done */
    uint64_t turn;                  /* counts those of the loop */
    struct connection_list dirty;   /* with an answer that nobody has tried to send yet */

    struct exchange_queue spare_exchanges;
    uint32_t n_spare_exchanges;
    struct chunk *spare_chunks;
    uint32_t n_spare_chunks;

    uint64_t n_exchanges; /* from the first byte of a request to the last of its answer */
    uint64_t bytes_in, bytes_out, frame_errors;

    uint64_t swept_ms; /* time of the last sweep */
    bool is_draining;
    uint64_t n_old; /* of n_exchanges: those that began before the drain */
};

static inline uint32_t hub_connections(const struct hub *hub)
{
    return hub->n_at[DOOR_DATA] + hub->n_at[DOOR_ADMIN_SOCKET] + hub->n_at[DOOR_ADMIN_TCP];
}

#endif
