/* hello.h - the first message of a connection, and what its answer says of the server. Pure
 * functions over messages. */
#ifndef EMBD_IO_HELLO_H
#define EMBD_IO_HELLO_H

#include "client/io/trunk.h"
#include "proto/local/place.h"
#include "proto/message.h"

struct credentials;

#define HELLO_MSGID UINT32_MAX
#define SHARE_MSGID (UINT32_MAX - 1)

#define VERSION_BYTES 32u

/* A start of the server, as hello describes it; PROTOCOL.md has the meaning. */
struct server_start {
    uint64_t start, history, epoch; /* start 0: nothing is known */
    /* With failover: how often a follower took over, and since when nothing was lost by that; 0:
     * not known. */
    uint64_t promoted, kept, kept_replicated;
};

/* The server's limits, never more than this library's own. */
struct server_limits {
    uint64_t frame_bytes, push_bytes, keys;
    uint32_t requests;  /* in flight on one connection */
    bool takes_order;   /* of pushes */
    bool takes_columns; /* for parts */
    bool takes_packed;  /* i8 and i4 for rows and gradients */
    bool takes_put_numbers, takes_rounds_again;
    bool takes_share, takes_ring;   /* memory, of connections by its data socket */
    uint64_t share_most;            /* bytes of it on this connection; 0: none */
    char loading[LIMIT_ERROR_TEXT]; /* why it takes no requests yet; "": it does */
    struct server_start start;
    char version[VERSION_BYTES];
    struct local_place place; /* of its data socket; no path: none */
    struct trunk_process process;
};

/* The whole message; `who` may be NULL. `shares`, `rings`: share, or ring, comes behind it. Returns
 * m->status. */
int embd__hello_write(struct msg *m, const struct credentials *who, uint64_t client_id, bool shares,
                      bool rings);
/* Sets the reader's error when the server is of another version, or is not shard `shard` of
 * `n_shards` (SHARD_ANY: any). *out is set on success. */
void embd__hello_read(struct reader *r, uint32_t shard, uint32_t n_shards,
                      struct server_limits *out);

#endif
