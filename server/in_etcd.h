/* in_etcd.h - a process of a cluster whose map is in etcd: the member (server/member) tells where
 * the shards are, and the shards tell the member how many there are. */
#ifndef EMBD_IN_ETCD_H
#define EMBD_IN_ETCD_H

#include "server/process.h"

/* As member_open; nothing where the cluster is in the file. */
int in_etcd_open(struct process *p, struct embd__error *e);
void in_etcd_close(struct process *p);
/* For shard_config.resize, wherever the map is. */
int in_etcd_take(void *process, const struct placement *place, struct shard_map **map_out,
                 struct embd__error *e);

#endif
