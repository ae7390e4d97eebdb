/* link.h - one connection to one shard, kept up: exchanges go in, answers come back.
 *
 * Everything here belongs to the thread that runs the loop. Memory that an exchange points to (bins
 * of its message, destinations of its answer) is not touched any more once on_end was called. */
#ifndef EMBD_IO_LINK_H
#define EMBD_IO_LINK_H

#include <stdatomic.h>
#include <sys/socket.h>
#include <uv.h>

#include "client/io/credentials.h"
#include "client/io/exchange.h"
#include "proto/dial.h"

#define SHARD_ANY UINT32_MAX

/* How a link reaches its server: EMBD_TRANSPORT asks for it. */
enum transport {
    TRANSPORT_TCP,
    TRANSPORT_ANY,   /* by the server's data socket if it is on this host and lets this user in */
    TRANSPORT_LOCAL, /* by that alone; TCP is only asked where it is */
};

struct pool;

/* The configuration of a link. */
struct link_config {
    uv_loop_t *loop;
    uint8_t *buffer;             /* of receive.h: one for all links of the loop */
    const char *address;         /* "host:port", or a path; must outlive the link */
    bool is_path;                /* of a Unix socket */
    const struct dialer *dialer; /* to shards of this process, in the address's place; or NULL */
    bool is_admin;               /* the dialer's: by the admin listener */
    enum transport transport;    /* where it is not a path */
    struct credentials *credentials; /* token and TLS; NULL: neither. Outlives the link */
    struct shared *shared;           /* memory of the client; NULL: none. Outlives the link */
    struct rings *rings;             /* of the loop; NULL: bytes go through the socket */
    struct trunks *trunks;           /* of the loop; NULL: the link has a connection of its own */
    struct pool *pool;               /* of links; NULL: it has memory of its own. Outlives it */
    uint64_t client_id;              /* who pushes, in hello; 0: this link sends no pushes */
    const char *tls_host;            /* what the certificate is for; NULL: the address's host */
    uint32_t shard, n_shards;        /* checked in hello; SHARD_ANY: not known */
    uint32_t reconnect_min_ms, reconnect_max_ms;
    void (*on_unreached)(void *arg); /* an attempt to connect has failed; may be NULL */
    void *arg;
};

/* EMBD_INVALID: the address cannot be read; EMBD_NO_MEMORY. Nothing is connected before the first
 * send. */
int embd__link_open(const struct link_config *config, struct link **out, struct embd__error *e);
/* Ends all its exchanges with EMBD_CLOSED and its handles; the memory is freed when the loop has
 * run. */
void embd__link_close(struct link *link);

/* Its shard has left the cluster: the link connects never again, and what waits on it, or is sent
 * by it from now on, ends with EMBD_MOVED; with EMBD_CLOSED where it was sent and may not be sent
 * again. Not from within a callback of the link. embd__link_close is due as before. */
void embd__link_retire(struct link *link, const char *why);
bool embd__link_is_retired(const struct link *link);

/* Sends in the order called. Never fails here: on_end reports, possibly from within. */
void embd__link_send(struct link *link, struct exchange *x);
/* The held pieces are ready now. No effect if the exchange has ended meanwhile. */
void embd__link_release(struct exchange *x);

const char *embd__link_address(const struct link *link);
/* A number of the server's process that no other start has, once a request was answered; 0: it
 * does not say. */
uint64_t embd__link_process(const struct link *link);
/* Valid as long as the link. */
const struct link_figures *embd__link_figures(const struct link *link);

/* The limits and features of its server, as the last hello said. The loop's thread sets it, any
 * thread reads it. */
struct link_terms {
    atomic_uint_fast64_t frame_bytes; /* LIMIT_FRAME_BYTES, or less */
    atomic_uint_fast64_t push_bytes;  /* of the frame of a push: as many or more */
    atomic_uint_fast64_t keys;        /* LIMIT_KEYS, or less */
    atomic_bool takes_order;          /* the field `order` of pushes */
    atomic_bool takes_columns;        /* parts as columns */
    atomic_bool takes_packed;         /* rows of i8 and i4 */
    atomic_bool takes_put_numbers;
    atomic_bool takes_rounds_again; /* pushes of rounds that come again */
    atomic_bool shares;             /* the client's memory: of this connection */
};

/* A link begins with them: link_internal.h. */
static inline const struct link_terms *embd__link_terms(const struct link *link)
{
    return (const void *)link;
}

/* ---- connection.c ---- */

bool embd__link_is_up(const struct link *link);
/* The server it is connected to does not serve yet. */
bool embd__link_is_loading(const struct link *link);
/* Connects to another address from the next time on, at once where it waits to. What is connected
 * stays. EMBD_INVALID: it cannot be read, and the old one stays. */
int embd__link_move(struct link *link, const char *address, bool is_path, struct embd__error *e);
/* The server is elsewhere now: gives the connection up soon, and not from within the call. */
void embd__link_leave(struct link *link);

/* ---- failures.c ---- */

/* An answer is due, and nothing has come for a while; now: uv_hrtime(). */
bool embd__link_is_late(const struct link *link, uint64_t now);
/* Gives the connection up if the server's host is gone. Call it about once a second. */
void embd__link_check_peer(struct link *link);

#endif
