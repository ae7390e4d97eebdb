/* shard_io.h - what the connections of one shard share: the shard, memory, limits, counters, and
 * the lists they stand in. Owner: the shard's thread. */
#ifndef EMBD_SHARD_IO_H
#define EMBD_SHARD_IO_H

#include <sys/queue.h>
#include <uv.h>

#include "proto/local/spin.h"
#include "server/net/frame_memory.h"
#include "server/net/late.h"
#include "server/net/credentials.h"
#include "server/service/shard.h"

struct connection;
struct exchange;
struct chunk;
struct trunks;

TAILQ_HEAD(connection_list, connection);
STAILQ_HEAD(exchange_queue, exchange);

struct net_limits {
    uint64_t frame_bytes;     /* of one frame, unless it is a push: */
    uint64_t push_bytes;      /* at least frame_bytes; frame_memory has room for three of them */
    uint32_t connections;     /* of the data listener of one shard */
    uint32_t stall_ms;        /* a frame in part, or an answer, may make no progress for so long */
    uint32_t idle_ms;         /* a connection may send no request for so long; 0: for ever */
    uint32_t unauthenticated; /* connections of all listeners: see unauthenticated.h */
    uint32_t hello_ms;        /* one of these may stay so long */
    uint32_t
        spin_us; /* a shard looks at rings and sockets for so long before it sleeps; 0: never */
};

/* Each admin listener has room of its own, so that an operator gets in when the others are full. */
#define LIMIT_ADMIN_CONNECTIONS 64u

/* Where a peer came in. */
enum door { DOOR_DATA, DOOR_DATA_SOCKET, DOOR_ADMIN_SOCKET, DOOR_ADMIN_TCP, DOOR_TRUNK };
#define DOORS           5
#define DOORS_LISTENING DOOR_TRUNK /* those before it; streams of trunks come from a thread */

static inline bool door_is_socket(enum door door)
{
    return door == DOOR_DATA_SOCKET || door == DOOR_TRUNK || door == DOOR_ADMIN_SOCKET;
}

/* Doors to one listener share its room. */
static inline enum door door_room(enum door door)
{
    return door == DOOR_DATA_SOCKET || door == DOOR_TRUNK ? DOOR_DATA : door;
}

/* The heads and small bins of one read. Reads are synchronous, so one buffer serves all. */
#define IO_READ_BYTES (64u << 10)

struct shard_io {
    uv_loop_t *uv;
    struct shard *shard;
    uint32_t shard_index; /* in the cluster; for the log */
    struct net_limits limits;
    struct frame_pool pool;
    uint8_t *read_buffer; /* [IO_READ_BYTES] */
    uint8_t *seal_buffer; /* [IO_READ_BYTES] of ciphertext; NULL without TLS */
    struct read_allowance allowance;
    struct credentials credentials;
    struct trunks *trunks; /* of the process; NULL: none */

    struct connection_list connections;
    uint32_t n_at[DOORS];                   /* connections that are not being closed */
    struct connection_list unauthenticated; /* the oldest first */
    uint32_t n_unauthenticated;
    struct connection_list yielding; /* in the state CONNECTION_YIELDING */
    uint64_t turn;                   /* counts turns of the loop */
    struct connection_list ringing;  /* whose rings are looked at */
    uint32_t n_ringing;
    struct spin spin;
    bool has_read; /* since the loop last slept: more may come soon, by sockets too */
    struct connection_list sending; /* whose batch a sender has */
    void (*wake)(void *arg);        /* the loop of the shard; any thread */
    void *wake_arg;
    struct connection_list dirty; /* with something to do outside of their own callbacks */

    struct exchange_queue spare_exchanges;
    uint32_t n_spare_exchanges;
    struct chunk *spare_chunks;
    uint32_t n_spare_chunks;

    uint64_t n_exchanges; /* from the first byte of a request to the last of its answer */
    uint64_t bytes_in, bytes_out, frame_errors;
    uint64_t shared_bytes; /* of memory that peers share */

    uint64_t swept_ms; /* time of the last sweep */
    struct late late;  /* of the ticks */
    bool is_draining;
    uint64_t n_old; /* of n_exchanges: those that began before the drain */
};

/* Of all doors that share the room of this one. */
static inline uint32_t shard_io_in_room(const struct shard_io *io, enum door door)
{
    uint32_t n = 0;
    for (int other = 0; other < DOORS; other++)
        n += door_room((enum door)other) == door_room(door) ? io->n_at[other] : 0;
    return n;
}

static inline uint32_t shard_io_connections(const struct shard_io *io)
{
    uint32_t n = 0;
    for (int door = 0; door < DOORS; door++)
        n += io->n_at[door];
    return n;
}

#endif
