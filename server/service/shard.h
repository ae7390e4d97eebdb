/* shard.h - the requests of one shard: tables, their stores, what a request does and what is
 * answered.
 *
 * A shard knows no sockets. server/net hands it requests in the order their last bytes arrived and
 * sends the answers; everything of one shard happens on one thread, so nothing is locked.
 *
 * Pulls answered by the host store are made while they are sent: their bins stay empty (data NULL)
 * and shard_fill() makes the next bytes when the socket takes them, so that a chunk goes from the
 * rows through the cache into the kernel. A request that changes a table first materializes such
 * answers: it makes their remaining bytes in memory. So every pull shows the table at the moment it
 * took effect: in the order of its connection, and at the latest when its first row is made.
 *
 * A large pull of a GPU is answered when its first rows are made, and is_partial until the device
 * has made the others: all of one moment, in the memory that they are sent from. */
#ifndef EMBD_SERVICE_SHARD_H
#define EMBD_SERVICE_SHARD_H

#include "proto/device.h"
#include "server/service/metrics/stages.h"
#include "server/store/store.h"

struct access;
struct grant;
struct shard;
struct snapshot_select;
struct written;
struct coordinator;
struct failover;
struct follower_config;
struct identity;
struct local_place;
struct placement;
struct promotion;
struct follow_maps;
struct shard_map;
struct row_memory;

struct shard_net_stats {
    uint64_t connections, local_connections, requests_in_flight, bytes_in, bytes_out,
        frame_memory_bytes, shared_memory_bytes, frame_errors;
    uint64_t late_us, late_longest_us; /* see server/net/late.h */
};

#define SHARD_MAP_OF_FILE 1u /* map_version where the file says where shards are */

/* Lifetimes: everything pointed to outlives the shard. */
struct shard_config {
    uint32_t index, n_shards; /* in the cluster */
    const char *cluster_name;
    uint64_t start;       /* a number that no other start of a server has; 0: not known */
    uint64_t map_version; /* of the cluster's shard map */
    const struct placement *placement; /* which shard has which keys; NULL: the even map */
    const char *const *addresses; /* [n_shards] "host:port" of data listeners; "": not known yet */
    const char *const
        *admin_addresses; /* [n_shards] paths of admin sockets; "" where not on this host */
    /* [n_shards] "host:port" of admin listeners on TCP, "" for a shard without one; NULL: none */
    const char *const *admin_hosts;
    const struct local_place *local;      /* of the data socket, that hello tells; NULL: none */
    const struct follower_config *follow; /* of the server to be followed, without what is the
                                             shard's own; NULL: none */
    bool serves;                          /* reads, while it follows */
    bool is_narrow;              /* it follows by subscriptions (narrow.h), and keeps rows as: */
    embd_dtype serve_dtype;      /* where that is narrower than they are there */
    uint64_t digest_interval_s;  /* it compares its tables so often; 0: when asked */
    bool promotes;               /* a follower's directory becomes a server's own */
    struct follow_maps *maps;    /* of a process that follows, or is promoted; or NULL */
    struct promotion *promotion; /* of the process, while it runs; NULL: there is none */
    struct failover *failover;   /* of the process, where etcd says who serves; NULL: it does not */
    const struct shard_map *own_map; /* with failover: this process's shards, as admins see them
                                        while it follows */
    const struct store_ops *store;
    const char *data_dir;           /* snapshots go there; NULL: snapshot is refused */
    struct snapshot_select *chosen; /* the snapshot that a start begins with, for shards with
                              `loaded`; NULL: none is looked for */
    /* parts that the shards of the process wrote for snapshots; NULL: commit does not compare */
    struct written *written;
    struct coordinator
        *coordinator;          /* of the process; NULL: it makes no snapshots of the cluster */
    struct identity *identity; /* of the process's data directory: nothing is read or served until
                                  it is open. With `loaded` only; NULL: nobody asks */
    const _Atomic uint64_t *identity_news; /* rises behind each change of what it says; with it */
    /* Names of tables that a start leaves out, for good; and which of them the process has found,
     * which any shard of it notes. */
    const char *const *dropped_tables; /* [n_dropped_tables], at most LEFT_OUT_MAX */
    _Atomic bool *dropped_found;       /* likewise */
    uint32_t n_dropped_tables;
    bool accepts_journal_damage; /* drops what follows it, instead of failing */
    bool is_journal_strict;      /* also where the base has more bytes than: */
    uint64_t journal_limit; /* bytes after its base at which the journal is compacted; 0: never */
    uint32_t replicas;      /* followers that must have a change of a replicated table */
    bool is_first;          /* of its process: the one that commits snapshots */
    bool is_alone;          /* its process has all shards of the cluster */
    uint32_t own_first, own_n; /* the shards of its process; own_n 0: it is alone there */
    /* The process counts with the shards of this placement from now on, as the identity does, or
     * has left. *map_out: where they are, the caller's; NULL: the lists of addresses above have
     * them. The shard's thread. NULL: their number stays. */
    int (*resize)(void *arg, const struct placement *place, struct shard_map **map_out,
                  struct embd__error *e);
    /* The same of one that was promoted, whose process has them all. */
    int (*resize_own)(void *arg, uint32_t n_shards, struct embd__error *e);
    /* A follower: its cluster gets so many shards. Returns before the process has them. */
    void (*make_room)(void *arg, uint32_t n_shards);
    void *resize_arg;
    struct row_memory *row_memory; /* [STORE_PLACES], of the process; NULL: no limit */
    void (*drain)(void *arg);      /* asks the process to drain; any thread */
    void *drain_arg;
    void (*net_stats)(void *arg,
                      struct shard_net_stats *out); /* figures of the listeners; shard's thread */
    /* Memory for answers that are made as a whole, and for rows of i8 and i4 as f32. False: peers
     * have all that they may take. The shard's thread. NULL: there is no limit. */
    bool (*answer_take)(void *arg, uint64_t bytes);
    void (*answer_give)(void *arg, uint64_t bytes);
    void *net_arg;
    void (*wake)(
        void *arg); /* asks for shard_collect; any thread. NULL: the journal is written inline */
    void *wake_arg;
    /* The journal is replayed and the snapshot loaded, or cannot be (e; `follows`: they were, and
     * records of the server that is followed cannot be taken): then the shard refuses all
     * that touches tables until it ends. On the thread that calls shard_collect. NULL: shard_open
     * replays it and fails where it cannot be. */
    void (*loaded)(void *arg, bool follows, const struct embd__error *e);
    void *loaded_arg;
    struct access *access;      /* tokens; NULL: not required. shard_open takes a share */
    uint64_t push_bytes;        /* of the frame of a push, and of its gradients as f32; 0:
                            LIMIT_FRAME_BYTES */
    uint64_t materialize_bytes; /* at most kept of half-sent answers; 0: RAM / 4 / n_shards */
};

/* Memory that the peer of a connection has, too, and may change at any time. */
struct shared_memory {
    uint8_t *base; /* NULL: none */
    uint64_t bytes;
};

/* The shard's state of one connection. Zeroed by net before first use. */
struct shard_session {
    /* Net's. Takes memory from the peer, who sent its descriptor; sets `shared`. NULL: the
     * connection can have none. */
    int (*share)(struct shard_session *session, uint64_t bytes, struct embd__error *e);
    uint64_t share_most; /* bytes that it takes at most */
    struct shared_memory shared;
    struct lent_device *devices; /* the shard's: memory of GPUs that the peer lends (devices.h) */
    /* Likewise: memory for what both sides send, from the next request on. */
    int (*ring)(struct shard_session *session, uint64_t requests, uint64_t answers,
                struct embd__error *e);
    /* Likewise: the connection becomes a trunk, to this many shards; 0: it cannot. */
    int (*trunk)(struct shard_session *session, struct embd__error *e);
    uint32_t trunk_shards;
    bool is_sealed; /* net's: its bytes go through TLS */
    /* The shard's: hello said that `share`, or `ring`, comes with a descriptor. */
    bool awaits_share, awaits_ring;
    bool holds;               /* has asked for a hold and not released it */
    uint32_t n_journaled;     /* pushes of this connection whose record is being written */
    uint32_t n_parked;        /* requests of this connection that wait for a hold to end */
    bool is_behind_sweep;     /* one of these waited, at first, for slices of an earlier push */
    bool has_ended;           /* the peer has ended its side */
    struct request *in_round; /* its push that waits for those of other workers; NULL: none */
    bool has_withdrawn;       /* such a push, which comes again by another connection */
    struct request *gated;    /* that waits at its gate: gates.h; NULL: none */
    struct gate_turn *turns;  /* of requests that gates have let in, and that are not answered */
    struct request *behind, *behind_last; /* what waits behind one of these */
    uint64_t client; /* who pushes on it, see push_progress.h; 0: did not say */
    uint64_t serial; /* greater than that of sessions that said so before; 0: did not say */
    bool is_admin;
    bool sends_aside;    /* the shard's: its large answers need not be sent by the shard's thread */
    bool is_own_process; /* net's: the peer is this process */
    const struct grant *grant; /* what the peer may do; NULL: only hello, if tokens are required */
    uint64_t spent_ns; /* of the shard's thread, on its changes behind the journal; net takes it */
    bool is_refused;   /* the shard's: the token is not known, or not any more; net ends the
                        connection */
    /* The shard's alone. */
    struct access *access; /* that `grant` is in; NULL: it is grant_of_owner */
    /* Another server of the cluster, which makes a snapshot for the token `grant`: it may call what
     * a coordinator needs, for that token's tables. NULL: the peer is the token's holder. */
    const struct grant *server;
    struct shard_session *next_trainer; /* of those that authorize_hello counts */
    uint64_t hold_until_ns;
    uint64_t hold_ran_ns; /* the shard has run for so long since this hold began */
    bool hold_is_told;    /* in the log, as one that lasts long */
    struct shard_session *next_holder;
    struct shard_session *next_client, **client_at; /* of those that named themselves */
    uint64_t pushed_ns;   /* when its last push was answered; 0: none was */
    uint32_t pushed;      /* its place, see push_progress.h */
    uint32_t arrived;     /* place of the last push that came on it, in the order they came */
    bool has_arrived;     /* a push has */
    bool is_ordered;      /* and it sent its order */
    uint64_t asked_job;   /* of the coordinator, that ends with this connection; 0: none */
    uint32_t scan_table;  /* id of the table being scanned under the hold, 0: none */
    uint64_t scan_cursor; /* where its next scan goes on */
};

enum request_state {
    REQUEST_RECEIVED, /* net has it */
    REQUEST_PARKED,   /* the shard has it: it waits */
    REQUEST_ANSWERED, /* net sends the answer */
};

/* Where a request stands among the pushes of its client: see push_progress.h. */
enum request_place {
    PLACE_UNKNOWN, /* it was not looked at yet */
    PLACE_FIRST,   /* no push came before it on its connection */
    PLACE_BEHIND,  /* behind the push at its place */
    PLACE_AT,      /* it is the push, or is numbered with the pushes */
};

/* The event that a parked request waits for. */
enum request_waits {
    WAITS_HOLD,      /* for a hold to end, or for the store */
    WAITS_ROUND,     /* for the pushes of other workers */
    WAITS_GATE,      /* for a stream of the peer's */
    WAITS_FOLLOWERS, /* its answer, for followers to have what it changed */
    WAITS_BEHIND,    /* for the request of its connection that waits so */
};

/* The work done for a push before all of it arrived; see prefetch.c. */
struct prefetch {
    bool is_tried, is_on;
    bool any_value;             /* gradients need not be finite */
    uint32_t table;             /* its id */
    embd_partition partition;   /* of that, which keys were found to be this shard's by */
    struct store_ticket ticket; /* of the push, whose keys the table's store has looked up */
    const uint8_t *grads;
    embd_dtype dtype;
    uint64_t n_finite; /* gradients from the first that were found finite */
};

/* One request from its last received byte to its last sent byte. Net makes it, the shard fills in
 * the answer, net sends and frees it with shard_request_fini. */
struct request {
    /* Net's, before shard_handle. */
    enum listener listener;
    struct shard_session *session;
    struct frame_scanner *frame; /* complete; head and bin payloads stay until shard_request_fini */
    void (*on_answer)(struct request *request); /* called once, from within shard_handle or later */
    /* Of an answer that is_partial, from within shard_collect: shard_made has risen, or all is made
     * and it is partial no more; without has_answer the rest will never be, and what was sent is
     * to be cut off. NULL: no answer is partial. */
    void (*on_more)(struct request *request);
    uint64_t received_ns; /* monotonic, at the last byte */
    /* The shard's. */
    enum request_state state;
    enum request_waits waits;
    struct msg answer; /* complete when on_answer is called; bins without data come from shard_fill.
                          Net initializes and frees it, and may keep its buffers for another
                          request */
    bool has_answer;   /* false: a notification; nothing is sent */
    bool is_partial;   /* answered, and its bins are still being made: shard_made */
    bool is_push;
    bool goes_beside; /* rows of keys that move: loads.h */
    bool is_guarded;  /* by the fence (server/follow/failover.h): its answer says what is so */
    enum request_place place_kind;
    uint32_t place;
    uint64_t stopped_at;      /* parked, and looked at: sweeps.c */
    struct device_gate gate;  /* in the session's shared memory, which has it */
    bool is_lent_pull;        /* at a gate: what needs it fails if it does */
    struct gate_turn turn;    /* there, once it was let in */
    struct prefetch prefetch; /* private; zero before shard_arriving or shard_handle */
    struct shard_work *work;  /* private to the shard; NULL when nothing is pending */
    struct request *next;     /* list of the parked or of the unmaterialized; the shard's */
    struct stage_times times;
};

int shard_open(const struct shard_config *config, struct shard **out, struct embd__error *e);
/* No request may be pending. */
void shard_close(struct shard *shard);

/* All of a request that is not handled yet has arrived, but for the end of the last bin, which has
 * `arrived` bytes. May be called any number of times or never: a push is prepared as far as
 * possible while the rest arrives. Has no visible effect. Call shard_request_fini afterwards. */
void shard_arriving(struct shard *shard, struct request *request, uint64_t arrived);

/* Takes a request. Afterwards it is answered, or parked and answered later. Requests of one session
 * are answered in the order given. */
void shard_handle(struct shard *shard, struct request *request);

/* Makes the next bytes of the answer's bin `bin` (one with data NULL; bins in order, each from its
 * start) into out[0..capacity). Returns how many: whole rows where they fit, never 0 while the bin
 * is not finished. capacity >= LIMIT_FILL_BYTES unless less is left; out is aligned to 8. */
size_t shard_fill(struct shard *shard, struct request *request, uint32_t bin, void *out,
                  size_t capacity);
#define LIMIT_FILL_BYTES (32u << 10) /* two rows of 4096 floats */
/* Bytes a chunk should have to stay in cache between making and sending. */
size_t shard_fill_bytes(const struct shard *shard);

/* Of an answer that is_partial: how many bytes of the bin are made and stay as they are. Bins in
 * order. */
uint64_t shard_made(struct request *request, uint32_t bin);

/* The last byte of the answer is with the kernel: how long it took is counted. Before
 * shard_request_fini. */
void shard_request_sent(struct shard *shard, struct request *request, uint64_t now_ns);

/* Releases the shard's state of a request: after the last byte was sent, or when the connection is
 * closed (then in any state; a parked request is forgotten and has no effect). */
void shard_request_fini(struct shard *shard, struct request *request);

/* The peer has closed its side of the connection, or the kernel has for it. Its requests are
 * answered, but its push that waits in a round is withdrawn, since nothing says whether the worker
 * lives. Any number of times. */
void shard_session_half_end(struct shard *shard, struct shard_session *session);

/* The connection is closed: its holds end. Call it after the fini of its requests. */
void shard_session_end(struct shard *shard, struct shard_session *session);

/* Where the shards of the cluster are. One block of memory: free() frees it. */
struct shard_map {
    uint64_t version;
    const char *const *addresses, *const *admin_addresses,
                                      *const *admin_hosts; /* as in shard_config */
};
/* A copy of the lists; NULL: out of memory. Any thread. */
struct shard_map *shard_map_new(uint64_t version, uint32_t n_shards, const char *const *addresses,
                                const char *const *admin_addresses, const char *const *admin_hosts);
/* As admins see it: a process that follows as etcd says is a cluster of its own to them. */
struct shard_map shard_map_of_admins(const struct shard *shard);
/* From now on `cluster` answers this. Takes the map. */
void shard_set_map(struct shard *shard, struct shard_map *map);

/* From now on hello takes tokens of this list. Only where config.access was given. */
void shard_set_access(struct shard *shard, struct access *access);
/* Looks a session's token up in the list: sets is_refused if it is not there, or has other
 * rights. */
void shard_session_review(struct shard *shard, struct shard_session *session);

/* Ends holds whose timeout has passed, so that what waited for them goes on. Net calls it some ten
 * times a second with the clock of received_ns; shard_handle does the same with its request's time.
 */
void shard_tick(struct shard *shard, uint64_t now_ns);

/* Loads, if the journal is not replayed yet; answers requests whose store calls have ended; applies
 * some of the journaled pushes. Returns whether there is more, or store calls are in flight: then
 * call it again soon, without waiting. */
bool shard_collect(struct shard *shard);

/* Whether a request of the connection waits for slices of an earlier push: it is to begin no more
 * of them, or they would go before those that others begin. Over soon. */
bool shard_stands_behind_sweep(const struct shard *shard, const struct shard_session *session);

/* Refuse new work from now on (EMBD_DRAINING), except stats, ping and release. */
void shard_drain(struct shard *shard);
/* All requests from before that are answered, or `is_late`. Whether the shard may end: its
 * followers have all that was acknowledged, and know. */
bool shard_finish(struct shard *shard, bool is_late);

#endif
