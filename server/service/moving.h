/* moving.h - keys that move to other shards while trainers go on: this shard's share of it.
 *
 * A coordinator (coordinator/move_job.c) begins a move to a later map on all shards. It reads the
 * rows that leave a shard, and loads them where they come to, round after round: first all of them,
 * then what has changed since the round before. The last round is read under a hold of all shards,
 * which are then given the map as tables are replaced (handle_replace.c): all of them have it, or
 * none. Requests that were split by the earlier map are answered EMBD_MOVED before any effect.
 *
 * Rows of keys that are another shard's lie here between `begin` and the map, or behind it: no
 * request reaches them, and snapshots, dumps and digests wait. When the coordinator has left, also
 * by its death, they are removed (moving_sweep.c). The data directory notes that there may be some,
 * so that a start removes them too.
 *
 * Owner: the shard's thread. */
#ifndef EMBD_SERVICE_MOVING_H
#define EMBD_SERVICE_MOVING_H

#include "proto/placement.h"
#include "server/engine/op.h"
#include "server/service/shard.h"
#include "server/store/store.h"

struct call;

#define MOVE_RUNS_MAX   512u /* of a map: so many fit the head of a request, and of a record */
#define MOVE_ERASES     2u   /* operations of the sweep on their way at once, */
#define MOVE_ERASE_KEYS 256u /* of so many keys at most: some 50 us of erasing */

struct subscriber;

/* Keys of one table that the sweep removes. */
struct moving_erase {
    struct op op;
    bool is_on;          /* its record is being written */
    struct table *table; /* if it is still there: */
    uint64_t instance;   /* of it */
    uint32_t n;          /* 0: it is free */
    uint64_t keys[MOVE_ERASE_KEYS];
    uint16_t slots[MOVE_ERASE_KEYS]; /* of a `slot` table */
};

/* What the coordinator's request for rows has so far: rows of one table, of one cut. */
struct moving_read {
    struct request *request; /* NULL: none is being read for */
    bool is_final;           /* under a hold */
    const struct table *table;
    struct store_scan scan; /* in the memory of the request's work */
    uint64_t cut;           /* struct subscriber's `made` */
    uint64_t work_ns;       /* that it took */
    bool waits, is_done;    /* nothing now; the round is over */
    bool is_full;           /* another part is for the next request */
};

struct moving {
    const struct shard_session *mover; /* the coordinator's connection; NULL: it has left */
    uint64_t id;                       /* of its move */
    struct placement next;             /* the map of it */
    struct placement placements[2];    /* config.placement is one of them, once keys have moved */
    uint32_t at_placement;
    bool is_kept;      /* the data directory has it */
    bool loses;        /* rows of this shard leave */
    uint64_t n_opened; /* engine.tables.n_opened, when the move began */
    uint32_t n_tables; /* and n */
    /* What is read: by the coordinator, then by the sweep. */
    char table[EMBD_NAME_MAX + 1]; /* "": the first one */
    bool is_read;                  /* to its end */
    bool reads_all;                /* a cut of all rows, by the coordinator, and */
    uint64_t read_ns;              /* when it last asked */
    uint64_t round; /* of the table that the coordinator reads; 0: none was read yet */
    struct moving_read read;
    /* The sweep. */
    bool has_foreign;         /* rows of others' keys may be here */
    bool is_swept;            /* the tables are read, and it is to be noted that they are not */
    struct shard_session own; /* whose subscriptions are the sweep's */
    uint64_t cursor;          /* of the table's keys, where these are listed */
    uint64_t listed;          /* instance of the table that it is of; 0: of none */
    bool scans;               /* the table's rows are read from a cut of it instead */
    struct moving_erase erases[MOVE_ERASES];
    struct op told;          /* that all were removed */
    bool is_telling;         /* it is on its way */
    bool rests;              /* changes wait, so that an erase can begin */
    uint64_t erase_again_ns; /* not before: what was refused is not asked for all the time */
    uint64_t refused_ns;     /* when a push was refused last that others may have; 0: none was */
    uint64_t n_swept;        /* rows and candidates that went */
    uint64_t n_looked_at;    /* for them */
};

/* Whether this shard's rows are not all its own, or are on their way: no cut of it is made. */
static inline bool moving_is_on(const struct moving *moving)
{
    return moving->mover != NULL || moving->has_foreign;
}
/* Of the map that the shard has. */
uint64_t moving_version(const struct shard *shard);
/* Of the next map. A server that was promoted may lack maps that its clients have seen: it gives no
 * version that the server before it may have given. */
uint64_t moving_next_version(const struct shard *shard);
/* Whether it is that, or the first of another shard's epoch: one that was added was promoted less
 * often. */
bool moving_may_be_next(const struct shard *shard, uint64_t version);
/* EMBD_UNSUPPORTED: a start would take a table from a snapshot of the map before. */
int moving_check_tables(const struct shard *shard, struct embd__error *e);
/* Servers follow this one, and have to take that map. EMBD_UNSUPPORTED: one is of an earlier
 * version. */
int moving_check_followers(const struct shard *shard, const struct placement *next,
                           struct embd__error *e);
/* EMBD_BUSY: there will be more shards, and one of them has not the base of each yet. */
int moving_check_ready(const struct shard *shard, const struct placement *next,
                       struct embd__error *e);
/* How many of them have not the base of each of its shards yet. */
uint32_t moving_count_unready(const struct shard *shard, const struct placement *next);
/* EMBD_BUSY while it is. `what` is for the error's beginning. */
int moving_refuse_cut(const struct shard *shard, const char *what, struct embd__error *e);

/* Keys are on their shards by that map from now on, if it is later than this shard's. What waits
 * for the pushes of other workers is refused with EMBD_MOVED; subscriptions are over. */
void moving_adopt(void *shard, const struct op_replace *replace);
/* A follower: rows of others' keys may be among those that it has loaded. */
void moving_note_loaded(void *shard, const struct op_load *load);
/* Whether its records alone say which map it has: it follows, or is promoted by this start. */
bool moving_is_by_records(const struct shard *shard);
/* A follower has the map that its records say, and before the first of them the even one, */
void moving_forget(struct shard *shard);
/* which is of so many shards: its server says how many, or the file that it has. */
void moving_forget_with(struct shard *shard, uint32_t n_shards);
/* It is promoted in a cluster of so many shards: the directory has its map, and its process counts
 * with these. A shard that is prepared hears of the map later. False: it is none of them. */
bool moving_promote(struct shard *shard, uint32_t n_shards);
/* A replica without records takes the map that its server says. Its shard has no rows. */
void moving_take_place(struct shard *shard, const struct placement *place);
/* Behind a journal's last record: one that says the map, where none does. */
void moving_record(struct shard *shard);

/* Rows of others' keys may be here from now on. EMBD_IO: the directory cannot note it. */
int moving_begin_foreign(struct shard *shard, struct embd__error *e);
/* At the start: they may be. */
void moving_begin(struct shard *shard);
/* The data directory has the shard's map from now on, which was in its journal alone. */
void moving_keep(struct shard *shard);

/* What was found and is not being erased yet is forgotten. */
void moving_drop_keys(struct moving *moving);
/* What was found to be others' may not be so any more: all tables are read again. */
void moving_read_anew(struct moving *moving);

/* A push was refused for a reason that may be gone when it is repeated, and this shard's alone. */
static inline bool moving_heeds(int status)
{
    return status == EMBD_BUSY || status == EMBD_NO_MEMORY || status == EMBD_INTERNAL;
}
/* EMBD_BUSY: that was lately. A push that some shards have must be repeated before its keys are
 * elsewhere: there its number stands for other keys. */
int moving_check_pushes(const struct shard *shard, struct embd__error *e);

/* Whether tables came or went since the move began: rows of theirs may lie where none belong. */
bool moving_lost_tables(const struct shard *shard);

/* ---- tables, block by block: moving_scan.c ---- */

/* The table whose rows are to be read next; NULL: all were, and the next is the first again. */
struct table *moving_table(struct shard *shard);
/* The subscription of a connection to its changes. NULL: EMBD_FULL. */
struct subscriber *moving_subscriber(struct shard *shard, const struct shard_session *session,
                                     const struct table *table, struct embd__error *e);
/* The next block of the table's cut, with all rows or, for the same connection, what has changed
 * since its last one; rows that stay on the shard may be left out. False: not now, or, with an
 * error, not any more: blocks of an earlier cut were given, and which of their keys have lost their
 * rows since is not known (EMBD_BUSY). Sets moving.is_read where it was the last one. */
bool moving_scan(struct shard *shard, struct subscriber *subscriber, struct table *table,
                 uint32_t max_rows, struct store_scan *out, struct embd__error *e);
/* The arrays behind what a block has, for another part of the same table. */
struct store_scan moving_behind(const embd_schema *schema, const struct store_scan *block);
/* Of a shard with a mover: whether a first cut is being read, of which nothing may be given up. A
 * compaction waits. */
bool moving_reads_all(const struct shard *shard);
/* Leaves the keys that are this shard's in a list of keys. */
void moving_keep_own(const struct shard *shard, const struct table *table, struct store_scan *scan);
/* Leaves those rows and candidates in `scan` whose shard by `place` is not this one. */
void moving_keep_foreign(const struct shard *shard, const struct table *table,
                         const struct placement *place, struct store_scan *scan);

/* ---- for a coordinator: moving_read.c ---- */

/* As a handler: answers call->request, whose connection moves keys, with the next rows. */
int moving_read(struct call *call, bool is_final);
/* A slice of what a request waits for, or its answer. Whether there is one. */
bool moving_read_go_on(struct shard *shard);
/* The request is going, without an answer. */
void moving_read_forget(struct shard *shard, const struct request *request);

/* ---- what is erased: moving_erase.c ---- */

/* One that takes more keys of the table, behind the `n` that it has; NULL: none does now. */
struct moving_erase *moving_erase_for(struct moving *moving, struct table *table);
/* Whether it has enough keys. */
bool moving_erase_is_full(const struct moving_erase *erase);
/* Begins those that are full, or all where no more keys come. Whether there is more to do now;
 * *rested_out: parked requests may go on. */
bool moving_erase_begin(struct shard *shard, bool all, bool *rested_out);
/* Whether keys are left, or on their way. */
bool moving_erases(const struct moving *moving);
/* Calls submit_it once no change is under way; they wait meanwhile. True: there is more to do now.
 */
bool moving_at_rest(struct shard *shard, bool *rested_out, void (*submit_it)(struct shard *shard));
/* Whether changes waited, which may go on. */
bool moving_stop_resting(struct moving *moving);
/* Something was refused: it is tried again after a while. */
void moving_erase_later(struct shard *shard);

/* ---- the sweep: moving_sweep.c ---- */

/* Removes rows of others' keys, some at a time; while a coordinator moves keys, goes on with what
 * it reads. Whether there is more to do now; *rested_out: parked requests may go on. */
bool moving_collect(struct shard *shard, bool *rested_out);
void moving_leave(struct shard *shard, const struct shard_session *session);
/* Behind the journal's last record: one may be of the sweep. */
void moving_close(struct shard *shard);

#endif
