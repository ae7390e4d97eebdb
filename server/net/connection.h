/* connection.h - one peer on the data or the admin listener. Owner: the shard's thread.
 *
 * A connection frees itself when it is over; after any call here it may be gone or about to be, so
 * only the hub's list tells which there are. */
#ifndef EMBD_CONNECTION_H
#define EMBD_CONNECTION_H

#include "server/net/intake.h"
#include "server/net/outlet.h"
#include "server/net/tunnel.h"

enum connection_state {
    CONNECTION_OPEN,      /* takes requests */
    CONNECTION_FINISHING, /* takes none; what is in flight is answered and sent */
    CONNECTION_LINGERING, /* all is sent and our side ended; waits for the peer to end its own */
    CONNECTION_CLOSED,    /* holds nothing any more; libuv gives the handle back soon */
};

/* A frame of a peer that is not known yet; it has no bins to speak of. */
#define STRANGER_FRAME_BYTES LIMIT_HEADER_BYTES

/* Something that has to make progress. */
struct watch {
    uint64_t since_ms, bytes;
};

struct connection {
    union {
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } uv;
    struct hub *hub;
    enum door door;
    enum listener listener;
    struct tunnel *tunnel; /* NULL: plain */
    bool is_charged;       /* with CONNECTION_BYTES */
    bool is_stranger;
    enum connection_state state;
    struct shard_session session;
    TAILQ_HEAD(, exchange) exchanges; /* all of this connection, the arriving one too */
    uint32_t n_in_flight;             /* complete requests whose answers are not wholly sent */
    uint64_t bin_bytes;               /* of frame memory, theirs and that of the arriving one */
    uint64_t answer_bytes;            /* of the heads of their answers */
    struct intake intake;
    struct outlet outlet;
    uv_write_t write;
    uv_shutdown_t shutdown;
    bool is_reading, is_writing; /* libuv has been asked to */
    bool peer_ended;
    bool is_dirty;
    bool is_resting; /* has begun its share of requests in this turn of the loop */
    uint32_t n_begun;
    uint64_t turn;    /* that n_begun is of */
    bool is_starved;  /* there was no memory to read on, or to make an answer */
    bool lost_answer; /* there was no memory to make one */
    uint8_t *kept;    /* received, but no further request may begin now; NULL: nothing */
    size_t kept_at, kept_bytes;
    uint64_t bytes_in, bytes_out;
    struct watch in, out;
    uint64_t began_ms, state_since_ms, busy_ms; /* of the state; of the last byte either way */
    char peer[64];
    uint64_t network; /* that the peer's address is of: the first 64 bits of IPv6, or IPv4's 32 */
    TAILQ_ENTRY(connection) in_hub, in_dirty, in_strangers, in_resting;
};

/* What one is charged with: itself, and what malloc and libuv add. */
#define CONNECTION_BYTES (sizeof(struct connection) + 64)

/* Accepts what waits at `server`. False: there is no memory for it now; it waits, and nobody behind
 * it comes in, until this is called again, with is_told. */
bool connection_accept(struct hub *hub, uv_stream_t *server, enum door door, bool is_told);

/* Tries to send what became ready outside of a connection's own callbacks. */
void connection_flush_dirty(struct hub *hub);

/* A new turn of the loop: those that have more to be done go on. Returns whether there still are
 * some. */
bool connection_turn(struct hub *hub);

/* Closes connections that rest in the midst of something. A few times a second. */
void connection_sweep(struct hub *hub);

/* Ends connections whose token the shard does not know any more. */
void connection_review(struct hub *hub);

/* From now on the shard refuses new work; marks what began before (hub->n_old). */
void connection_drain(struct hub *hub);
/* Takes no further requests from anybody; connections end when their answers are sent. */
void connection_finish_all(struct hub *hub);
/* Closes all, whatever is in flight. */
void connection_close_all(struct hub *hub);

#endif
