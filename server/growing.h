/* growing.h - the cluster of a process gets more or fewer shards while it runs, or has others than
 * the configuration says. */
#ifndef EMBD_GROWING_H
#define EMBD_GROWING_H

#include "server/process.h"

/* Behind identity_open: the shards that the directory says are those of the cluster.
 * EMBD_NO_MEMORY. */
int growing_begin(struct process *p, struct embd__error *e);
/* Asks the other servers from now on. EMBD_NO_MEMORY. */
int growing_ask(struct process *p, struct embd__error *e);
/* For shard_config.resize. The identity has the placement's shards already. */
int growing_take(void *process, const struct placement *place, struct shard_map **map_out,
                 struct embd__error *e);

#endif
