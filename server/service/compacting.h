/* compacting.h - when the journal is compacted (journal/compaction.h).
 *
 * It is compacted when it has grown beyond its limit. Requests that change something wait until the
 * operations in progress are applied, some milliseconds; then the tables are frozen, and requests
 * go on. A snapshot, and the drop of a table, have priority: the compaction is then given up, and
 * tried again. */
#ifndef EMBD_SERVICE_COMPACTING_H
#define EMBD_SERVICE_COMPACTING_H

#include <stdbool.h>
#include <stdint.h>

#include "server/journal/compaction.h"
#include "server/service/hold.h"

struct shard;

enum compacting_state {
    COMPACTING_NOT,   /* not before not_before_ns, but where the disk has little space */
    COMPACTING_RESTS, /* begins as soon as nothing is under way, until not_before_ns */
    COMPACTING_WRITES,
};

/* Owner: the shard's thread. */
struct compacting {
    enum compacting_state state;
    bool is_asked;   /* it may begin before the limit, where it is worth it */
    bool is_damaged; /* a file of the journal is: a base takes its place as soon as it may */
    bool is_resized; /* it has maps of another number of shards, which no follower has: a base takes
                        its place as soon as one asks: */
    bool is_awaited;
    bool ends_resized; /* the one that is being written does */
    uint64_t position; /* of the base that is being written: followers need what is before it */
    uint64_t kept_until_ns; /* for them; 0: the base is not waited for by anybody */
    uint64_t not_before_ns;
    uint64_t retry_ns;             /* after a failure, not earlier */
    uint64_t sized_ns;             /* when the next base's bytes were last estimated */
    struct compaction *compaction; /* COMPACTING_WRITES */
};

/* From now on it may, where it is worth it, though the journal has not grown beyond the limit. */
void compacting_ask(struct shard *shard);

/* A file of the journal is damaged, and the tables are right: they become its base. */
void compacting_mend(struct shard *shard);

/* The cluster has another number of shards from now on, or its journal begins with one. */
static inline void compacting_note_resized(struct compacting *compacting)
{
    compacting->is_resized = true;
    compacting->ends_resized = false;
}
/* A follower asks for records. Whether it has to wait for a base. */
bool compacting_is_awaited(struct shard *shard);

/* Begins where it is due; when something is under way, the shard comes to rest first. Not while a
 * snapshot is being written (`is_cutting`), which goes first. True: it gave up waiting, so the
 * parked may go on. */
bool compacting_look(struct shard *shard, bool is_cutting);

/* While the shard comes to rest: whether a request that touches tables this way waits. */
bool compacting_stops(const struct shard *shard, enum touch touch);

/* Passes rows on, and notes the end. True: call it again soon. *rested_out: the shard is at rest,
 * and parked requests may go on. */
bool compacting_collect(struct shard *shard, bool is_cutting, bool *rested_out);

/* Tables are needed for something else: what is not yet copied of them is given up. */
void compacting_give_up(struct shard *shard);
/* The same, and none begins. */
void compacting_stop(struct shard *shard);

struct compacting_figures {
    uint64_t bytes, base_bytes; /* of the journal, and of its base */
    uint64_t reserved_bytes;    /* for the next base */
    uint64_t base_age_us;       /* 0: none, or unknown */
    uint64_t syncs, sync_us, sync_longest_us;
};
struct compacting_figures compacting_figures(const struct shard *shard);

/* Ends what is being written. */
void compacting_close(struct shard *shard);

#endif
