/* link_internal.h - the state of a link, and what its files are to each other.
 *
 *     queue.c       exchanges that are not sent yet
 *     link.c        exchanges go out, answers come in
 *     connection.c  from one connection to the next: connect, TLS handshake, hello, loss
 *     sharing.c     memory that the server gets behind hello
 *     io_thread.c   the loop, which looks at links whose bytes go through such memory
 *     failures.c    how exchanges fail: lost connections, deadlines, servers that are gone */
#ifndef EMBD_IO_LINK_INTERNAL_H
#define EMBD_IO_LINK_INTERNAL_H

#include <stdatomic.h>

#include "proto/assert.h"
#include "client/io/channel.h"
#include "client/io/channel_ring.h"
#include "client/io/hello.h"
#include "client/io/link.h"
#include "client/io/link_figures.h"
#include "client/io/local.h"
#include "client/io/receive.h"
#include "client/io/resolve.h"
#include "client/io/rings.h"
#include "client/io/shared.h"
#include "client/io/socket.h"
#include "client/io/trunk.h"
#include "proto/limit.h"

enum link_state {
    LINK_IDLE,
    LINK_WAITING,
    LINK_CONNECTING,
    LINK_SECURING,
    LINK_HELLO,
    LINK_READY,
    LINK_CLOSED
};

/* The memory that is asked for behind hello. */
enum sharing { SHARING_MEMORY, SHARING_RING, SHARING_DONE };

/* Exchanges that are not sent yet, oldest first; the head may be half sent. */
struct queue {
    struct exchange *head, **end;
};

/* A request that waits for its answer. */
struct pending {
    uint32_t msgid;
    uint64_t answer_bytes;
    struct exchange *x; /* NULL: forgotten, its answer will be dropped */
};

/* In the order sent; answers mostly come in that order, so the search is short. */
struct inflight {
    uint32_t n;
    struct pending list[LIMIT_REQUESTS_IN_FLIGHT];
};

/* What each request needs stands together: with many links the memory that a call touches is what
 * it costs. */
struct link {
    struct link_terms terms; /* first: embd__link_terms */
    enum link_state state;
    bool is_loading;    /* the server takes only a few methods yet, and `last` says why */
    bool is_blocked;    /* the socket takes no more bytes for now */
    bool is_watched;    /* by config.rings */
    bool is_leaving;    /* the server ends: nothing more is sent, and answers that matter are due */
    bool is_by_trunk;   /* the connection is, or is to be, a line of its trunk */
    uint32_t n_notices; /* in a row */
    struct queue queue;
    uint64_t next_try_ns;       /* not to connect before */
    uint64_t heard_ns;          /* when bytes last came, by the loop's clock */
    uint64_t deadline_armed_ns; /* when the deadline timer goes off; UINT64_MAX: not armed */
    struct exchange *receiving; /* owns the destination of the bin that is coming in */
    struct trunk_line line;
    struct link_config config;
    struct channel channel; /* over the socket, once it is connected */
    struct link_figures figures;
    uint32_t max_inflight;
    struct inflight inflight;
    struct receiver receiver;

    struct address host; /* data links */
    struct socket *socket;
    uv_timer_t retry, deadline;
    uint32_t open_handles;
    uint32_t pause_ms;       /* after the next failure */
    uint32_t attempt_ms;     /* an attempt to connect may take so long */
    struct embd__error last; /* why there is no connection */
    struct exchange hello, share;
    bool has_moved; /* the shard is elsewhere: this connection ends soon */
    /* The server's data socket, as the last hello over TCP named it, and its owner. */
    struct local_place place;
    uint32_t place_owner;
    bool is_turning;              /* from TCP to the data socket, or a trunk, soon */
    bool is_local;                /* the connection is, or is to be, by the data socket */
    bool stays_on_tcp;            /* the data socket did not let us in */
    bool stays_direct;            /* the trunk did not let us in */
    bool takes_share, takes_ring; /* as the last hello over TCP said */
    struct trunk_process process; /* as the last hello said */
    enum sharing sharing;
    struct channel_ring ring; /* the channel's, from when it is agreed on */
    LIST_ENTRY(link) in_watched;
    uint64_t share_most;
    msgpack_zone zone;                  /* of answers, where the loop's trunks have none */
    struct server_start seen;           /* by the last hello that said it */
    char server_version[VERSION_BYTES]; /* "0.1.0"; "": not known, or not of embd */
};

/* ---- queue.c ---- */

/* Last or first in the queue; nothing of it is sent then. */
static inline void embd__queue_push(struct queue *queue, struct exchange *x)
{
    x->state = EXCHANGE_QUEUED;
    x->piece = 0;
    x->piece_sent = 0;
    x->next = NULL;
    *queue->end = x;
    queue->end = &x->next;
}

void embd__queue_push_front(struct queue *queue, struct exchange *x);

static inline struct exchange *embd__queue_pop(struct queue *queue)
{
    struct exchange *x = queue->head;
    EMBD_ASSERT(x != NULL);
    queue->head = x->next;
    if (queue->head == NULL)
        queue->end = &queue->head;
    return x;
}

/* The first exchange that a loading server accepts becomes the head, unless the head is half sent;
 * false: none. */
bool embd__queue_prefer_while_loading(struct queue *queue);

/* ---- link.c ---- */

/* It will send: what that needs is asked for. */
static inline void embd__link_ask(const struct link *link)
{
    __builtin_prefetch(link, 1);
    __builtin_prefetch(&link->heard_ns, 1);
    __builtin_prefetch(&link->line.number, 1);
    __builtin_prefetch(&link->channel.ring);
    __builtin_prefetch(&link->figures.bytes_sent, 1);
    __builtin_prefetch(&link->max_inflight);
    __builtin_prefetch(&link->inflight, 1);
}

/* Writes what the socket takes of the queue. */
void embd__link_send_queued(struct link *link);
/* The socket takes no more for now, or does again. */
void embd__link_block(struct link *link, bool is_blocked);
/* The socket of a link has bytes, or takes some. */
void embd__link_on_ready(void *owner, bool readable, bool writable);
/* Its line brings bytes next, or soon. */
void embd__link_on_soon(void *owner, bool is_next);
/* Its line has brought n bytes, as receive.h takes them. */
void embd__link_on_bytes(void *owner, uint8_t *p, size_t n);
/* Its ring has bytes, or room. */
void embd__link_look(struct link *link);
/* Ends an exchange whose error is set, or which succeeded. */
void embd__exchange_end(struct exchange *x);

/* ---- connection.c ---- */

/* Sets the hello up. */
void embd__connection_init(struct link *link);
void embd__connection_begin(struct link *link);
/* Begins now, or when the pause after the last failure is over. */
void embd__connection_want(struct link *link);
/* Goes on with the TLS handshake, then says hello. */
void embd__connection_secure(struct link *link);
/* The hello was answered. Negative: not as it should be. */
int embd__connection_on_hello(struct link *link, struct embd__error *e);
/* Hello, and what follows it, are done: requests go. */
void embd__connection_ready(struct link *link);
void embd__connection_forget_hello(struct link *link);
/* The connection is closed: fails exchanges that were sent, keeps unsent ones. `why` may lie in the
 * channel. */
void embd__connection_lose(struct link *link, int status, const char *why);
/* The same: the channel has failed with a negative errno. */
void embd__connection_lose_channel(struct link *link, int error);

/* ---- sharing.c ---- */

void embd__sharing_init(struct link *link);
/* Whether hello says that it follows. */
bool embd__sharing_is_wanted(const struct link *link, enum sharing what);
/* False: there is nothing to share; else it goes on when link->share is answered. */
bool embd__sharing_begin(struct link *link);
bool embd__sharing_go_on(struct link *link);

/* ---- rings.h ---- */

/* The link has sent something, or waits for room. */
static inline void embd__rings_watch(struct rings *rings, struct link *link)
{
    if (link->is_watched)
        return;
    embd__ring_wake(&link->ring.ring);
    link->is_watched = true;
    LIST_INSERT_HEAD(&rings->watched, link, in_watched);
}

static inline void embd__rings_unwatch(struct link *link)
{
    if (link->is_watched)
        LIST_REMOVE(link, in_watched);
    link->is_watched = false;
}

/* ---- failures.c ---- */

#define LINK_ATTEMPT_MS      5000u /* to connect and say hello, at first; then twice as long */
#define LINK_ATTEMPT_MOST_MS 60000u

/* The server answered with an error, or its answer could not be used: x->error. */
void embd__fail_answered(struct exchange *x);
/* Fails exchanges that will get no answer: half-sent ones that may not be repeated, all that were
 * sent, those that do not wait for a connection, and all that are queued. */
void embd__fail_begun(struct link *link, int status, const char *why);
void embd__fail_sent(struct link *link, int status, const char *why);
void embd__fail_unreached(struct link *link); /* of link->last */
void embd__fail_queued(struct link *link, int status, const char *why);
/* The server has not ended the connection: it may yet read and write what exchanges in flight share
 * with it. */
void embd__loosen(struct link *link);
/* Exchanges that may be sent again go back into the queue; `status` says why the connection was
 * lost. */
void embd__requeue_repeatable(struct link *link, int status);
/* Whether the connection is needed to learn what became of a request. */
bool embd__awaits_outcome(const struct link *link);
/* The server has done nothing of what it has not answered. */
void embd__note_all_refused(struct link *link);
/* The next to be sent names shared memory, which the server that is connected now has not. */
void embd__fail_unshared(struct link *link);
/* The next to be sent is the push of a round that may have been made, and the server would not know
 * it again. */
void embd__fail_not_again(struct link *link);
/* UINT64_MAX: nothing waits. */
void embd__deadline_arm(struct link *link, uint64_t when);

#endif
