/* following_inside.h - what the files of a shard that follows share: following.c, which asks and
 * takes answers, following_records.c, which takes the records in them, and following_anew.c. */
#ifndef EMBD_SERVICE_FOLLOWING_INSIDE_H
#define EMBD_SERVICE_FOLLOWING_INSIDE_H

#include "server/follow/follower.h"
#include "server/follow/note.h"
#include "server/journal/tail.h"
#include "server/service/following.h"
#include "server/service/metrics/stages.h"
#include "server/service/state.h"

#define SKIPS_MOST         (2 * FOLLOW_SKIPS)
#define FOLLOWING_AGAIN_NS 200000000u /* after bytes that are not what was asked for */

enum following_state { FOLLOWING_BASE, FOLLOWING_RECORDS };

/* At `ns` no change was acknowledged there but those before the position `end`. ns 0: not set. */
struct following_sure {
    uint64_t ns, end;
};

/* Digests that are compared with the other server's (service/mark.h). */
struct following_mark {
    enum { MARKS_NOT, MARKS_ASKED, MARKS_STOPS, MARKS_READS } state;
    uint64_t id, at, began_ns; /* at: records from there on wait until the tables are frozen */
    uint64_t theirs;           /* their digest; 0: not known */
    uint64_t due_ns;           /* of the next one; 0: never */
    /* The last one that ended. */
    uint64_t last_id, last_at;
    bool last_failed, last_differs;
    char last_why[96];
    uint64_t n_same, n_other, n_failed, compared_ns;
    bool differs; /* the last one that was compared */
};

/* Records that came together, and are not all applied yet. */
struct following_probe {
    uint64_t end, n;  /* position behind them; how many they are */
    int64_t acked_ns; /* none was acknowledged before, by the clock here */
};

#define FOLLOWING_PROBES 8u

struct following_freshness {
    struct following_probe probes[FOLLOWING_PROBES];
    uint32_t n;
    struct histogram all;       /* from acknowledged there to applied here */
    struct histogram before[2]; /* as it was a window ago, and up to two */
    uint64_t turned_ns;
};

struct following {
    enum following_state state;
    struct follower *follower;
    uint32_t n_places; /* with failover: places of the other server that it has heard of */
    struct note note, next_note; /* on disk; to be, once the journal has its position there */
    uint64_t noted_ns;
    bool has_asked, is_whole; /* is_whole: all of the base has come */
    bool syncs;               /* a change there waits until it is on this disk */
    bool is_right;            /* an answer came, and nothing of it was wrong yet */
    bool empties;             /* it begins anew, once answers from its tables are kept or read */
    bool catches_up;         /* it has a base, and not yet all that was there when that was asked */
    bool drops;              /* the question that is being asked is of no use any more */
    bool knows_no_maps;      /* the server is of an earlier version, and refused the field */
    bool is_spare;           /* the cluster has no such shard, as its server said last */
    bool is_lost, is_told;   /* nothing right has come since; the log says that it follows */
    char lost_why[160];      /* while is_lost: as the log says */
    uint64_t ask_at_ns;      /* not before */
    struct tail_place came;  /* behind the bytes that have come, */
    uint64_t file, at;       /* and where that is in a file there */
    struct tail_place place; /* of the next record in `bytes` */
    struct tail_place behind; /* of the base */
    uint8_t *bytes;           /* [n] malloc'd; those before `used` are taken */
    uint64_t n, used;
    uint64_t skips[SKIPS_MOST];
    uint32_t n_skips;
    uint64_t
        *own; /* [n_own] sums of the records that the journal had at the start, from own_first */
    uint64_t own_first, n_own;
    char address[128]; /* of the server, for trainers; "": not known */
    uint64_t end, left, answered_ns, had_all_ns;
    uint64_t told_map; /* version of the map of keys there, when the base was asked for */
    uint64_t attempt;  /* to promote, in which it has voted last */
    uint64_t asked_ns, asked_wait_ns; /* the last question, and how long its answer may wait */
    bool asked_mark;                  /* its answer need not wait */
    /* The oldest answer whose records are not all applied, and the newest one behind it. */
    struct following_sure first, last;
    struct following_mark mark;
    struct following_freshness freshness;
    uint64_t fresh_ns; /* then nothing was acknowledged there that is not here; 0: not known */
};

/* NEXT_OTHER: the journal here has another record in its place. */
enum next { NEXT_RECORD, NEXT_INCOMPLETE, NEXT_WRONG, NEXT_OTHER };

/* The record at following->used. */
enum next following_next(const struct following *f, struct record *out);

/* Takes records, of the base and of those behind it. True: there is more. */
bool following_take_base(struct shard *shard, struct embd__error *e);
bool following_take_records(struct shard *shard, struct embd__error *e);

/* following_serving.c: an answer says how far the other server is; and what of that is applied. */
void following_note_sure(struct following *f, const struct follow_answer *found);
void following_note_fresh(struct shard *shard);
/* Whether it has its tables, and all that was acknowledged when it asked for them. */
bool following_has_all(const struct shard *shard);

/* following_freshness.c */
void following_note_probe(struct shard *shard, const struct follow_answer *found, uint64_t sent_ns);
void following_count_probes(struct shard *shard);
void following_forget_probes(struct following *f);

/* following_map.c: what the other shards of the process are told of this one's map; is_settled: it
 * can take nothing more of what has come. */
void following_note_map(struct shard *shard, bool is_settled);
/* Whether a record waits for the other shards: it brings a map that not all of them may have. */
bool following_holds(const struct shard *shard, const struct record *record);
/* Whether the shards have one map together, and say which. */
bool following_is_placed(const struct shard *shard);
/* `why` is set where they have not. */
bool following_lacks_map(const struct shard *shard);
bool following_find_map(const struct shard *shard, char *why, size_t why_bytes);

/* The cluster has so many shards, and none in this one's place. */
void following_rest_spare(struct shard *shard, uint32_t n_shards);
/* A spare shard has the base of a server that was to become a member, and another one is now. */
bool following_joins_other(const struct shard *shard, const struct embd__error *e);
/* It was one of the cluster's shards, and by shard 0's map it is none: its tables go. */
bool following_has_left(const struct shard *shard);

/* following_marks.c */
void following_mark_ask(const struct following *f, struct follow_ask *ask);
void following_mark_refused(struct shard *shard, const struct embd__error *e);
void following_mark_take(struct shard *shard, const struct follow_answer *found);
void following_mark_freeze(struct shard *shard);
void following_mark_look(struct shard *shard);
void following_mark_fail(struct shard *shard, const char *why);

/* Records are being written or applied. Pulls that a device makes do not count: they change
 * nothing, and a record that needs the tables alone waits for them (commit.h). */
static inline bool following_changes(const struct shard *shard)
{
    return shard->engine.n_recorded > 0 || shard->engine.set.is_on;
}

/* The record there has to wait. */
static inline bool following_mark_stops(const struct following *f, uint64_t position)
{
    return f->mark.state == MARKS_STOPS && position >= f->mark.at;
}

/* The last question has failed, or what came is of no use. The log has each new reason. */
void following_lose(struct shard *shard, const char *why);
/* The answer is right: it has the next records, or says that there are none. */
void following_note_right(struct shard *shard);
/* Bytes are not the other server's next records. */
void following_refuse(struct shard *shard, const char *why);
int following_begin_anew(struct shard *shard, const char *why, struct embd__error *e);
/* While it empties: its tables and its journal go, or later. */
int following_empty(struct shard *shard, struct embd__error *e);

#endif
