/* connection.h - one peer on the data or the admin listener. Owner: the shard's thread.
 *
 * A connection frees itself when it ends. After any call here it may be freed or about to be, so
 * only the list in shard_io says which connections exist. */
#ifndef EMBD_CONNECTION_H
#define EMBD_CONNECTION_H

#include "proto/local/ring.h"
#include "server/net/outlet.h"
#include "server/net/request_parser.h"
#include "server/net/sender.h"
#include "server/net/tls_connection.h"
#include "server/net/turn.h"

/* connection.c has the table of allowed moves. */
enum connection_state {
    /* Open: takes requests. */
    CONNECTION_READING,  /* libuv reads; a new connection is PAUSED until it does */
    CONNECTION_PAUSED,   /* another request must wait until answers before it are sent */
    CONNECTION_YIELDING, /* has had its share of requests; goes on in the next turn of the loop */
    CONNECTION_STARVED,  /* there was no memory to read on, or to make rows in; sweep.c retries */
    /* Ending: takes none. */
    CONNECTION_FINISHING,  /* requests in flight are answered; what still comes is dropped */
    CONNECTION_PEER_ENDED, /* the same, and the peer will send nothing more */
    CONNECTION_FAILED,     /* a request has no answer: closes when it is next looked at */
    CONNECTION_LINGERING,  /* everything is sent and our side ended; waits for the peer's end */
    CONNECTION_CLOSED,     /* holds nothing any more; libuv gives the handle back soon */
};
#define CONNECTION_STATES (CONNECTION_CLOSED + 1)

/* A frame of a peer that is not authenticated; it has no bins to speak of. */
#define UNAUTHENTICATED_FRAME_BYTES LIMIT_HEADER_BYTES

/* Work that must make progress. */
struct watch {
    uint64_t since_ms, bytes;
};

enum ring_state { RING_NONE, RING_AGREED, RING_OPEN };

struct connection_ring {
    struct ring ring;
    enum ring_state state;
    uint8_t *base; /* NULL: there is none */
    uint64_t bytes;
    bool is_watched; /* in io->ringing: it is looked at before the loop sleeps */
    bool has_ended;  /* the peer has ended its side of the socket; its bytes are still taken */
};

struct connection {
    union {
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } uv;
    struct shard_io *io;
    enum connection_state state;
    enum door door;
    enum listener listener;
    struct tls_connection *tls; /* NULL: plain */
    struct shard_session session;
    TAILQ_HEAD(, exchange) exchanges; /* all of this connection, the arriving one too */
    uint32_t n_in_flight;             /* complete requests whose answers are not wholly sent */
    uint64_t bin_bytes;               /* of frame memory, theirs and that of the arriving one */
    uint64_t answer_bytes;            /* of the heads of their answers */
    struct request_parser parser;
    struct outlet outlet;
    uv_write_t write;
    uv_shutdown_t shutdown;
    bool is_adopted; /* the other end of its socket is this process's */
    bool is_leaving; /* its socket becomes a trunk's, once `trunk` is answered */
    bool is_writing; /* libuv has `write`, or `sender` the batch; beside each state up to FAILED */
    struct sender *sender;   /* of large answers to a server that follows; NULL: none was sent */
    bool is_sending;         /* it has the batch; in io->sending */
    bool is_dirty;           /* in io->dirty */
    bool is_unauthenticated; /* in io->unauthenticated */
    uint32_t charged_bytes;  /* to the quota, for the connection itself */
    int shared_fd;           /* of memory that the peer sent and `share` has not taken; -1: none */
    struct connection_ring ring;
    struct turn turn;
    uint8_t *kept; /* received, but no further request may begin now; NULL: nothing */
    size_t kept_at, kept_bytes;
    uint64_t bytes_in, bytes_out;
    struct watch in, out;
    uint64_t began_ms, linger_since_ms, busy_ms; /* busy: the last byte either way */
    char peer[64];
    uint64_t network; /* of the peer's address: the first 64 bits of IPv6, or IPv4's 32 */
    TAILQ_ENTRY(connection)
    in_io, in_dirty, in_unauthenticated, in_yielding, in_ringing, in_sending;
};

/* Charged for a connection: itself, and what malloc and libuv add. */
#define CONNECTION_BYTES (sizeof(struct connection) + 64)

/* Accepts connections that wait at `server`. False: there is no memory for one now; it waits, and
 * nobody behind it comes in, until this is called again, with is_told. */
bool connection_accept(struct shard_io *io, uv_stream_t *server, enum door door, bool is_told);

struct adopted_peer;
/* A connection of this process, with every right, or of a trunk's peer; `fd` is taken. */
void connection_adopt(struct shard_io *io, int fd, enum door door, const struct adopted_peer *peer);

/* Goes on with connections whose answers became ready outside of their own callbacks. */
void connection_go_dirty(struct shard_io *io);
static inline void connection_flush_dirty(struct shard_io *io)
{
    if (!TAILQ_EMPTY(&io->dirty))
        connection_go_dirty(io);
}

/* A new turn of the loop: those that have more to be done go on. Returns whether there still are
 * some. */
bool connection_turn(struct shard_io *io);

/* Connections whose bytes come by a ring, of which io->n_ringing are watched, go on where they can.
 * Whether one did. */
bool ring_look(struct shard_io *io);
/* Some microseconds. Whether one can go on now. */
bool ring_pause(const struct shard_io *io);
/* Nothing is watched any more: doorbells wake the loop. True: it may not sleep, one can go on. */
bool ring_sleep(struct shard_io *io);

/* Goes on with connections whose senders have sent what they had. */
void connection_go_sent(struct shard_io *io);
static inline void connection_look_at_senders(struct shard_io *io)
{
    if (!TAILQ_EMPTY(&io->sending))
        connection_go_sent(io);
}

/* Closes connections that missed a deadline, and retries starved ones. A few times a second. */
void connection_sweep(struct shard_io *io);

/* Ends connections whose token the shard does not know any more. */
void connection_review(struct shard_io *io);

/* From now on the shard refuses new work; marks what began before (io->n_old). */
void connection_drain(struct shard_io *io);
/* Takes no further requests from anybody; connections end when their answers are sent. */
void connection_finish_all(struct shard_io *io);
/* Closes all, whatever is in flight. */
void connection_close_all(struct shard_io *io);

#endif
