/* pushers.h - whose pushes were applied, so that one that is sent again is not applied again.
 *
 * A pusher numbers its pushes to a shard 1, 2, ... in each of its streams. A number is used up when
 * its push is applied; one that is refused has used none. Only the last one of each stream is
 * remembered. A stream begins with its opening, and a push of one that is not known is refused, the
 * first too: it may have been applied before the stream was forgotten.
 *
 * There is room for so many streams. Each is its principal's, which opened it: whoever shows one
 * token, or on a server without tokens everybody. Where a new one finds no room, a stream of the
 * same principal goes that has been idle for long, the one that has not pushed for longest; or one
 * of a principal that is not there any more. What a stranger opens never takes another's stream
 * away, and a stream that pushes is never taken.
 *
 * Which stream goes depends on the time, so it is decided once, before the opening's record is
 * written, and the record has the decision: state is what openings and pushes make of it, and a
 * journal that is replayed ends with the same. Owner: the shard's thread. */
#ifndef EMBD_ENGINE_PUSHERS_H
#define EMBD_ENGINE_PUSHERS_H

#include "proto/opening.h"
#include "proto/streamsfile.h"

#define PUSHER_STREAMS_MAX    65536u /* 7 MiB */
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
    struct pusher_stream *streams;  /* [PUSHER_STREAMS_MAX + 1], 0 is none; NULL before the first */
    struct principal *principals;   /* [PUSHER_STREAMS_MAX + 1], likewise */
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

/* It was refused after all, and has changed nothing. Where a device has begun the next one
 * meanwhile, its number stays used. */
void pushers_take_back(struct pushers *pushers, const struct push_number *push);

/* The last push applied, 0 where there is none. */
uint64_t pushers_last(const struct pushers *pushers, const struct push_number *stream);
bool pushers_know(const struct pushers *pushers, const struct push_number *stream);

/* ---- openings ---- */

/* Whose streams may go for anybody's: nobody shows that principal's token any more. */
typedef bool principal_is_gone(const void *arg, uint64_t principal);

/* Decides which stream goes for a new one of opening->principal, where one has to. EMBD_FULL:
 * nothing that may go, naming the limit, and `who` it is. EMBD_NO_MEMORY. Changes nothing that a
 * journal has. */
int pushers_decide(struct pushers *pushers, struct stream_opening *opening,
                   principal_is_gone *is_gone, const void *arg, const char *who, uint64_t now_ns,
                   struct embd__error *e);
/* EMBD_OK: it is open, and what was to go is gone. PUSH_AGAIN: it was open before, and nothing is
 * changed. EMBD_FULL: others were opened since it was decided. Depends on the opening and on what
 * was opened and pushed before alone. EMBD_NO_MEMORY, but not after pushers_decide. */
int pushers_open(struct pushers *pushers, const struct stream_opening *opening, uint64_t now_ns,
                 struct embd__error *e);

/* ---- all ---- */

/* By principal, and of each the stream that has not pushed for longest first: `out` has room for
 * pushers->n. Their number. */
uint32_t pushers_list(const struct pushers *pushers, struct push_stream *out);
/* EMBD_FULL: there is no room for all of them. */
int pushers_check_room(const struct pushers *pushers, const struct push_stream *list, uint32_t n,
                       struct embd__error *e);
/* They are as the list says, in its order. EMBD_FULL, EMBD_NO_MEMORY: nothing is changed. */
int pushers_restore(struct pushers *pushers, const struct push_stream *list, uint32_t n,
                    uint64_t now_ns, struct embd__error *e);

/* As earlier versions did with the records of their journals: a stream begins with its first push,
 * and for want of room everybody's goes that has not pushed for longest. */
int pushers_begin_old(struct pushers *pushers, const struct push_number *push,
                      struct embd__error *e);

#endif
