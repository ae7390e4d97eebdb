/* state.h - what the files of a shard share: the shard, and one request while it is handled.
 *
 * Reading order: dispatch.c (a request arrives, is handled or parked), answer.c, hold.c (parking),
 * work.c (parts of requests against schemas), handle_pull.c, materialize.c, handle_push.c,
 * prefetch.c, handle_round.c, sweeps.c (pushes that are divided); then the other handle_*.c;
 * recovery.c (the start), doubt.c (what shard 0 decides), compacting.c (when the journal is
 * compacted). The engine (server/engine) applies operations to tables, the journal
 * (server/journal/commit.h) has their records; server/snapshot has the cut of the tables and the
 * directory it is written to. metrics/ has the times and figures. */
#ifndef EMBD_SERVICE_STATE_H
#define EMBD_SERVICE_STATE_H

#include "server/journal/commit.h"
#include "server/service/answer.h"
#include "server/service/compacting.h"
#include "server/service/feeding.h"
#include "server/service/hold.h"
#include "server/service/mark.h"
#include "server/service/moving.h"
#include "server/service/replicated.h"
#include "server/engine/routed.h"
#include "server/service/shard.h"
#include "server/snapshot/snapshot.h"
#include "server/snapshot/snapshot_use.h"
#include "server/service/metrics/stages.h"
#include "server/service/staging.h"
#include "server/service/subscribers.h"
#include "server/service/work.h"

/* Figures since start; names and units are those of stats.c. */
struct counters {
    uint64_t requests[METHOD_COUNT];
    uint64_t unknown_methods, notifications, errors, parked, denied;
    uint64_t keys_pulled, keys_hit, keys_missing;
    uint64_t pull_ns, push_ns, pushes_held_us;
    uint64_t materialized_bytes; /* materialized, ever */
    uint64_t snapshots, snapshot_errors;
    uint64_t bases, base_errors; /* of the journal */
};

/* Owner: its thread. */
struct shard {
    struct shard_config config;
    struct engine engine;
    struct commit commit;
    struct hold hold;
    struct push_progress push_progress;
    struct request *gated;          /* first of those that wait at gates */
    struct shard_session *trainers; /* and readers, on the admin listener */
    struct work_pool works;
    uint64_t materialize_limit, materialized_bytes; /* of answers kept in memory */
    struct shard_work *streaming; /* pulls whose bytes are made while they are sent */
    struct counters counters;
    struct stages stages;
    uint64_t opened_ns;
    uint64_t now_ns;                /* of the last request or tick, by net's clock */
    msgpack_zone zone;              /* of the request being handled */
    struct part parts[LIMIT_PARTS]; /* likewise */
    /* Its answer about each part. */
    union {
        struct part_answer pull[LIMIT_PARTS];
        struct push_answer push[LIMIT_PARTS];
        struct erase_answer erase[LIMIT_PARTS];
    } answers;
    struct snapshot_parts snapshot;
    struct snapshot_use snapshot_use; /* of the shard that commits */
    uint64_t snapshot_made_s;      /* the newest, since 1970; of the shard that commits. 0: none */
    struct cut_read *cut_read;     /* whose rows are fetched; NULL: none */
    struct cut *cut;               /* being written or committed; NULL: none */
    struct disk_phase *disk_phase; /* of a snapshot, which a thread does; NULL: none */
    struct snapshot_fetch *fetch;  /* of a snapshot's file, likewise */
    struct cuts_known cuts;        /* since which stores note what changes */
    struct compacting compacting;
    struct staging staging;
    struct moving moving;
    struct feeding feeding;
    struct subscribers subscribers;
    struct replicated replicated;
    struct marking mark;
    struct following *following; /* another server, whose records this one takes; NULL: none */
    struct narrow *narrow;       /* likewise, without optimizer state: narrow.h; NULL: it is none */
    struct follower *teller;     /* tells the server that was followed before; NULL: nobody */
    bool is_deposed;             /* another server was promoted in the place of this one */
    uint64_t epoch;              /* of the journal: it rises where a follower takes its place */
    uint64_t epoch_who;          /* the start that was promoted in it; 0: none, or not known */
    uint64_t lineage; /* of the cluster that was followed; 0: it is the directory's own */
    /* Until the journal is replayed; see recovery.c. */
    struct journal_reading *reading;      /* NULL: loaded, or none */
    uint64_t n_replayed, replay_began_ns; /* records of it that were taken */
    struct cut_history *cut_history;      /* cuts it may come to */
    uint64_t restored_cut, restored_rows; /* what that was; 0: none */
    bool lacked_journal;                  /* all its tables are of that snapshot */
    struct restore *restore;   /* behind the journal: of the chosen snapshot; see restore.h */
    struct archived *archived; /* behind that: records of an archive; NULL: none, or all are read */
    bool archived_is_looked_for;
    bool is_loading;                  /* requests that touch tables are refused */
    bool waits_for_identity;          /* nothing is read yet */
    uint64_t identity_heeded;         /* as *config.identity_news was then; 0: never */
    bool is_asked;                    /* then another shard's doubt waited for this one's answer */
    bool has_failed;                  /* and will be, since the loading did */
    bool is_promoting, lacks_base;    /* likewise: it is to be promoted; it may be spare */
    bool is_map_agreed;               /* of a start that promotes: all shards have one map */
    bool is_found_empty;              /* for a new map of keys to shards */
    uint32_t changed_table;           /* id, of the last record that was replayed */
    uint64_t memory_due_ns;           /* when its tables' memory is counted again */
    uint64_t n_damages;               /* of the journal that were accepted, ever */
    int data_dir;                     /* descriptor of config.data_dir, or -1 */
    struct operation_reader replayed; /* of the journal's records, at the start */
    struct access *access;            /* a share; NULL: no tokens */
    struct shard_map *map;            /* that config's lists are of; NULL: the caller's */
    bool is_collecting, has_returned; /* calls of stores end, and an operation has with them */
    bool draining;
};

/* A handler checks the request, does it and writes the whole result. Returns EMBD_OK, or
 * call->error.status: the request changed nothing then; or CALL_LATER: call_answer() will be
 * called, or was. */
#define CALL_LATER 1
int handle_hello(struct call *call);
int handle_share(struct call *call);
int handle_ring(struct call *call);
int handle_trunk(struct call *call);
int handle_ping(struct call *call);
int handle_cluster(struct call *call);
int handle_tables(struct call *call);
int handle_table_create(struct call *call);
int handle_table_drop(struct call *call);
int handle_table_describe(struct call *call);
int handle_table_set(struct call *call);
int handle_pull(struct call *call);
int handle_push(struct call *call);
int handle_erase(struct call *call);
int handle_stats(struct call *call);
int handle_hold(struct call *call);
int handle_release(struct call *call);
int handle_snapshot(struct call *call);
int handle_scan(struct call *call);
int handle_load(struct call *call);
int handle_get(struct call *call);
int handle_keys(struct call *call);
int handle_put(struct call *call);
int handle_drain(struct call *call);
int handle_hot(struct call *call);
int handle_trace(struct call *call);
int handle_tick(struct call *call);
int handle_writer(struct call *call);
int handle_writers(struct call *call);
int handle_stream_open(struct call *call);
int handle_identity(struct call *call);
int handle_table_stage(struct call *call);
int handle_table_replace(struct call *call);
int handle_device_open(struct call *call);
int handle_device_close(struct call *call);
int handle_device_pull(struct call *call);
int handle_device_push(struct call *call);
int handle_follow(struct call *call);
int handle_promote(struct call *call);
int handle_changes(struct call *call);
int handle_move(struct call *call);
int handle_move_load(struct call *call);

/* Reads the parts of a pull, push or erase into call->work->op, checks them against their tables
 * and makes room for the statuses they ask for. */
int decode_parts(struct call *call, enum op_kind kind);

/* Reads the rows of a load, whose fields are read and whose table was looked for, and checks them.
 */
int load_read_block(struct call *call, struct op_load *load, const struct routed_place *place);

/* Admits the push of call->work->op, whose parts are checked, submits it, and answers it when it is
 * applied. As a handler. */
int push_begin(struct call *call);

/* Whether the pull in `call` would create rows. Leaves call->reader used up. */
bool pull_creates(struct call *call);
/* The next `count` rows of part i of a pull, from a store that answers in pieces. */
void pull_make_rows(struct shard_work *work, uint32_t i, void *out, uint32_t count);
/* An answered pull, listed while rows of it are left to make, is listed no more. */
void pull_end_streaming(struct shard_work *work);

/* Admits call->work->op and submits it. CALL_LATER: when it is applied, the request is answered
 * with what `result` writes. Else nothing has changed. */
int submit(struct call *call, void (*result)(const struct shard_work *work, struct msg *m));
/* A result of no fields. */
void submit_result_empty(const struct shard_work *work, struct msg *m);

/* EMBD_MOVED: the keys of the request, which was read, were split by another map than this shard's.
 * So all shards refuse a request before any of them has changed something, also those whose keys
 * are the same in both maps. */
int check_placement(struct call *call);

/* Tries the parked requests again, first come, first served. */
void dispatch_parked(struct shard *shard);

/* Operations that have not ended: their records, store calls or slices are under way. */
static inline uint32_t shard_n_in_flight(const struct shard *shard)
{
    return shard->engine.n_in_flight + shard->engine.n_recorded + shard->engine.set.is_on;
}

/* The version of the map in answers; 0: the map is a file, which does not change. */
static inline uint64_t shard_told_map(const struct shard *shard)
{
    return shard->config.map_version > SHARD_MAP_OF_FILE ? shard->config.map_version : 0;
}

static inline uint64_t shard_push_bytes(const struct shard *shard)
{
    return shard->config.push_bytes > 0 ? shard->config.push_bytes : LIMIT_FRAME_BYTES;
}

/* Whether it is no member of the cluster yet: its map has no version. */
static inline bool shard_joins(const struct shard *shard)
{
    return shard->config.placement != NULL && shard->config.placement->version == 0;
}

/* Whether it is a member no more: the map has the shards before it alone. Its server is there
 * until it is ended, and tells those who still come where the others are. */
static inline bool shard_has_left(const struct shard *shard)
{
    return shard->config.index >= shard->config.n_shards;
}
/* leaving.c: EMBD_MOVED. */
int shard_refuse_left(struct call *call);

/* What a request says that was split by the shard's map: its version; 0: it is even. */
static inline uint64_t shard_split_by(const struct shard *shard)
{
    const struct placement *own = shard->config.placement;
    if (shard_joins(shard) || shard_has_left(shard))
        return UINT64_MAX; /* no request is */
    return own == NULL || own->is_even ? 0 : own->version;
}

/* The place whose keys requests may have. */
static inline struct routed_place shard_place(const struct shard *shard)
{
    return (struct routed_place){shard->config.index, shard->config.n_shards,
                                 shard->config.map_version, shard->config.placement};
}

/* The stage ends now; no clock is read for a request that is not split into stages. */
static inline void stage_ends(struct stage_times *times, enum stage stage)
{
    if (times->weight > 0)
        stage_end(times, stage, clock_ns());
}

/* The last stage of a call that began at `began_ns`: counts it in *total_ns, as often as it
 * stands for others. */
static inline void stage_ends_call(struct stage_times *times, enum stage stage, uint64_t began_ns,
                                   uint64_t *total_ns)
{
    if (times->weight == 0)
        return;
    uint64_t now_ns = clock_ns();
    stage_end(times, stage, now_ns);
    *total_ns += (now_ns - began_ns) * times->weight;
}

#endif
