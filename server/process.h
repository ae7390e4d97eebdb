/* process.h - one embd server: its shards, and what they have in common. opening.c opens and closes
 * it; running.c is what happens meanwhile. Owner: the main thread. */
#ifndef EMBD_PROCESS_H
#define EMBD_PROCESS_H

#include <uv.h>

#include "proto/dial.h"
#include "server/snapshot/snapshot_select.h"
#include "server/config.h"
#include "server/coordinator/coordinator.h"
#include "server/engine/row_memory.h"
#include "server/follow/failover.h"
#include "server/follow/follower.h"
#include "server/follow/maps.h"
#include "server/follow/promotion.h"
#include "server/identity/identity.h"
#include "server/log/ending.h"
#include "server/net/http/http.h"
#include "server/net/loop.h"
#include "server/member/first.h"
#include "server/member/member.h"
#include "server/places.h"
#include "server/snapshot/written.h"

struct process {
    struct config config;
    const struct store_ops *store;
    struct quota quota;
    struct row_memory row_memory[STORE_PLACES];
    uint64_t start;      /* a number that no other start has */
    struct loop **loops; /* [n], one per shard of this process */
    uint32_t n, room;    /* room >= n: for one that follows and gets more, see making_room.h */
    atomic_uint n_started, room_asked;
    atomic_uint n_own; /* of the cluster: a process that follows may have room for more than that */
    void (*look_for_room)(struct process *p); /* with news; NULL: it gets no more shards */
    struct trunks *trunks; /* peers that reach several of them by one connection */
    struct places places;
    uint32_t n_placed;  /* shards of the cluster whose places are known; guarded: */
    uv_mutex_t growing; /* by the shards' threads */
    struct credentials credentials;
    struct follower_config follow;
    struct member_first followed; /* where that is, as etcd says */
    struct failover *failover;    /* NULL: etcd does not say who serves */
    struct shard_map own_map;     /* of places */
    struct promotion *promotion;  /* NULL: the process does not follow */
    struct follow_maps *maps;     /* likewise */
    struct identity *identity;    /* of the data directory; NULL: none */
    struct identity_server *identity_servers;
    _Atomic uint64_t identity_news;  /* of the shards: it begins with 1 */
    uint64_t credentials_stamp;      /* of their files, when they were last read or could not be */
    struct peer_share *peers;        /* the other servers that have data, where they do not move */
    struct snapshot_select *chosen;  /* the snapshot to begin with; NULL: no data directory */
    struct coordinator *coordinator; /* of snapshots of the cluster */
    struct written *written;         /* by the shards, for snapshots; NULL: no data directory */
    uv_thread_t chooser;             /* finds it, */
    bool has_chooser;                /* while the shards load */
    struct member *member;           /* of a cluster in etcd; NULL: it is in the file. Guarded by
                                        `growing`, as are: */
    struct member_map etcd_map;      /* that it told last; of no shards: none yet */
    struct member_standing standing; /* of this process, as it is told */
    uint64_t added_by[LIMIT_SHARDS]; /* placements by which shards were added since the start */
    struct member_server *member_servers;
    atomic_bool etcd_silent; /* the member's thread says so */
    struct http *http;       /* NULL: off */
    struct http_process http_process;
    uv_loop_t uv;
    uv_signal_t on_term, on_int, on_hup;
    uv_timer_t watchdog;
    uint64_t *beats; /* [n], of the loops, when the watchdog last looked */
    uv_async_t news; /* from the shards' threads: */
    atomic_bool drain_asked, is_lost;
    atomic_uint n_ended, n_loaded;
    atomic_uint n_failed; /* to load: the first of them says why */
    atomic_bool has_why;  /* it has said: */
    struct embd__error why;
    bool
        has_failed_following; /* it had its own journal, and failed with another server's records */
    uv_timer_t patience;      /* of the service manager, while shards load */
    uv_timer_t credentials_watch;
    uv_timer_t archive_look; /* archiving.c: for the program that keeps the archive, */
    pid_t archiver;          /* 0: it does not run, */
    uint32_t archive_pause;  /* and is started after so many looks */
    char archive_figures[4096 + 16];
    enum exit_status exit_status;
    atomic_bool dropped_found[CONFIG_DROPPED_MAX]; /* by a shard, of config.dropped */
    bool was_signalled, is_ready;
    /* In another program (server/inproc), where it leaves the process's signals, standard output
     * and service manager alone; set before running_open, with the rest: */
    bool is_embedded;
    uint32_t n_allowed;          /* processors, those of pinned shards among them */
    const struct dialer *dialer; /* to the shards; NULL: by their sockets */
    void (*on_ready)(void *arg); /* on the thread of running_wait */
    void *on_ready_arg;
    struct embd__error failure; /* of process_fail */
};

/* Which shard has which keys; behind directory_open. */
static inline const struct placement *process_placement(const struct process *p)
{
    return p->identity != NULL ? identity_placement(p->identity) : &p->config.placement;
}

static inline const struct config_server *process_self(const struct process *p)
{
    return &p->config.servers[p->config.self];
}

/* row_limit.c: sets the limit of row_memory for the process's store. */
void row_limit_set(struct process *p);

/* ---- opening.c ---- */

/* The listeners of one more shard, and its thread. */
int process_open_loop(struct process *p, uint32_t i, struct embd__error *e);
int process_start_shard(struct process *p, uint32_t i, struct embd__error *e);
/* Where the file says where servers are, and the process has a data directory. */
bool process_can_resize(const struct process *p);

/* Opens all, and starts the shards; after running_open. Otherwise `e` says why not. process_close
 * is due in every case. */
enum exit_status process_open(struct process *p, struct embd__error *e);
/* The shards have ended, or drain. */
void process_close(struct process *p);

/* Certificates and tokens; also without the rest. */
int process_open_credentials(struct process *p, struct embd__error *e);
bool process_has_http(const struct process *p);
/* The one place where a status becomes an exit status. `if_not` is that of any failure but a lack
 * of memory, which a later start may not meet. */
enum exit_status process_exit_status(int status, enum exit_status if_not);

/* ---- running.c ---- */

/* Keeps why the process cannot start in p->failure, and reports it: a usage error on standard
 * error, anything else in the log. Returns the status. */
enum exit_status process_fail(struct process *p, enum exit_status status,
                              const struct embd__error *e);

/* Signals, and news of the shards' threads; before these start. EMBD_NO_MEMORY. */
int running_open(struct process *p, struct embd__error *e);
/* Waits until there is a reason to end and all shards have finished their work. */
void running_wait(struct process *p);
void running_close(struct process *p);

/* Has every shard look at what others have set. Any thread, while the shards run. */
void running_wake(void *arg);

/* Has the started shards finish their work. */
void running_drain(struct process *p);

/* Called by a shard on its thread. `arg` is the process. */
void running_on_loaded(void *arg, bool follows,
                       const struct embd__error *e); /* its journal is replayed, or cannot be */
void running_on_lost(
    void *arg); /* another process serves in its place: this one ends, as a failure */
void running_on_drain(void *arg); /* the admin method; perhaps while others still start */
void running_on_end(void *arg);   /* the last act of its thread */

#endif
