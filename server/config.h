/* config.h - what a process is to do, made of flags, configuration file and defaults, and checked.
 */
#ifndef EMBD_CONFIG_H
#define EMBD_CONFIG_H

#include "server/member/etcd.h"
#include "server/net/shard_io.h"
#include "server/net/credentials.h"
#include "server/net/listener.h"
#include "server/log/log.h"
#include "proto/partfile.h"
#include "proto/placement.h"
#include "server/store/store.h"

/* One process of the cluster. */
struct config_server {
    char name[64]; /* "" where it has none */
    struct listen_address address;
    uint32_t shards, first_shard; /* indices in the cluster */
    char admin_dir[256];
    char local_dir[256];         /* of data sockets; "": none */
    uint32_t local_group;        /* that they let in, or NO_GROUP */
    char advertise[256];         /* host; "": that of `address` */
    struct listen_address admin; /* of the first shard's admin listener on TCP */
    bool has_admin;
    bool is_private;     /* it listens nowhere: peers are of its own process */
    char data_dir[4096]; /* "": none is said */
    bool is_listed;      /* the file says where it listens */
};

#define CONFIG_CPUS_MAX    256
#define CONFIG_DROPPED_MAX 16 /* tables that one start drops */

enum config_http {
    CONFIG_HTTP_OFF,
    /* the default, not configured: the server starts even if the port is taken */
    CONFIG_HTTP_BY_DEFAULT,
    CONFIG_HTTP_ASKED,
};

#define REPLICAS_MAX 8u /* followers that a shard has at most */

struct config {
    char cluster_name[64];
    bool has_etcd; /* servers are where they say in etcd */
    struct etcd_place etcd;
    uint32_t etcd_lease_s;
    bool has_failover; /* processes of one name follow each other */
    struct config_server *servers;
    uint32_t n_servers, self;
    struct listen_address http;
    enum config_http http_is;
    bool accepts_journal_damage, accepts_empty, joins;
    char peer_token[1024]; /* "": none */
    char dropped_text[CONFIG_DROPPED_MAX * (EMBD_NAME_MAX + 2)];
    const char *dropped[CONFIG_DROPPED_MAX]; /* [n_dropped] names of tables, in this text */
    uint32_t n_dropped;
    bool is_check;      /* only whether this can be read was asked */
    uint32_t n_shards;  /* of the cluster */
    bool has_placement; /* one is configured: */
    struct placement placement;
    char store[32];
    struct store_gpus gpus;
    char data_dir[4096];     /* "": none */
    char follow[512];        /* of the server to be followed, or its place in etcd; "": none */
    bool follows_etcd;       /* it is `etcd` that says where that server is */
    char follow_token[1024]; /* "": none */
    bool serves;             /* while it follows */
    bool is_narrow;          /* and without optimizer state, with rows as: */
    embd_dtype serve_dtype;
    uint64_t digest_interval_s;
    char archive[4096];       /* a place of backups; "": none */
    char archive_token[1024]; /* "": none */
    uint64_t archive_every_s, archive_days;
    uint32_t replicas;
    bool promotes;
    bool is_restore_off;
    char restore[SNAPSHOT_NAME_MAX +
                 1]; /* the snapshot to begin with; "": the newest that verifies */
    struct net_limits limits;
    struct credential_files credential_files;
    uint64_t frame_memory, journal_limit;
    bool is_journal_strict;
    uint64_t row_memory; /* 0: no limit */
    bool has_row_memory;
    int cpus[CONFIG_CPUS_MAX];
    uint32_t n_cpus;
    enum log_level log_level;
    int ready_fd; /* -1: none */
};

/* May exit: see settings_flags_read. EMBD_INVALID, EMBD_TOO_LARGE, EMBD_UNSUPPORTED: a sentence
 * that names the flag, or file, line, column and key; *out is zero. */
int config_read(int argc, char **argv, struct config *out, struct embd__error *e);
void config_fini(struct config *config);

#endif
