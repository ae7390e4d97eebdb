/* cluster_replace.h - staged tables of all shards take the places of others, or the map of a move
 * that of the map before, while a hold of these connections lasts (cluster_hold.h): on all shards
 * or on none. */
#ifndef EMBD_CLUSTER_REPLACE_H
#define EMBD_CLUSTER_REPLACE_H

#include "server/peers/peers.h"

struct cluster_replace {
    uint64_t id;       /* of the staged tables, or of the move */
    uint64_t decision; /* a random number of this attempt; 0: there is one shard */
    uint32_t n_tables, n_shards;
    bool is_place;        /* a map, and no tables but of: */
    uint32_t first_added; /* shards from here on become members, with tables; 0: none does */
    bool retires;         /* shards leave with the map */
};

/* Whether the staged tables can, on every shard. An error has changed nothing. */
int cluster_check_replace(struct peers *peers, const struct cluster_replace *replace,
                          struct embd__error *e);
/* After the check: they do. The error says what becomes of those shards that did not answer. */
int cluster_apply_replace(struct peers *peers, const struct cluster_replace *replace,
                          struct embd__error *e);

#endif
