/* trunk.h - one connection for many shards of a process (proto/trunk.h has the bytes): links that
 * its server offers one to go by lines of it, in place of a socket each. A line is a stream to the
 * link as a socket is: hello, order, errors and deadlines do not know of it. What many links send
 * in one turn of the loop is one write; what their shards answer comes by one read.
 *
 * The happy path: a link says hello by a connection of its own, learns of the process, and turns
 * to the process's trunk. The first of them has it opened: a link of its own, the carrier,
 * connects and asks `trunk`, and gives its socket up to it. The last line that is closed closes
 * the trunk.
 *
 * What can fail: the server refuses the trunk, or is silent: links stay with connections of their
 * own. The trunk ends: all its lines do, and their links connect again. */
#ifndef EMBD_IO_TRUNK_H
#define EMBD_IO_TRUNK_H

#include <stdbool.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <uv.h>

#include "proto/message.h"

struct channel;
struct link_config;
struct trunk;

/* On its way to a trunk. */
struct trunk_carrier {
    void (*drop)(void *arg); /* NULL: it has ended */
    void *arg;
};

enum trunk_use {
    TRUNK_NEVER,
    TRUNK_AUTO, /* where a cluster has many shards */
    TRUNK_ALWAYS,
};

/* Of one loop. Owner: the thread that runs it. */
struct trunks {
    uv_loop_t *loop;
    enum trunk_use use;
    uv_prepare_t prepare; /* sends before the loop sleeps, while there are trunks */
    struct trunk *list;
    /* Connects to the server of a link, and asks it for a trunk: carrier.h. */
    int (*carry)(struct trunk *trunk, uv_loop_t *loop, const struct link_config *config,
                 struct trunk_carrier *out, struct embd__error *e);
    uint8_t *in;       /* of all: what is read, one after the other; NULL: there was none yet */
    uint64_t read_ns;  /* when it was, by uv_hrtime() */
    msgpack_zone zone; /* of all: for one answer after the other */
};

/* As EMBD_TRUNK says. EMBD_INVALID. */
int embd__trunks_read(enum trunk_use *out, struct embd__error *e);
/* `carry` is the caller's to set. EMBD_NO_MEMORY. */
int embd__trunks_init(struct trunks *trunks, uv_loop_t *loop, enum trunk_use use,
                      struct embd__error *e);
/* Behind all links. Its handles end when the loop has run, */
void embd__trunks_close(struct trunks *trunks);
/* and then its memory may go. */
void embd__trunks_fini(struct trunks *trunks);
void embd__trunks_flush_all(struct trunks *trunks);
/* What links have sent goes now. */
static inline void embd__trunks_flush(struct trunks *trunks)
{
    if (trunks->list != NULL)
        embd__trunks_flush_all(trunks);
}

/* The process of a server, as hello said; no shards: it has no trunks. */
struct trunk_process {
    uint64_t process;
    uint32_t shards;
};

/* Whether it is worth it for a cluster of n_shards. NULL is allowed. */
bool embd__trunks_suit(const struct trunks *trunks, const struct trunk_process *process,
                       uint32_t n_shards);

/* What a line's owner is told, from within its trunk's callbacks. */
struct trunk_line_events {
    void (*on_open)(void *owner); /* bytes may be sent */
    /* Look for the end; or there is room again. */
    void (*on_ready)(void *owner, bool readable, bool writable);
    /* Bytes will come next, or soon: what they need may be asked for. */
    void (*on_soon)(void *owner, bool is_next);
    /* Bytes came, which are the owner's until it returns, as receive.h takes them. */
    void (*on_bytes)(void *owner, uint8_t *p, size_t n);
    /* There is no trunk; closes the line. */
    void (*on_lose)(void *owner, int status, const char *why);
};

/* A link's, zeroed before its first use. */
struct trunk_line {
    struct trunk *trunk; /* NULL: closed */
    const struct trunk_line_events *events;
    void *owner;
    uint32_t shard;
    uint32_t number; /* of the stream */
    uint32_t credit; /* bytes that may be sent */
    bool is_open;    /* the trunk is up; else the line waits for it */
    bool is_waiting; /* its owner was told -EAGAIN */
    bool has_ended;  /* the server sends nothing more */
};

/* A line to a shard of the process, by whose configuration its server is found; `host`: as which
 * TLS knows the server, "" without TLS. `events` and `owner` outlive it. on_open may be called from
 * within. EMBD_NO_MEMORY. */
int embd__trunk_line_open(struct trunks *trunks, struct trunk_line *line, uint64_t process,
                          const char *host, const struct link_config *config,
                          struct embd__error *e);
/* Also of one that is closed. */
void embd__trunk_line_close(struct trunk_line *line);
/* The trunk's; it stays its own. */
int embd__trunk_fd(const struct trunk_line *line);
/* As sendmsg on a socket that does not block: bytes, or a negative errno. */
ssize_t embd__trunk_send(struct trunk_line *line, const struct iovec *iov, size_t n);
/* As recvmsg on a socket without bytes: 0 at its end, or a negative errno. */
ssize_t embd__trunk_receive(const struct trunk_line *line);
/* Why either returned -EPROTO; EMBD_OK: nobody said. */
const struct embd__error *embd__trunk_error(const struct trunk_line *line);

/* ---- for carriers ---- */

/* The carrier has ended; what `channel` has is the trunk's now, its descriptor, too; fd -1: there
 * is none. Not from within `carry`. */
void embd__trunk_start(struct trunk *trunk, const struct channel *channel);

#endif
