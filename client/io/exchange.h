/* exchange.h - one request and its answer.
 *
 * A message is sent in pieces that lie where their owner has them. How far it is sent is kept with
 * the exchange, so that a socket may take any part of it at a time. */
#ifndef EMBD_IO_EXCHANGE_H
#define EMBD_IO_EXCHANGE_H

#include <stdbool.h>
#include <sys/uio.h>

#include "proto/message.h"

struct link;

/* The kind that its time is counted under. */
enum exchange_kind { EXCHANGE_OTHER, EXCHANGE_PULL, EXCHANGE_PUSH };

enum exchange_state { EXCHANGE_IDLE, EXCHANGE_QUEUED, EXCHANGE_SENDING, EXCHANGE_SENT };

/* Its owner fills it in up to `error` and gives it to embd__link_send. */
struct exchange {
    struct link *link;
    struct msg msg; /* complete; its msgid is unique on the link */
    uint32_t msgid;
    uint32_t deadline_ms; /* for the text of the error */
    uint64_t deadline_ns; /* uv_hrtime() */
    bool fail_fast;       /* fails when an attempt to connect fails, instead of at its deadline */
    bool may_repeat;      /* sent again on the next connection, until its deadline */
    bool waits_refused;   /* sent again where the server refused it, since it ends; not where the
                             connection was lost and it may have been done */
    bool has_effect;      /* a numbered push: once sent it ends as EMBD_UNANSWERED, not as lost */
    bool is_of_round;     /* a push that only a server that knows it again may get again */
    enum exchange_kind kind;
    uint64_t answer_bytes; /* that bins of the answer will have: rows and statuses */
    bool while_loading;    /* the server takes it before it has loaded its tables */
    /* The memory for bin `index` of the answer, of at least `bytes`; NULL with `error` set when the
     * answer cannot have such a bin. Not called for bins of 0 bytes unless expected so. */
    void *(*on_bin)(struct exchange *x, uint32_t index, uint32_t bytes);
    /* on_bin may set a unit, which divides the bin and has RECEIVE_UNIT_BYTES at most: its memory
     * has room for one, and on_units takes as many as have come, in their order. `p` is aligned to
     * 64, and is the receiver's again when on_units returns. */
    uint32_t unit;
    void (*on_units)(struct exchange *x, const uint8_t *p, uint32_t bytes);
    /* Whether the answer needs no reading: its head is that of one that was right. NULL: no. */
    bool (*knows)(struct exchange *x, const struct frame_scanner *frame);
    /* The same of an answer, p[0 .. n) from behind its msgid on, before it is scanned: the bytes of
     * one that has come whole, and was taken; 0: it is to be scanned. NULL: it always is. */
    size_t (*take_known)(struct exchange *x, uint8_t *p, size_t n);
    /* The answer is complete and is not an error of the server. Sets `error`, or the reader's, if
     * it does not match the request. */
    void (*on_answer)(struct exchange *x, struct reader *reader);
    /* Called exactly once; `error` says how it went, its text naming the server. The exchange is
     * the owner's again. Must not call back into the link. */
    void (*on_end)(struct exchange *x);
    void *owner;
    struct embd__error error; /* status EMBD_OK when given to embd__link_send */
    /* The link's. After an error: refused by the server, or (partly) sent. Neither: the server has
     * not got it. */
    bool is_refused, is_out;
    bool is_shared;   /* it names memory that the client shares: no other connection takes it */
    bool is_loose;    /* the link's: it has ended, and its server may yet read and write there */
    bool was_begun;   /* on a connection that is closed */
    bool was_refused; /* the link's: this server has not done it, and does not */
    enum exchange_state state;
    struct exchange *next;
    uint32_t piece;      /* next piece to send */
    uint64_t piece_sent; /* bytes of it that are sent */
    uint32_t held; /* pieces from this one on are not ready yet: embd__link_release; 0: all are */
};

/* An exchange of a message that is about to be built. It waits until deadline_ns; deadline_ms goes
 * into the text of its error. */
static inline void embd__exchange_begin(struct exchange *x, uint32_t msgid, uint64_t now_ns,
                                        uint32_t deadline_ms)
{
    x->msgid = msgid;
    x->deadline_ms = deadline_ms;
    x->deadline_ns = now_ns + (uint64_t)deadline_ms * 1000000;
    x->fail_fast = false;
    x->may_repeat = x->has_effect = x->was_begun = x->while_loading = false;
    x->waits_refused = x->was_refused = false;
    x->is_refused = x->is_out = x->is_of_round = false;
    x->is_shared = x->is_loose = false;
    x->kind = EXCHANGE_OTHER;
    x->held = 0;
    x->answer_bytes = 0;
    x->error.status = EMBD_OK;
}

#endif
