/* first.h - where a cluster in etcd is, for a server that follows it and is no member. */
#ifndef EMBD_MEMBER_FIRST_H
#define EMBD_MEMBER_FIRST_H

#include <stddef.h>

#include "server/member/etcd.h"

/* The admin listener of shard 0 now: its socket's path where that is on this host, else its
 * "host:port". Blocks as etcd.h says. EMBD_UNREACHABLE: etcd is silent, or the map has no shard 0
 * or no listener that can be reached from here. */
int member_find_first(const struct etcd_place *place, char *admin_out, size_t bytes,
                      struct embd__error *e);

#endif
