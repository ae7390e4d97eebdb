/* placement_wire.h - the placement of keys in messages. */
#ifndef EMBD_PROTO_PLACEMENT_WIRE_H
#define EMBD_PROTO_PLACEMENT_WIRE_H

#include "proto/message.h"
#include "proto/placement.h"

/* The field `placement`: {"version", "base", "runs": [shard, vshards, shard, vshards, ...]}. */
void embd__placement_write(struct msg *m, const struct placement *p);
/* Absent: the even map, of version 1. On an error, which is the reader's, too. */
int embd__placement_read(struct fields *f, uint32_t n_shards, struct placement *out);

#endif
