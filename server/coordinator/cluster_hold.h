/* cluster_hold.h - all shards at one moment: changes to tables wait, and each push of a client is
 * on all of its shards or on none. */
#ifndef EMBD_CLUSTER_HOLD_H
#define EMBD_CLUSTER_HOLD_H

#include "server/peers/peers.h"

/* A shard must answer within this time a request that it answers at once. */
#define CLUSTER_ASK_MS 30000u

/* Makes changes to tables wait, on every shard, for some seconds at most. A client that leaves a
 * push half sent for 15 s is left out: that push is on some shards only, and the log names the
 * client; where `leaves_none` is set, that is EMBD_BUSY. Raises *pause_us to the longest that
 * changes waited in tries before. On failure nothing is held. */
int cluster_hold(struct peers *peers, uint32_t n_shards, bool leaves_none, uint64_t *pause_us,
                 struct embd__error *e);

/* How far the clients have come, at the moment of a hold. */
struct cluster_marks {
    uint64_t *clients; /* [n] malloc'd */
    uint32_t *pushed;  /* [n] malloc'd: the number of the last push of each */
    uint32_t n;
};
/* The same with `leaves_none`. */
int cluster_hold_marks(struct peers *peers, uint32_t n_shards, struct cluster_marks *out,
                       uint64_t *pause_us, struct embd__error *e);
void cluster_marks_fini(struct cluster_marks *marks);

/* Lets them go on; raises *pause_us to what they had to wait, on the shard where it was longest. A
 * shard that cannot be reached has ended its hold by itself: not an error. */
void cluster_release(struct peers *peers, uint32_t n_shards, uint64_t *pause_us);

#endif
