/* growing.h - the cluster of a process gets more or fewer shards while it runs, or has others than
 * the configuration says. */
#ifndef EMBD_GROWING_H
#define EMBD_GROWING_H

#include "server/process.h"

struct placement;

/* Behind identity_open: the shards that the directory says are those of the cluster.
 * EMBD_NO_MEMORY. */
int growing_begin(struct process *p, struct embd__error *e);
/* Asks the other servers from now on. EMBD_NO_MEMORY. */
int growing_ask(struct process *p, struct embd__error *e);
/* The cluster has the shards of this placement, as the identity does already; with `growing`
 * held. */
int growing_take(struct process *p, const struct placement *place, struct embd__error *e);
/* The same of a follower that was promoted: all shards are of this process. */
int growing_take_own(void *process, uint32_t n_shards, struct embd__error *e);

#endif
