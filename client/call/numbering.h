/* numbering.h - the numbers that a client gives its own pushes and puts: those without a pusher and
 * a round.
 * So they are sent again until their deadline, whatever happens to servers, and applied once.
 *
 * Each shard has a stream for journaled tables and one for others, because each accepts or refuses
 * a push by itself. A stream is opened on all shards before the first push, which waits for that.
 * The number of a refused push is given to the next one, if no copy of the refused one can be in
 * flight and no later push has a number. Otherwise the stream is abandoned: pushes behind the
 * failed one are not applied and fail as it did, and the next push begins a new stream.
 *
 * A shard that does not know what it has acknowledged (EMBD_GAP, EMBD_FORGOTTEN) has gone back to
 * an older state. That is never repaired silently: the push fails, and says so.
 *
 * Owner: the caller's thread. */
#ifndef EMBD_CALL_NUMBERING_H
#define EMBD_CALL_NUMBERING_H

#include "proto/batch.h"

struct embd_call;
struct embd_client;
struct embd_table;

/* The pushes of a client on one shard. */
struct own_stream {
    uint64_t next;      /* number of the next push; 0: the stream must be opened */
    uint32_t stream;    /* the last one that was opened */
    uint32_t n_streams; /* that were opened; they have the numbers below */
    uint32_t n_left;    /* streams below this were left after a push had failed, */
    int why;            /* with this status */
    uint64_t full_ns;   /* when the shard had no room for a stream; 0: it has */
};

/* Zeroed: of a client that has not pushed yet. */
struct numbering {
    embd_pusher pusher; /* `stream` is not used */
    uint64_t n_pushes;
    struct own_stream
        *streams[2]; /* [LIMIT_SHARDS]; of tables that are not journaled, and that are */
};

void embd__numbering_fini(struct numbering *numbering);

/* The number of the next push on one shard; sequence 0: it has none. */
static inline struct push_number embd__numbering_next(const struct numbering *numbering,
                                                      const struct own_stream *own)
{
    return (struct push_number){.high = numbering->pusher.high,
                                .low = numbering->pusher.low,
                                .sequence = own->next,
                                .stream = own->stream};
}

/* The same, and it is used: of a push that was split for fewer shards. */
static inline struct push_number embd__numbering_take(const struct numbering *numbering,
                                                      struct own_stream *own)
{
    const struct push_number number = embd__numbering_next(numbering, own);
    own->next += number.sequence > 0;
    return number;
}
/* The client has a shard more: where it has streams on the others, it opens them there. Errors of
 * stream_open; then it may be called again. */
int embd__numbering_grow(struct embd_client *client, uint32_t shard);
/* It has left: another shard of that number has none of its streams. */
void embd__numbering_leave(struct embd_client *client, uint32_t shard);

/* A push whose parts are checked gets numbers: opens the streams of its tables where they are not.
 * Blocks then. Errors of embd_push that say that nothing was sent. */
int embd__numbering_begin(struct embd_call *call);
/* Its messages are about to be sent: the numbers are used. */
void embd__numbering_sent(struct embd_call *call);
/* It has failed: what that means for its streams, and for its error. */
void embd__numbering_failed(struct embd_call *call);

/* The same of a put, the client's request, to one shard: its number, with the stream opened where
 * it is not; sequence 0: the shard takes none. Then, after embd__request_begin and before
 * embd__request, that it is used; and after a failure what that means, as the client's error. */
int embd__numbering_put_begin(struct embd_client *client, const struct embd_table *table,
                              uint32_t shard, struct push_number *out);
void embd__numbering_put_sent(struct embd_client *client, const struct embd_table *table,
                              uint32_t shard);
int embd__numbering_put_failed(struct embd_client *client, const struct embd_table *table,
                               uint32_t shard, const struct push_number *number);

#endif
