/* member_inside.h - what the files of a member share: member.c, whose thread runs; turns.c; lead.c,
 * the steps of a process that serves and has followers; elect.c, those of a follower; role.c, what
 * a process is when it starts. */
#ifndef EMBD_MEMBER_MEMBER_INSIDE_H
#define EMBD_MEMBER_MEMBER_INSIDE_H

#include <pthread.h>

#include "server/follow/failover.h"
#include "server/member/member.h"

#define MAP_KEY          "map"
#define MEMBER_KEY_BYTES 128u

enum member_state {
    MEMBER_LEASELESS,
    MEMBER_NAMELESS,
    MEMBER_UNLISTED,
    MEMBER_LISTED,
    MEMBER_FOLLOWS, /* another process has the name */
    MEMBER_RISES,   /* has taken the name, and its shards are being promoted */
    MEMBER_LEAVES,  /* has given the name to an heir, and ends */
    MEMBER_LEFT,    /* is of no cluster any more */
};

/* Owner: the member's thread; what is guarded, both. */
struct member {
    struct member_config config;
    const struct member_server *self;
    struct etcd *etcd;
    enum member_state state;
    int64_t lease;
    bool has_had_name;
    char id[24]; /* of this process */
    char name_key[80];
    struct member_map start, map;
    uint32_t n_servers;              /* of the configuration, without those that have left since */
    struct member_standing standing; /* guarded */
    atomic_bool is_restanding;       /* it is another one */
    uint64_t map_revision;           /* mod_revision of the map we know */
    uint64_t newest_version;         /* of all maps that were known */
    bool reads_whole;                /* the map next, whatever its revision is */
    uint64_t told;                   /* and of the one that the shards know */
    uint64_t seen;                   /* etcd's revision; changes after it are still to be watched */
    uint32_t pause_ms, pause_max_ms;
    int last_status;                /* so that a failure is logged once */
    enum member_state failed_state; /* where it was met */
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t woken;
    atomic_bool stops;
    /* With followers. */
    bool follows;
    uint64_t renewed_ns;           /* before the lease was asked for, or renewed, the last time */
    uint64_t name_revision;        /* mod_revision of our name */
    struct failover_set published; /* who is in sync, as it stands in etcd, */
    uint64_t insync_revision;      /* with that mod_revision; */
    bool is_unsure;                /* but an attempt that failed may have changed it, or yet will */
    char told_entry[160];          /* of a follower, as it is in etcd */
    uint64_t absent_ns;            /* since when nobody has the name; 0: somebody has */
    uint64_t primary_node;         /* of who had it last, as a follower has seen */
    bool hindrance_is_told, fence_is_told;
};

/* ---- turns.c ---- */

/* Whether an entry of a name was put by this process, under a lease that may be lost since. */
bool member_is_own(const struct member *m, const char *text);
/* This process ends. */
void member_lose(struct member *m, const char *why);
/* To the shards, if it has changed. */
void member_deliver(struct member *m);
/* Reads the map if it has changed; `there` keeps its text for a later change: the caller's. */
int member_read_map(struct member *m, struct etcd_value *there, struct embd__error *e);
/* The same without its text. It comes from etcd only if it has changed: so it may be asked for in
 * each turn, beside a watch of another key. */
int member_learn_map(struct member *m, struct embd__error *e);
void member_pause(struct member *m, uint32_t ms);
struct member_standing member_standing(struct member *m);

/* ---- entries.c: what stands in etcd, as text ---- */

struct entry_epoch {
    uint64_t epoch, node;           /* epoch 0: there is none */
    uint64_t kept, kept_replicated; /* failover.h */
    uint64_t mod_revision;
};
/* EMBD_CORRUPT, and the errors of etcd. */
int entry_read_epoch(struct etcd *etcd, const char *server, struct entry_epoch *out,
                     struct embd__error *e);
struct entry_insync {
    uint64_t replicas; /* 0: who is in sync does not matter, or nobody has said */
    struct failover_set set;
    uint64_t mod_revision;
};
/* Who is in sync in that epoch. */
int entry_read_insync(struct etcd *etcd, const char *server, uint64_t epoch,
                      struct entry_insync *out, struct embd__error *e);

/* Who was named in that epoch; 0: nobody. */
int entry_read_heir(struct etcd *etcd, const char *server, uint64_t epoch, uint64_t *id_out,
                    struct embd__error *e);

struct entry_follower {
    uint64_t id, position;
    bool is_ready;
};
int entry_list_followers(struct etcd *etcd, const char *server, struct entry_follower *out,
                         uint32_t *n_out, struct embd__error *e);

/* The node and the place in the entry of a name. False: it is not one. */
bool entry_read_name(const char *text, uint64_t *node_out, struct failover_place *out);

/* The name, its epoch, an empty set and no heir: all of them with the mod_revision *won_out, or
 * none: 0. */
int entry_take_name(struct member *m, uint64_t epoch, uint64_t name_revision,
                    uint64_t epoch_revision, uint64_t *won_out, struct embd__error *e);
/* Where the name is still ours, and the entry the one of `insync_revision`, which moves on. */
int entry_put_insync(struct member *m, const struct failover_set *set, bool *won_out,
                     struct embd__error *e);
/* Where the name is still ours it goes, and the heir is named. */
int entry_hand_over(struct member *m, uint64_t heir, struct embd__error *e);
/* The server has left: nobody is to take its name, and another one may have it later. One that
 * follows does it where nobody has the name, and its epoch has that mod_revision. */
int entry_forget(struct member *m, uint64_t epoch_revision, struct embd__error *e);
int entry_put_follower(struct member *m, uint64_t position, bool is_ready, struct embd__error *e);

/* ---- steps ---- */

int lead_begin(struct member *m, struct embd__error *e);
int lead_keep(struct member *m, struct embd__error *e);
/* The process ends in order: a follower that has all is named, and may take the name at once. No
 * effect without one, or where the name is no more ours. */
int lead_hand_over(struct member *m, struct embd__error *e);
int lead_leave(struct member *m, struct embd__error *e);
int elect_follow(struct member *m, struct embd__error *e);
int elect_rise(struct member *m, struct embd__error *e);

#endif
