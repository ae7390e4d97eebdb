/* member.h - a process as a member of a cluster whose shards may move: where they are stands in
 * etcd.
 *
 * PREFIX/servers/NAME says which process has a name now, under a lease that the process keeps; it
 * goes when the process does. PREFIX/map says where the shards of every server are, and is changed
 * by compare-and-swap alone, by the process that has the name. Which server has which shards is the
 * configuration's, the same for all; so a server that starts elsewhere has the shards it had. A
 * server that was added is on the map once it is a member, and no more once it has left: shard 0's
 * journal decides which it is, not etcd.
 *
 * A thread of its own asks etcd; nothing else waits for it. Without etcd the cluster goes on as it
 * was: only moves are not heard of. */
#ifndef EMBD_MEMBER_MEMBER_H
#define EMBD_MEMBER_MEMBER_H

#include "server/member/etcd.h"

#define MEMBER_LEASE_S          10u
#define MEMBER_FAILOVER_LEASE_S 3u

struct failover;
struct promotion;

struct member_server {
    const char *name;
    uint32_t first_shard, n_shards;
};

/* Where each shard of the cluster is; there may be more than the cluster has. */
struct member_map {
    uint64_t version; /* 0: nothing known yet */
    uint32_t n_shards;
    char **addresses, **admin_addresses, **admin_hosts; /* [n_shards]; "" or NULL: not known */
    uint64_t *placements; /* [n_shards]: by which it was put there; 0: not known. NULL: none is */
};

/* What the process is to the cluster. */
enum membership {
    MEMBERSHIP_NONE, /* it is to become a member: it is on no map yet */
    MEMBERSHIP_HELD,
    MEMBERSHIP_LEFT, /* it gives its name back and leaves the map, which it still reads */
};
struct member_standing {
    enum membership is;
    uint64_t placement; /* the version by which it became a member, or a later one */
    uint32_t n_shards;  /* of the cluster, */
    uint64_t latest;    /* by this version */
};

struct member_config {
    struct etcd_place place;
    uint32_t lease_s;
    const struct member_server *servers; /* [n_servers]; stays while the member is open */
    uint32_t n_servers, self;
    /* As the configuration has it, with this server's shards at their addresses. Copied. */
    const struct member_map *start;
    struct member_standing standing; /* at first */
    /* Processes that have the same name: one serves, others follow it and take its place
     * (elect.c). NULL: a process takes the name of one that is gone, and nobody follows. */
    struct failover *failover;
    struct promotion *promotion; /* of a process that follows; NULL: it begins as the one that
                                    serves */
    uint64_t node;               /* a number of the data directory */
    uint32_t replicas;           /* followers that have to have a change */
    /* On the member's thread. */
    void (*on_map)(void *arg, const struct member_map *map); /* valid during the call */
    void (*on_lost)(void *arg); /* another process has our name: this one must end */
    void (*on_etcd)(void *arg, bool answers);
    void *arg;
};

struct member;

/* Of a process that starts, where the cluster has `failover`. */
struct member_role {
    bool follows;   /* another process serves, or is to */
    uint64_t epoch; /* in which it serves, where it does not follow */
    char why[200];  /* it follows */
};
/* Asks etcd, for some leases at most. `node` and `epoch` are those of the data directory;
 * `is_followers`: its journal is of another server. EMBD_UNREACHABLE: etcd does not answer, or who
 * is to serve stays open; and as member_open. */
int member_find_role(const struct etcd_place *place, uint32_t lease_s, const char *name,
                     uint64_t node, uint64_t epoch, bool is_followers, struct member_role *out,
                     struct embd__error *e);

/* EMBD_INVALID: a file of the place cannot be read; EMBD_NO_MEMORY; EMBD_UNSUPPORTED where embd was
 * built without libcurl. */
int member_open(const struct member_config *config, struct member **out, struct embd__error *e);
/* Another one than before. Any thread. */
void member_set_standing(struct member *member, const struct member_standing *standing);
/* Gives the name back, within a few seconds at most. NULL is allowed. */
void member_close(struct member *member);

#endif
