/* state.h - what the files of a shard share: the shard, and one request while it is being handled.
 *
 * Reading order: dispatch.c (a request comes in, is handled or parked, and is answered), hold.c
 * (what parks), work.c (what a request keeps until its last byte is sent), parts.c and check.c
 * (data against schemas), pull.c, insert.c, settle.c, push.c, room.c; then commit.c (journaled
 * tables: the record first), recovery.c, base.c; handle_*.c, scan.c, load.c, shard_map.c. In
 * folders of their own: rounds/ (trainers in step: jobs, and pushes that become one), figures/ (how
 * long it all took, and who shows it), server/snapshot/ (a cut, and the directory it is written
 * to). */
#ifndef EMBD_SHARD_STATE_H
#define EMBD_SHARD_STATE_H

#include "server/shard/hold.h"
#include "server/engine/rounds/jobs.h"
#include "server/engine/rounds/rounds.h"
#include "server/engine/routed.h"
#include "server/shard/shard.h"
#include "server/snapshot/snapshot.h"
#include "server/shard/figures/stages.h"
#include "server/engine/tables.h"
#include "server/shard/work.h"
#include "server/engine/writers.h"

/* Figures since start; names and units are those of stats.c. */
struct counters {
    uint64_t requests[METHOD_COUNT];
    uint64_t unknown_methods, notifications, errors, parked, denied;
    uint64_t keys_pulled, keys_hit, keys_missing;
    uint64_t keys_pushed, keys_inserted, keys_filtered, keys_full, keys_erased, keys_evicted;
    uint64_t pull_ns, push_ns, pushes_held_us;
    uint64_t settled_bytes;
    uint64_t snapshots, round_steps, pushes_again;
    uint64_t bases, base_errors; /* of the journal */
    uint64_t journal_errors, snapshot_errors;
};

/* Owner: its thread. */
struct shard {
    struct shard_config config;
    struct tables tables;
    struct hold hold;
    struct reach reach;
    struct work_pool works;
    uint64_t settle_limit, settled_bytes; /* of answers kept in memory; see settle.c */
    struct shard_work *streaming; /* pulls whose bytes are made while they are sent; see settle.c */
    struct counters counters;
    uint64_t n_foreseen; /* pushes that were prepared while they arrived; see ahead.c */
    struct stages stages;
    struct jobs jobs;
    struct rounds rounds;
    struct round_step *steps; /* being made of rounds */
    uint64_t opened_ns;
    uint64_t now_ns;                /* of the last request or tick, by net's clock */
    msgpack_zone zone;              /* of the request being handled */
    struct part parts[LIMIT_PARTS]; /* likewise */
    struct snapshot_parts snapshot;
    uint64_t snapshot_made_s; /* the newest, since 1970; of the shard that commits. 0: none */
    struct writers writers, journaled_writers; /* of pushes to snapshot tables, and to the others */
    struct cut *cut;                           /* being written, or to be committed; NULL: none */
    uint64_t
        cuts[CUTS_KNOWN]; /* ids of the last ones, since which stores note what changes; 0: none */
    struct journal *journal; /* NULL: no data directory */
    /* Its new beginning; see base.c. */
    struct base *base;           /* being written; NULL: none */
    bool base_asked, base_rests; /* may begin; begins as soon as nothing is under way */
    uint64_t base_not_before_ns; /* or, while base_rests, not later */
    uint64_t refused,
        refused_since_ns; /* requests since the disk takes no records; see refusals.h */
    uint32_t n_journaled; /* pushes whose records are being written, of hold.n_in_flight */
    bool is_replaying;    /* a record is being handled: nothing is journaled */
    bool replays_old;     /* the last one was of a version in which pushes began streams */
    /* Until the journal is replayed; see recovery.c. */
    struct journal_reading *reading;      /* NULL: it is, or there is none */
    uint64_t n_replayed, replay_began_ns; /* records of it that were taken */
    struct cut_history *cut_history;      /* cuts it may come to */
    uint64_t restored_cut, restored_rows; /* what that was; 0: none */
    bool lacked_journal;                  /* all its tables are of that snapshot */
    struct restore *restore; /* behind the journal: of the chosen snapshot; see restore.h */
    bool is_loading;         /* requests that touch tables are refused */
    bool has_failed;         /* and will be, since the loading did */
    uint32_t changed_table;  /* id, of the last record */
    uint64_t n_damages;      /* of the journal that were accepted, ever */
    int data_dir;            /* descriptor of config.data_dir, or -1 */
    struct access *access;   /* a share; NULL: no tokens */
    struct shard_map *map;   /* that config's lists are of; NULL: the caller's */
    bool draining;
};

/* One request while it is read and handled. */
struct call {
    struct shard *shard;
    struct request *request;
    struct shard_work *work;
    struct msg *answer; /* the request's */
    struct reader reader;
    struct push_extra extra; /* of a push */
    struct embd__error error;
};

/* A handler checks the request, does it and writes the whole result. Returns EMBD_OK, or
 * call->error.status: the request changed nothing then; or CALL_LATER: call_answer() will be
 * called, or was. */
#define CALL_LATER 1
int handle_hello(struct call *call);
int handle_ping(struct call *call);
int handle_cluster(struct call *call);
int handle_tables(struct call *call);
int handle_table_create(struct call *call);
int handle_table_drop(struct call *call);
int handle_table_describe(struct call *call);
int handle_pull(struct call *call);
int handle_push(struct call *call);
int handle_erase(struct call *call);
int handle_stats(struct call *call);
int handle_hold(struct call *call);
int handle_release(struct call *call);
int handle_snapshot(struct call *call);
int handle_scan(struct call *call);
int handle_load(struct call *call);
int handle_drain(struct call *call);
int handle_hot(struct call *call);
int handle_trace(struct call *call);
int handle_tick(struct call *call);
int handle_writer(struct call *call);
int handle_writers(struct call *call);
int handle_stream_open(struct call *call);

/* Nothing may follow a request's fields and bins. Returns call->error.status. */
int call_end(struct call *call, struct fields *fields);

/* Reads the parts of a pull, push or erase into call->work, checks them against their tables and
 * makes room for the statuses they ask for. */
int call_read_parts(struct call *call, enum parts_kind kind);
/* Memory for an answer that tells of `n_parts`: taken before anything changes, so that what was
 * done can always be told. */
int call_reserve_answer(struct call *call, uint32_t n_parts);

/* The request is answered with call->answer, or with the error where one is set. The request may be
 * gone afterwards. */
void call_answer(struct shard *shard, struct request *request, const struct embd__error *e);

/* Tries the parked requests again, first come, first served. */
void dispatch_parked(struct shard *shard);

/* Handles a request that was handled before: nothing is asked of whom it comes from.
 * *is_partly_done_out is set where it fails after parts of it were applied. */
void dispatch_replay(struct shard *shard, struct request *request, bool *is_partly_done_out,
                     struct embd__error *e);

/* Whether the pull in `call` would create rows. Leaves call->reader used up. */
bool pull_creates(struct call *call);

/* The version of the map that answers tell; 0: it is the file's, which does not change. */
static inline uint64_t shard_told_map(const struct shard *shard)
{
    return shard->config.map_version > SHARD_MAP_OF_FILE ? shard->config.map_version : 0;
}

/* Whose keys requests may have. A journal of an earlier version may have keys that are another
 * shard's: they are replayed as those of one shard. */
static inline struct routed_place shard_place(const struct shard *shard)
{
    if (shard->is_replaying)
        return (struct routed_place){.n_shards = 1};
    return (struct routed_place){shard->config.index, shard->config.n_shards,
                                 shard->config.map_version};
}

uint64_t clock_ns(void);

/* When a stream of pushes is seen: now, or 0 where a start replays what was. */
static inline uint64_t shard_seen_ns(const struct shard *shard)
{
    return shard->reading != NULL ? 0 : shard->now_ns;
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
