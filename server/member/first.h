/* first.h - where a cluster in etcd is, for a server that follows it and is no member. */
#ifndef EMBD_MEMBER_FIRST_H
#define EMBD_MEMBER_FIRST_H

#include <pthread.h>
#include <stddef.h>

#include "server/member/etcd.h"

#define MEMBER_FIRST_BYTES 256u
#define MEMBER_FIRST_MS    100u

/* What etcd said last: all shards of a process lose their server at once, and one of them asks. */
struct member_first {
    pthread_mutex_t lock; /* held by who asks */
    uint64_t until_ns;    /* nobody asks again before that, by CLOCK_MONOTONIC */
    char admin[MEMBER_FIRST_BYTES];
    struct embd__error error;
};

/* The admin listener of shard 0 now, or MEMBER_FIRST_MS ago: its socket's path where that is on
 * this host, else its "host:port". Blocks as etcd.h says. EMBD_UNREACHABLE: etcd is silent, or the
 * map has no shard 0 or no listener that can be reached from here. Any thread. */
int member_find_first(struct member_first *first, const struct etcd_place *place, char *admin_out,
                      size_t bytes, struct embd__error *e);

#endif
