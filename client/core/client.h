/* client.h - what a client handle holds. Owner: the caller's thread; what belongs to the loop's
 * thread is only reached through jobs (io_thread.h). */
#ifndef EMBD_CORE_CLIENT_H
#define EMBD_CORE_CLIENT_H

#include "client/call/arena.h"
#include "client/call/distinct.h"
#include "client/core/cluster_map.h"
#include "client/core/replicas.h"
#include "client/io/credentials.h"
#include "client/call/numbered.h"
#include "client/call/numbering.h"
#include "proto/placement.h"
#include "proto/schema.h"
#include "client/io/io_thread.h"
#include "client/io/shared.h"

struct client_shard {
    /* Changed by the loop's thread where the shard moves (cluster_map.c); what they point to stays.
     * admin_address is "" where the server has none, admin_host, "host:port" on TCP, likewise. */
    char *_Atomic address, *_Atomic admin_address, *_Atomic admin_host;
    char *texts;               /* that they were in the first map; the client's */
    struct link *link, *admin; /* admin is NULL if there is none */
    bool asks_admin;           /* by `admin` what both listeners answer */
};

/* One that has left the cluster, and whose number another one has: messages that have ended name
 * its links. */
struct left_shard {
    struct client_shard shard;
    struct left_shard *next;
};

/* The memory of plan.c for batches of one size. */
struct plan_history {
    uint32_t calls_left;  /* until keys are counted again; 0: now */
    float distinct_ratio; /* distinct keys / keys */
};

struct embd_table {
    struct embd_client *client;
    struct table_schema schema;
    uint32_t name_id;                /* embd__table_id of its name */
    uint64_t starts;                 /* embd__table_starts when it was opened */
    struct plan_history history[32]; /* by the power of two of n_keys */
    uint64_t look;                   /* the last push that was checked with it, of client.n_looks */
    uint32_t look_at;                /* its part there */
    struct embd_table *next;
    uint32_t ids[]; /* [LIMIT_SHARDS] on each shard */
};

struct embd_client {
    struct embd_options options;
    struct credentials credentials;
    enum transport transport; /* of links for pulls and pushes */
    uint64_t id;              /* what servers know its pushes by; not 0 */
    struct embd__error error; /* of the last failed call */
    struct io_thread io;
    const struct dialer *dialer; /* to the server in this process; NULL: servers have addresses */
    struct shared *shared;       /* with servers on this host */
    struct pool messages;        /* of calls */
    struct known_answer *known;  /* [KNOWN_ANSWERS]; NULL: none are kept */
    uint32_t n_shards;           /* growth.c, shrinking.c */
    _Atomic uint32_t n_linked;   /* that have links: the loop's thread may look at these */
    struct client_shard *shards; /* [LIMIT_SHARDS], so that none moves where some are added */
    struct left_shard *left;     /* shards that left: */
    _Atomic uint64_t left_restarts, left_rollbacks,
        left_replicated_rollbacks;      /* what the links of all that did had counted */
    struct replicas replicas;           /* that answer pulls, too */
    struct placement placement;         /* of keys on them; the caller's thread */
    uint64_t n_placements;              /* that it has had before this one */
    _Atomic uint64_t placement_version; /* its; any thread */
    uint64_t next_placement; /* version of the next one, as a server has said; 0: it is the next */
    uint64_t n_started;      /* calls */
    uint32_t last_msgid;
    uint64_t last_order; /* of the pushes */
    uint64_t n_looks;    /* pushes whose tables were compared */
    struct embd_table *tables;
    struct embd_call *calls;      /* all that were ever made */
    struct embd_call *free_calls; /* those not in use */
    struct exchange request;      /* of request.h */
    enum method request_method;   /* its */
    bool came_by_socket;          /* the map came from an admin socket */
    bool came_by_left;            /* or from a server that has left the cluster */
    struct distinct distinct;     /* of the rows plan */
    struct map_refresh map_refresh;
    struct opened opened;                  /* streams of pushers */
    struct numbering numbering;            /* of pushes that name none */
    struct embd_device *devices;           /* memory of GPUs that is lent */
    struct device_sending *device_sending; /* of device_run.c; NULL: none yet */
    struct device_sets *device_sets;       /* of device_sending.c; NULL: none yet */
    struct embd_device_call *device_calls, *free_device_calls; /* all ever made; not in use */
    struct embd_device_node *device_nodes; /* calls of CUDA graphs; guarded, as all they do: */
    pthread_mutex_t nodes_lock;
    struct gate_turn *turns; /* of its calls that have not ended; guarded: */
    pthread_mutex_t turns_lock;
    struct member *members;        /* of clocks.h */
    struct heartbeats *heartbeats; /* for them; NULL: none yet */
};

/* Prepares an exchange that waits no longer than `deadline_ms` (0: the client's). */
static inline void embd__client_begin_at(struct embd_client *client, struct exchange *x,
                                         uint32_t deadline_ms, uint64_t now_ns)
{
    client->last_msgid = client->last_msgid >= UINT32_MAX - 2 ? 1 : client->last_msgid + 1;
    embd__exchange_begin(x, client->last_msgid, now_ns,
                         deadline_ms != 0 ? deadline_ms : client->options.deadline_ms);
}

static inline void embd__client_begin(struct embd_client *client, struct exchange *x,
                                      uint32_t deadline_ms)
{
    embd__client_begin_at(client, x, deadline_ms, uv_hrtime());
}

/* Whether a status says only that a shard is not there, or not ready. */
static inline bool embd__is_silence(int status)
{
    return status == EMBD_UNREACHABLE || status == EMBD_DEADLINE || status == EMBD_CLOSED ||
           status == EMBD_LOADING || status == EMBD_DRAINING;
}

static inline bool embd__table_is_journaled(const embd_table *table)
{
    return embd__durability_is_journaled(table->schema.s.durability);
}

/* figures.c: starts of all shards, as far as seen, that tables may have come back from with less:
 * all starts for tables that no journal keeps. Any thread. */
uint64_t embd__table_starts(const embd_client *client, embd_durability durability);
/* call.c: frees all calls; the loop stands still. */
void embd__calls_init(struct embd_client *client);
void embd__calls_fini(struct embd_client *client);
/* placement.c: asks a shard which shard has which keys, until it has a newer map than the client,
 * or has had an older one for long, which is the client's then; or the deadline passes. */
int embd__placement_learn(struct embd_client *client, uint32_t shard, uint64_t deadline_ns,
                          bool *is_other_out);
/* Asks shard 0 once whether the cluster has other shards: before and behind what asks each shard
 * without naming a map. Whether it has; they are the client's then. Never sets an error. */
bool embd__client_catch_up(struct embd_client *client);
/* A request to each shard has failed. Whether one of them has left: then they are the client's no
 * more, and there is no error. */
bool embd__client_has_shrunk(struct embd_client *client);
/* moved.c: the same; then all calls in flight that were refused for the map are sent again. */
int embd__follow_map(struct embd_client *client, uint32_t shard, uint64_t deadline_ns,
                     bool *follows_out);
/* Of requests with keys: the version of the map that splits them; 0: the even one. */
static inline uint64_t embd__placement_told(const struct embd_client *client)
{
    return client->placement.is_even ? 0 : client->placement.version;
}
/* shard_link.c: the links of a shard, which connect by themselves. The loop stands still, or is the
 * caller's. */
int embd__shard_link(struct embd_client *client, uint32_t shard, uint32_t n_shards);
/* growth.c: the cluster has more shards: entries [n - client->n_shards] of those behind the
 * client's, as a map of that version has them. They are the client's from now on, with all that it
 * has on the others; an error leaves its shards as they are, and it may be called again. Blocks. */
int embd__client_grow(struct embd_client *client, const struct shard_entry *entries, uint32_t n,
                      uint64_t version);
/* shrinking.c: the cluster has `n` shards, and the client more: these are none of its any more. */
int embd__client_shrink(struct embd_client *client, uint32_t n);
/* Another shard is to have the place of one that left. EMBD_NO_MEMORY. */
int embd__left_set_aside(struct embd_client *client, uint32_t shard);
/* Nothing runs the loop: links of shards that left are closed, and their memory goes later. */
void embd__left_close(struct embd_client *client);
void embd__left_fini(struct embd_client *client);
/* describe.c: the table's id on a shard that is added. */
int embd__table_grow(struct embd_client *client, struct embd_table *table, uint32_t shard);
void embd__tables_fini(struct embd_client *client);
/* device.c: frees what is lent; the server's end of it is the connection's. */
void embd__devices_fini(struct embd_client *client);
/* device_run.c; the loop stands still. */
void embd__device_run_fini(embd_client *client);
void embd__device_calls_init(embd_client *client);
/* device_node.c */
void embd__device_nodes_init(embd_client *client);
void embd__device_nodes_fini(embd_client *client);
/* device_call.c: frees all calls; the loop stands still. */
void embd__device_calls_fini(struct embd_client *client);
/* EMBD_INVALID: none, or too long. */
int embd__table_name_check(embd_client *client, const char *name);

#endif
