/* greeting.h - hello: the first exchange of every connection. */
#ifndef EMBD_CLIENT_GREETING_H
#define EMBD_CLIENT_GREETING_H

#include "proto/message.h"

/* What the server said it takes, never more than this library's own limits. */
struct greeting {
    uint64_t frame_bytes, keys;
    uint32_t requests;              /* in flight on one connection */
    char loading[LIMIT_ERROR_TEXT]; /* why it takes no requests yet; "": it does */
};

#define SHARD_ANY UINT32_MAX

/* The whole message; `token` may be NULL. Returns m->status. */
int embd__greeting_write(struct msg *m, uint32_t msgid, const char *token, uint64_t client_id);

/* Sets the reader's error when the peer is of another version, or is not shard `shard` of
 * `n_shards` (SHARD_ANY: any). *out is set on success. */
void embd__greeting_read(struct reader *r, uint32_t shard, uint32_t n_shards, struct greeting *out);

#endif
