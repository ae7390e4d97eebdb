/* mark.h - what the journaled tables of a shard hold at one position of its journal, as digests
 * (proto/digest.h), while changes go on.
 *
 * A follower asks for one (`mark` of the method follow). The server comes to rest, freezes its
 * tables, and says at which position; the follower freezes its own once it has applied the records
 * before that (following_marks.c). Both digest them, a block between two requests. Snapshots,
 * dumps and dropped tables go first: the mark has failed then.
 *
 * A shard has one mark, and keeps its digests until the next one, or MARK_KEPT_NS. Owner: the
 * shard's thread. */
#ifndef EMBD_SERVICE_MARK_H
#define EMBD_SERVICE_MARK_H

#include "server/service/shard.h"

struct call;
struct cut_scan;
struct mark_table;
struct table;

#define MARK_KEPT_NS UINT64_C(60000000000)

enum mark_state {
    MARK_NOT,
    MARK_RESTS, /* begins as soon as nothing is under way, or not */
    MARK_READS, /* tables are frozen */
    MARK_DONE,
};

struct marking {
    enum mark_state state;
    uint64_t id;               /* a number that the follower chose; 0: there was none */
    uint64_t position;         /* MARK_READS, MARK_DONE: records before it are in the tables */
    uint64_t until_ns;         /* MARK_RESTS: it is not waited for longer; MARK_DONE: it is kept */
    bool is_told;              /* who asked has the digest: another one may come */
    uint64_t digest;           /* MARK_DONE: of all tables; not 0 */
    struct mark_table *tables; /* [n] malloc'd */
    uint32_t n;
};

/* Freezes the tables at once. False: not now, and nothing has changed. */
bool mark_freeze(struct shard *shard, uint64_t id);
/* The same as soon as nothing is under way. True: it is being waited for. */
bool mark_ask(struct shard *shard, uint64_t id);
/* Digests a block. True: call it again soon. *rested_out: parked requests may go on. */
bool mark_collect(struct shard *shard, bool *rested_out);
/* Frees what was kept long enough. */
void mark_look(struct shard *shard, uint64_t now_ns);

static inline bool mark_is_frozen(const struct marking *mark)
{
    return mark->state == MARK_READS;
}

/* That mark, and where it is; 0: there is none, or not yet. */
uint64_t mark_position(const struct marking *mark, uint64_t id);
/* Its digest; 0: not yet. */
uint64_t mark_digest(const struct marking *mark, uint64_t id);

/* The tables are needed for something else. */
void mark_give_way(struct shard *shard);
/* The table goes. */
void mark_drop(struct shard *shard, const struct table *table);
/* All that is kept, too. None is allowed. */
void mark_end(struct shard *shard);

/* `scan` of the cut that is the mark: its tables, or the digest of one. */
int mark_scan(struct call *call, const struct cut_scan *scan);

#endif
