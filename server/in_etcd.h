/* in_etcd.h - a process of a cluster whose map is in etcd: the member (server/member) tells where
 * the shards are, and the shards tell the member how many there are. */
#ifndef EMBD_IN_ETCD_H
#define EMBD_IN_ETCD_H

#include "server/process.h"

struct placement;

/* As member_open; nothing where the cluster is in the file. */
int in_etcd_open(struct process *p, struct embd__error *e);
void in_etcd_close(struct process *p);
/* The cluster has the shards of this placement, whose places are known; with `growing` held.
 * Returns where they are, for one shard, which takes it; NULL: as the lists of places have it. */
struct shard_map *in_etcd_resize(struct process *p, const struct placement *place);

#endif
