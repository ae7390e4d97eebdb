/* pushers.h - which numbered pushes were applied, so that a repeated one is not applied again.
 *
 * A pusher numbers its pushes to a shard 1, 2, ... in each of its streams. An applied push uses its
 * number up; a refused one does not. Only the last number of each stream is remembered. A stream
 * begins with its opening. A push of an unknown stream is refused, even the first: it may have been
 * applied before the stream was forgotten.
 *
 * Room is limited. A stream belongs to the principal that opened it: the holder of a token, or
 * everybody on a server without tokens. If a new stream finds no room, the idle stream of the same
 * principal that has not pushed for longest is forgotten; or one of a principal that no longer
 * exists. So a stranger never displaces another's stream, and a stream that pushes is never
 * displaced.
 *
 * The choice of the stream depends on the time. So it is made once, before the opening's record is
 * written, and the record contains it: openings and pushes alone determine the state, and a
 * replayed journal gives the same.
 *
 * Each stream notes the tables that it has pushed to. Where tables are replaced from a snapshot,
 * the streams that pushed to them alone go back with them (rolled.c). Owner: the shard's thread. */
#ifndef EMBD_ENGINE_PUSHERS_H
#define EMBD_ENGINE_PUSHERS_H

#include "proto/opening.h"
#include "proto/streamsfile.h"
#include "server/engine/table_set.h"

#define PUSHER_STREAMS_MAX    65536u /* 42 MiB, where all are used */
#define STREAMS_PER_PRINCIPAL 4096u  /* who showed a token */
#define STREAM_IDLE_S         600u   /* without a push, before a stream may go */

#define PRINCIPAL_EVERYBODY                                                                        \
    0u /* who showed no token, and who opened streams in earlier versions                          \
        */

struct pusher_stream;
struct principal;
struct principal_place;

/* Zeroed: of no pusher. */
struct pushers {
    /* [PUSHER_STREAMS_MAX + 1], index 0 is unused; NULL before the first */
    struct pusher_stream *streams;
    struct table_set *sets;       /* [PUSHER_STREAMS_MAX + 1] tables that streams have pushed to */
    struct principal *principals; /* [PUSHER_STREAMS_MAX + 1], likewise */
    struct principal_place *places; /* [PUSHER_STREAMS_MAX + 1], to put them in order */
    uint32_t *buckets, *principal_buckets;
    uint64_t seed; /* of the hash: a peer cannot choose ids that meet in a bucket */
    uint32_t n, free_stream;
    uint32_t n_principals, free_principal; /* that ever were; a list of those without streams */
    uint64_t since_ns; /* the first request: nothing is idle since before; 0: there was none */
};

void pushers_fini(struct pushers *pushers);

/* ---- pushes ---- */

#define PUSH_AGAIN 1

/* EMBD_OK: the push is the next of its stream. PUSH_AGAIN: it was applied. EMBD_GAP naming the
 * last applied one; EMBD_FORGOTTEN: the stream is not known. */
int pushers_look(const struct pushers *pushers, const struct push_number *push,
                 struct embd__error *e);
/* It is applied now; pushers_look has just said EMBD_OK. The time is 0 where a start replays what
 * was. */
void pushers_note(struct pushers *pushers, const struct push_number *push, uint64_t now_ns);
/* It has changed that table (struct table.number). */
void pushers_note_table(struct pushers *pushers, const struct push_number *push, uint32_t table);

/* The push was refused after all, and has changed nothing. If a device has begun the next one
 * meanwhile, its number stays used. */
void pushers_take_back(struct pushers *pushers, const struct push_number *push);

/* The last push applied, 0: none. */
uint64_t pushers_last(const struct pushers *pushers, const struct push_number *stream);
bool pushers_know(const struct pushers *pushers, const struct push_number *stream);

/* Whether the stream is known, and was opened by that principal. */
bool pushers_are_of(const struct pushers *pushers, const struct push_stream *stream,
                    uint64_t principal);

/* ---- openings ---- */

/* A principal whose token is no longer in the list: its streams may go for anybody's. */
typedef bool principal_is_gone(const void *arg, uint64_t principal);

/* Chooses the stream to forget for a new one of opening->principal, if one must go. EMBD_FULL:
 * none may go; the error names the limit and `who`. EMBD_NO_MEMORY. Changes nothing that a
 * journal has. */
int pushers_decide(struct pushers *pushers, struct stream_opening *opening,
                   principal_is_gone *is_gone, const void *arg, const char *who, uint64_t now_ns,
                   struct embd__error *e);
/* EMBD_OK: it is open, and the chosen stream is forgotten. PUSH_AGAIN: it was open before, and
 * nothing changed. EMBD_FULL: others were opened since the choice. The result depends only on the
 * opening, and on earlier openings and pushes. EMBD_NO_MEMORY, but not after pushers_decide. */
int pushers_open(struct pushers *pushers, const struct stream_opening *opening, uint64_t now_ns,
                 struct embd__error *e);

/* ---- all ---- */

/* By principal, and of each the stream that has not pushed for longest first: `out` has room for
 * pushers->n, and so has `sets_out`, the tables of each; NULL: these are not wanted. Their number.
 */
uint32_t pushers_list(const struct pushers *pushers, struct push_stream *out,
                      struct table_set *sets_out);
/* EMBD_FULL: there is no room for all of them. */
int pushers_check_room(const struct pushers *pushers, const struct push_stream *list, uint32_t n,
                       struct embd__error *e);
/* They are as the list says, in its order. `sets`: the tables of each; NULL: it is not known which.
 * EMBD_FULL, EMBD_NO_MEMORY: nothing is changed. */
int pushers_restore(struct pushers *pushers, const struct push_stream *list,
                    const struct table_set *sets, uint32_t n, uint64_t now_ns,
                    struct embd__error *e);

/* ---- tables that go, and that go back: rolled.c ---- */

/* The table is dropped: no stream has pushed to it. */
void pushers_drop_table(struct pushers *pushers, uint32_t number);

struct rollback {
    const struct push_stream *list; /* [n] positions that go with the replaced tables */
    uint32_t n;
    bool brings_unknown; /* streams of the list that are not known are opened */
};

struct rolled_tables {
    struct table_set replaced, own, all; /* own, all: of the streams' kind */
};

/* Whether there is room and memory for it. EMBD_FULL, EMBD_NO_MEMORY: nothing is changed. */
int pushers_check_rollback(struct pushers *pushers, const struct rollback *back,
                           struct embd__error *e);
/* After the check. Streams that pushed to no replaced table stay as they are. Those that pushed to
 * replaced tables alone get their position of the list, or are forgotten where it has none. Those
 * that pushed to others too are forgotten: no one position is right for both. */
void pushers_roll_back(struct pushers *pushers, const struct rollback *back,
                       const struct rolled_tables *tables, uint64_t now_ns);

/* As earlier versions did for the records of their journals: a stream begins with its first push,
 * and if there is no room, the stream of everybody that has not pushed for longest goes. */
int pushers_begin_old(struct pushers *pushers, const struct push_number *push,
                      struct embd__error *e);

#endif
