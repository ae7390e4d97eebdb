/* sweeps.h - pushes that step all rows of a large table leave work behind (store_stats.slices),
 * which the shard makes in slices, between other requests.
 *
 * The table shows such a push as a whole all the while, so what only reads goes on. What changes
 * the table, or what tables there are, waits for the end of that work, so that no request makes it
 * at once; and only one such push is in the journal at a time, so that no other stands behind it.
 *
 * A push of very many keys is applied in slices itself (is_late), and nobody may see half of it:
 * what reads its table waits too.
 *
 * A push that is applied in slices, or that a device works on, may still be refused for lack of
 * room. The next one of its stream waits for it, whatever its tables, as a replay would not apply
 * it either; and so does an opening of that stream, which tells the last number. */
#ifndef EMBD_SERVICE_SWEEPS_H
#define EMBD_SERVICE_SWEEPS_H

#include "server/service/state.h"

/* The thread of a shard that a slice counts as, for the turn of the connection that pushed. */
#define SWEEP_SLICE_NS UINT64_C(1000000)

/* Whether any request has to wait for a table, or for any of these ends. */
static inline bool sweeps_are_on(const struct shard *shard)
{
    return shard->engine.tables.n_swept + shard->commit.n_long > 0;
}

static inline bool sweeps_may_stop(const struct shard *shard)
{
    return sweeps_are_on(shard) || shard->engine.unsure != NULL;
}

/* Whether this push, pull or opening of a stream has. Leaves call->reader used up. */
bool sweeps_stop(struct call *call, bool was_parked);
/* The same of a push that waits for the other workers of its round. */
bool sweeps_stop_push(const struct shard *shard, const struct op *push);

#endif
