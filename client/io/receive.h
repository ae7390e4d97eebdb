/* receive.h - bytes of a socket become answers: heads are scanned, payloads of bins go straight to
 * where they belong, or by units to their owner. Nothing is written anywhere but into memory that
 * on_bin gave, within its size. */
#ifndef EMBD_IO_RECEIVE_H
#define EMBD_IO_RECEIVE_H

#include "client/io/channel.h"
#include "client/io/link_figures.h"
#include "client/io/shared.h"
#include "proto/frame.h"

/* All receivers of a loop have one buffer: however many answers are on their way, it stays in the
 * cache. Of what follows a bin less is read, since most of it may have a place of its own. */
#define RECEIVE_BUFFER_BYTES (128u << 10)
#define RECEIVE_AHEAD_BYTES  (16u << 10)
#define RECEIVE_UNIT_BYTES   (RECEIVE_BUFFER_BYTES / 2)
#define RECEIVE_ALIGNMENT    64u
#define RECEIVE_BEFORE_BYTES (RECEIVE_UNIT_BYTES + RECEIVE_ALIGNMENT)
/* So much of a bin is waited for at once, for fewer wakeups: an eighth of what is missing, so that
 * most of it is copied while the rest is on its way; within these bounds, or not at all. */
#define RECEIVE_PATIENCE_MOST  (512u << 10)
#define RECEIVE_PATIENCE_LEAST (64u << 10)

/* The head of an answer that has few parts; a longer one goes on in memory of its own. With many
 * shards the pages that a call touches cost more than the bytes. */
#define RECEIVE_HEAD_BYTES 512u
#define RECEIVE_HEAD_SPARE 64u /* of it, for what the scanner adds to the bytes that it is given */

/* Owner: the link. What each answer needs stands before frame.bins, which is long. */
struct receiver {
    uint8_t *head;          /* [LIMIT_ANSWER_HEADER_BYTES] of heads that `first` has no room for */
    struct frame_bin *more; /* of frame */
    uint8_t *in;            /* [RECEIVE_BUFFER_BYTES] the loop's; holds nothing between two calls */
    /* The bin being received: `left` bytes to `to`; NULL: they are dropped. */
    uint8_t *to;
    uint32_t left;
    /* 0: `to` has room for all of it. Else for one unit; `kept` bytes of it have come. */
    uint32_t unit, kept;
    bool bin_ended;        /* call the scanner again, also without more bytes */
    bool has_heard;        /* a byte, on this connection */
    bool has_ended;        /* the server has ended it */
    struct shared *shared; /* where bins may lie, with frame.takes_shared; NULL: nowhere */
    counter *bytes;        /* all that were received; the link's */
    uint32_t patience;     /* bytes for which the kernel wakes us; 1: for every segment */
    /* A bin of frame.bin_bytes begins: sets *to_out, and *unit_out, which is 0. Negative: the
     * connection is of no use any more. */
    int (*on_bin)(void *owner, uint8_t **to_out, uint32_t *unit_out, struct embd__error *e);
    /* Some units of the bin, as exchange.h says. */
    void (*on_units)(void *owner, const uint8_t *p, uint32_t bytes);
    /* A frame begins: bytes of p[0 .. n) that are a whole one, and were taken; 0: it is to be
     * scanned. NULL: all are. */
    size_t (*on_start)(void *owner, uint8_t *p, size_t n);
    /* The frame is complete. */
    int (*on_frame)(void *owner, struct embd__error *e);
    void *owner;
    uint8_t first[RECEIVE_HEAD_BYTES]; /* where each head begins */
    struct frame_scanner frame;
};

/* The buffer of a loop; NULL: no memory. Freed with free(), behind its receivers. */
uint8_t *embd__receive_buffer_new(void);
/* `in` is set. */
int embd__receive_init(struct receiver *r, struct embd__error *e);
void embd__receive_fini(struct receiver *r);
/* Ready for the first byte of a new connection. */
void embd__receive_reset(struct receiver *r);
/* The rest of the bin that is coming in goes nowhere. */
void embd__receive_drop(struct receiver *r);
/* As if the channel had these n bytes. Up to RECEIVE_BEFORE_BYTES in front of them are overwritten,
 * and they themselves. */
int embd__receive_given(struct receiver *r, uint8_t *p, size_t n, struct embd__error *e);
/* Reads what the channel has. Negative: closed, failed, or out of step; `e` says why. */
int embd__receive(struct receiver *r, struct channel *ch, struct embd__error *e);

#endif
