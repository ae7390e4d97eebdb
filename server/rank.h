/* rank.h - whether a process that starts serves, or follows the one that does, where etcd says so
 * (`failover`). Owner: the main thread. */
#ifndef EMBD_RANK_H
#define EMBD_RANK_H

#include "server/process.h"

/* A number of the data directory, by which etcd knows who served last. */
uint64_t rank_node(const struct process *p);

/* Behind directory_open, before anything is read. Sets p->failover, and config.follow of a process
 * that follows; what its data directory had of its own is kept aside there. EMBD_OK at once without
 * `failover`. EMBD_UNREACHABLE, EMBD_IO, EMBD_CORRUPT, EMBD_NO_MEMORY, EMBD_UNSUPPORTED. */
int rank_find(struct process *p, struct embd__error *e);

#endif
