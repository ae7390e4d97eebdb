/* placement_json.h - the placement of keys in files and in etcd. */
#ifndef EMBD_PROTO_PLACEMENT_JSON_H
#define EMBD_PROTO_PLACEMENT_JSON_H

#include <jansson.h>

#include "proto/placement.h"

/* {"version", "base", "runs": [shard, vshards, shard, vshards, ...]}; NULL: out of memory. */
json_t *embd__placement_to_json(const struct placement *p);
/* EMBD_CORRUPT: it is no map of this many shards. */
int embd__placement_from_json(const json_t *object, uint32_t n_shards, struct placement *out,
                              struct embd__error *e);

#endif
