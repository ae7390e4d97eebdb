/* routed.h - whether keys belong to this shard.
 *
 * A key on a shard that does not own it would get a row that no routing client finds, and that a
 * load on other shards loses. So pulls, pushes, erases and loads refuse it. Only a journal's
 * records, which may be of a version that accepted such keys, are replayed unchanged. */
#ifndef EMBD_ENGINE_ROUTED_H
#define EMBD_ENGINE_ROUTED_H

#include "proto/placement.h"
#include "server/store/store.h"
#include "server/engine/tables.h"

/* This shard's index, and the version of its map. */
struct routed_place {
    uint32_t shard, n_shards; /* of one nothing is looked at */
    uint64_t map_version;
    const struct placement *placement; /* NULL: the even one */
};

/* EMBD_INVALID naming the first key that is another shard's, its owner and this shard; `what` is
 * for the error's beginning. Slots are below the table's. */
int routed_check(const struct table *table, const struct store_keys *in,
                 const struct routed_place *place, const char *what, struct embd__error *e);

#endif
