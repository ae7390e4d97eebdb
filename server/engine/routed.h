/* routed.h - whether keys are this shard's.
 *
 * A key that came to a shard which does not own it would get a row that nobody who routes finds,
 * and that a load on other shards loses. So pulls, pushes, erases and loads refuse it. Only records
 * of a journal, which may be of a version that took such keys, are replayed as they are. */
#ifndef EMBD_ENGINE_ROUTED_H
#define EMBD_ENGINE_ROUTED_H

#include "server/store/store.h"
#include "server/engine/tables.h"

/* Which shard this is, and of which map. */
struct routed_place {
    uint32_t shard, n_shards; /* of one nothing is looked at */
    uint64_t map_version;
};

/* EMBD_INVALID naming the first key that is another shard's, its owner and this shard; `what` is
 * for the error's beginning. Slots are below the table's. */
int routed_check(const struct table *table, const struct store_keys *in,
                 const struct routed_place *place, const char *what, struct embd__error *e);

#endif
