/* following.h - the shard follows another server's: it takes the records of that one's journal as
 * its own, and serves no trainer until it is promoted (server/follow/follower.h).
 *
 * The journal here has the positions of the one there. A record is written here, then applied, by
 * what a start replays records with. So rows, streams of numbered pushes and tables are the same
 * bits at the same position, and a start goes on where the journal ends. A shard that has nothing,
 * or whose records are not those of the server any more, begins with that one's base.
 *
 * Tables of durability snapshot have no records: a follower does not have them. Owner: the shard's
 * thread. */
#ifndef EMBD_SERVICE_FOLLOWING_H
#define EMBD_SERVICE_FOLLOWING_H

#include "proto/message.h"
#include "server/service/shard.h"

struct call;
struct following;
struct histogram;
struct record;

/* Before the journal is read. Sets shard->following where the shard follows, and shard->epoch.
 * EMBD_INVALID: the data directory is none of a follower's, or is one and the shard does not
 * follow; EMBD_IO, EMBD_CORRUPT, EMBD_NO_MEMORY. */
int following_open(struct shard *shard, struct embd__error *e);
void following_close(struct shard *shard);

/* A record of this journal, behind its base, is replayed. Those that the note does not tell of come
 * again, and are compared. EMBD_NO_MEMORY. */
int following_note_own(struct shard *shard, const uint8_t *bytes, const struct record *record,
                       struct embd__error *e);

/* Whether it begins with a base: there is no journal to be read. */
bool following_has_nothing(const struct shard *shard);
/* The journal is read; takes records. True: call it again soon. An error is for good. */
bool following_go_on(struct shard *shard, struct embd__error *e);

/* ---- following_serving.c: replicas, which answer reads ---- */

/* Whether a follower answers that: to admins, and with `serves` reads to all. */
bool following_serves(const struct shard *shard, enum method method);
/* It has `serves`, and its tables are those of the other server. */
bool following_is_served(const struct shard *shard);
/* EMBD_UNSUPPORTED: a change; says where it may be made. */
int following_refuse_method(struct call *call);
/* Of a pull that asks: what is answered, in its reader's lag. EMBD_LOADING: the replica is further
 * behind than the pull allows. A shard that follows nobody is not behind. */
int following_check_lag(struct call *call);

/* following_marks.c: `scan` with a mark: has the tables compared with those of the other server, or
 * says how far that is. */
int following_mark_scan(struct call *call, uint64_t id);

/* following_freshness.c: from the acknowledgement of a change there until it was applied here, of
 * each record. NULL: the shard follows nobody. */
const struct histogram *following_freshness(const struct shard *shard);
/* Of the last 10 to 20 s; the shard follows. 0: nothing came. */
uint64_t following_freshness_us(const struct shard *shard, double quantile);

struct following_figures {
    uint64_t digests_same, digests_other, digests_failed; /* comparisons that ended so */
    uint64_t digest_us;                                   /* since the last one; 0: none */
    bool digests_differ;                                  /* by the last one */
    uint64_t records, bytes; /* that it lacks, when it was answered last */
    uint64_t us;             /* since it had all */
    bool is_connected, is_base;
    uint64_t position; /* records that it has applied */
};
struct following_figures following_figures(const struct shard *shard);

/* Why it serves no trainer, and whom to ask. */
void following_tell(const struct shard *shard, char *text, size_t text_bytes);

/* A start that promotes, or whose promotion was begun: the cluster has so many shards, and all have
 * one map. Each that is one of them is promoted. */
int following_promote(struct shard *shard, uint32_t n_shards, struct embd__error *e);

#endif
