/* subscribers.h - who asks this shard what changed in a table, round after round: proto/changes.h.
 *
 * A subscriber holds a cut of its table, since which the store notes what changes. A round makes
 * the next cut: the table is frozen while the parts of its changes are asked for, and the cut
 * before is forgotten with the last one. A table has one frozen cut at a time, and snapshots, dumps
 * and compaction go first: a round under way begins again then, and a new one waits.
 *
 * A subscription ends with its connection, with its table, and when nothing was asked for
 * SUBSCRIBER_IDLE_NS. A replica (narrow.h) may take another table for longer than that: of admins
 * it ends after SUBSCRIBER_ADMINS_NS, and before that a round under way is given up. Owner: the
 * shard's thread. */
#ifndef EMBD_SERVICE_SUBSCRIBERS_H
#define EMBD_SERVICE_SUBSCRIBERS_H

#include "embd/schema.h"
#include "proto/errors.h"
#include "proto/limit.h"

struct shard;
struct shard_session;
struct table;

#define SUBSCRIBERS_MAX 16u /* of a shard, beside those of admins on its admin listener */
/* A cut each, and one more for the round under way, of which a table has one: the stores keep so
 * many beside those of snapshots. */
#define SUBSCRIBERS_OF_TABLE 7u
#define SUBSCRIBERS_OF_TOKEN 8u
#define SUBSCRIBERS_ADMINS   (2u * LIMIT_TABLES) /* of admins, on their listener */
/* With those that move keys. */
#define SUBSCRIBERS_ALL      (SUBSCRIBERS_MAX + SUBSCRIBERS_ADMINS + LIMIT_TABLES)
#define SUBSCRIBER_IDLE_NS   UINT64_C(60000000000)
#define SUBSCRIBER_ADMINS_NS (60 * SUBSCRIBER_IDLE_NS)

struct subscriber {
    uint64_t id;                         /* 0: it is free */
    const struct shard_session *session; /* NULL: it is leaving */
    bool is_mover;                       /* it moves keys: moving.h. No limit counts it */
    bool is_admins;                      /* its table's limit counts it alone */
    uint64_t given;                      /* of a mover: the last cut of which it was given rows */
    bool is_leaving;                     /* `held` is to be forgotten once nothing is frozen */
    char table[EMBD_NAME_MAX + 1];
    uint64_t instance;    /* of the table */
    uint64_t principal;   /* of the token; 0: none */
    uint64_t held;        /* the next round has what changed since this cut; 0: all rows */
    uint64_t made;        /* the cut that is read; 0: no round is under way */
    bool is_begun;        /* a part of the round was answered */
    bool has_all;         /* of the round */
    bool from_now;        /* the first round has no rows */
    uint64_t step;        /* of the cut */
    uint64_t round;       /* that is read, or was read last */
    uint64_t part, chain; /* of the last answer */
    uint64_t answered_ns; /* that was then, by clock_work_ns */
    uint64_t asked_ns;
};

struct subscribers {
    struct subscriber list[SUBSCRIBERS_ALL];
    uint32_t n;      /* that are not free */
    uint32_t top;    /* those from there on are free */
    uint64_t n_made; /* cuts and subscriptions, since the start */
    uint64_t due_ns; /* when they are looked at again */
};

/* A number that no other cut has. */
uint64_t subscribers_number(struct shard *shard);
/* A new one. NULL: EMBD_FULL. */
struct subscriber *subscriber_new(struct shard *shard, const struct shard_session *session,
                                  const struct table *table, struct embd__error *e);
/* The same for moving.h; EMBD_FULL only where earlier ones have yet to go. */
struct subscriber *subscriber_new_mover(struct shard *shard, const struct shard_session *session,
                                        const struct table *table, struct embd__error *e);
/* Its mover of that table; NULL: it has none. */
struct subscriber *subscriber_of(struct shard *shard, const struct shard_session *session,
                                 const struct table *table);
/* NULL: there is none of that number on this connection. */
struct subscriber *subscriber_find(struct shard *shard, const struct shard_session *session,
                                   uint64_t id);
/* Freezes the table for the next round, if it has none. False: not now. `is_cutting`: a snapshot or
 * dump has tables frozen. */
bool subscriber_freeze(struct shard *shard, struct subscriber *subscriber, struct table *table,
                       bool is_cutting, struct embd__error *e);
/* All of the round's rows are read. */
void subscriber_end_round(struct shard *shard, struct subscriber *subscriber);
/* The round will begin again. */
void subscriber_give_up_round(struct shard *shard, struct subscriber *subscriber);
void subscriber_end(struct shard *shard, struct subscriber *subscriber);

/* Tables are needed for a snapshot, dump or base: rounds under way begin again. */
void subscribers_give_way(struct shard *shard);
/* The table goes: its subscriptions are over. */
void subscribers_drop(struct shard *shard, const struct table *table);
void subscribers_leave(struct shard *shard, const struct shard_session *session);
/* Ends those that ask nothing, but for movers, and forgets the cuts of those that ended. */
void subscribers_look(struct shard *shard, bool is_cutting);
/* All are over, and their cuts are forgotten as soon as nothing is frozen. */
void subscribers_end_each(struct shard *shard);
/* Before all tables go. */
void subscribers_end_all(struct shard *shard);

#endif
