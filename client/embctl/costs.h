/* costs.h - the shares of the keys that even out what shards have to do. */
#ifndef EMBCTL_COSTS_H
#define EMBCTL_COSTS_H

#include "embd/admin.h"

/* What a shard's keys cost it. */
enum cost {
    COST_ROWS, /* rows it has */
    COST_LOAD, /* keys that were pulled from it and pushed to it, in some seconds */
};

/* weights [embd_shard_count], for embd_rebalance: each of a shard's keys is taken to cost what its
 * keys cost on average today. A shard without keys is taken to be like the others.
 *   seconds         of COST_LOAD: how long keys are counted; the call takes as long
 *   is_nothing_out  set where no shard's keys cost anything, so that all weights are the same
 * Errors of figures_read and embd_vshards. */
int costs_weigh(embd_client *client, enum cost cost, double seconds, uint32_t *weights,
                bool *is_nothing_out);

#endif
