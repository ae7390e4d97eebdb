/* shard_entry.h - where a shard is, as messages and identity.json have it. */
#ifndef EMBD_PROTO_SHARD_ENTRY_H
#define EMBD_PROTO_SHARD_ENTRY_H

#include "proto/message.h"

#define SHARD_ENTRY_BYTES 512u

struct shard_entry {
    char address[SHARD_ENTRY_BYTES];   /* "host:port" of the data listener */
    char admin[SHARD_ENTRY_BYTES];     /* path of the admin socket; "": on another host */
    char admin_tcp[SHARD_ENTRY_BYTES]; /* "host:port" of the admin listener; "": none */
};

/* A map of `shards` in the answer to `cluster`, or of `members`. */
int embd__shard_entry_read(struct reader *r, const msgpack_object *item, struct shard_entry *out);
/* `admin_tcp` may be NULL. */
void embd__shard_entry_write(struct msg *m, const char *address, const char *admin,
                             const char *admin_tcp);

#endif
