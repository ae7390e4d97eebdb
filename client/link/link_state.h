/* link_state.h - what a link holds, and what the files that drive it are to each other.
 *
 *     link.c       opens and closes, takes exchanges
 *     connect.c    from one connection to the next
 *     sending.c    what waits is written
 *     answers.c    what comes in goes to who asked
 *     deadlines.c  nothing waits for ever
 *     liveness.c   whether the server is still there
 *     ends.c       how exchanges end */
#ifndef EMBD_CLIENT_LINK_STATE_H
#define EMBD_CLIENT_LINK_STATE_H

#include <stdatomic.h>

#include "client/link/address.h"
#include "client/link/channel.h"
#include "client/link/flights.h"
#include "client/link/link.h"
#include "client/link/receive.h"
#include "client/link/socket.h"

#define HELLO_MSGID UINT32_MAX

enum link_state {
    LINK_IDLE,
    LINK_WAITING,
    LINK_CONNECTING,
    LINK_SECURING,
    LINK_GREETING,
    LINK_READY,
    LINK_CLOSED
};

struct link {
    struct link_config config;
    struct address host; /* data links */
    enum link_state state;
    struct socket *socket;
    struct channel channel; /* over it, once it is connected */
    uv_timer_t retry, deadline;
    uint32_t open_handles;
    uint64_t next_try_ns;       /* not to connect before */
    uint32_t pause_ms;          /* after the next failure */
    uint32_t attempt_ms;        /* an attempt to connect may take so long */
    uint64_t heard_ns;          /* when bytes last came, by the loop's clock */
    uint64_t deadline_armed_ns; /* when the deadline timer goes off; UINT64_MAX: not armed */
    struct embd__error last;    /* why there is no connection */
    struct exchange hello;
    struct queue queue;
    bool is_loading; /* the server takes but few requests yet, and `last` says why */
    bool is_blocked; /* the socket takes no more bytes for now */
    bool has_moved;  /* it is connected to where the shard was, and soon not any more */
    struct flights flights;
    uint32_t max_flights;
    uint32_t n_notices;         /* in a row */
    struct exchange *receiving; /* owns the destination of the bin that is coming in */
    struct receiver receiver;
    msgpack_zone zone;
    atomic_uint_fast64_t frame_bytes, keys; /* limits of the server; read on any thread */
};

/* ---- connect.c ---- */

/* Sets the hello up. */
void embd__connect_init(struct link *link);
void embd__connect_begin(struct link *link);
/* Begins now, or when the pause after the last failure is over. */
void embd__connect_want(struct link *link);
/* Loses the connection when the loop comes round. */
void embd__connect_leave(struct link *link);
/* The hello was answered. Negative: not as it should be. */
int embd__connect_greeted(struct link *link, struct embd__error *e);
void embd__connect_forget_hello(struct link *link);
/* No connection any more: fails what was sent, keeps what was not. `why` may lie in the channel. */
void embd__connect_lose(struct link *link, int status, const char *why);
/* The same: the channel has failed with a negative errno. */
void embd__connect_lose_channel(struct link *link, int error);

/* ---- sending.c ---- */

/* Writes what the socket takes of what waits. */
void embd__sending_more(struct link *link);
/* The socket takes no more for now, or does again. */
void embd__sending_block(struct link *link, bool is_blocked);

/* ---- answers.c ---- */

/* Sets the receiver's callbacks. */
void embd__answers_init(struct link *link);

/* ---- deadlines.c ---- */

/* UINT64_MAX: nothing waits. */
void embd__deadlines_arm(struct link *link, uint64_t when);

/* ---- liveness.c ---- */

/* An answer is late after so long without a byte. */
#define LIVENESS_QUIET_NS        UINT64_C(2000000000)
#define LIVENESS_ATTEMPT_MS      5000u /* to connect and greet, at first; twice as long each time */
#define LIVENESS_ATTEMPT_MOST_MS 60000u

/* Since when this exchange waits and the server is silent; uv_hrtime(). */
uint64_t embd__liveness_silent_since(const struct link *link, const struct exchange *x);

/* ---- ends.c ---- */

/* The answer was read; x->error says how. */
void embd__ends_answered(struct exchange *x);
/* No answer comes any more. */
void embd__ends_give_up(struct exchange *x, int status, const char *why);
/* The same of the one half sent that may not be repeated, of all that were sent, of those that do
 * not wait for a connection, and of all in the queue. */
void embd__ends_begun(struct link *link, int status, const char *why);
void embd__ends_sent(struct link *link, int status, const char *why);
void embd__ends_hasty(struct link *link, int status, const char *why);
void embd__ends_waiting(struct link *link, int status, const char *why);
/* What may be sent again goes back into the queue; `status` says why the connection was lost. */
void embd__ends_keep_repeatable(struct link *link, int status);

#endif
