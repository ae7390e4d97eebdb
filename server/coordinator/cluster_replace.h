/* cluster_replace.h - staged tables of all shards take the places of others, while a hold of these
 * connections lasts (cluster_hold.h). */
#ifndef EMBD_CLUSTER_REPLACE_H
#define EMBD_CLUSTER_REPLACE_H

#include "server/peers/peers.h"

/* Whether the n staged tables of that id can, on every shard. An error has changed nothing. */
int cluster_check_replace(struct peers *peers, uint32_t n_shards, uint64_t id, uint32_t n,
                          struct embd__error *e);
/* After the check: they do. The error says how many shards have them. */
int cluster_apply_replace(struct peers *peers, uint32_t n_shards, uint64_t id,
                          struct embd__error *e);

#endif
