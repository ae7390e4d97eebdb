/* exchange.h - one request and its answer; and those that wait for a connection, in their order.
 *
 * A message is sent in pieces that lie where their owner has them. How far it is sent is kept with
 * the exchange, so that a socket may take any part of it at a time. */
#ifndef EMBD_CLIENT_EXCHANGE_H
#define EMBD_CLIENT_EXCHANGE_H

#include <stdbool.h>
#include <sys/uio.h>

#include "proto/message.h"

struct link;

enum exchange_state { EXCHANGE_IDLE, EXCHANGE_QUEUED, EXCHANGE_SENDING, EXCHANGE_SENT };

/* One request and its answer. Filled in by its owner up to `error`, then given to embd__link_send.
 */
struct exchange {
    struct link *link;
    struct msg msg; /* complete; its msgid is unique within the client */
    uint32_t msgid;
    uint32_t deadline_ms; /* for the text of the error */
    uint64_t deadline_ns; /* uv_hrtime() */
    bool fail_fast;  /* fails as soon as an attempt to connect fails, instead of at its deadline */
    bool may_repeat; /* sent again on the next connection, until its deadline */
    bool
        has_effect; /* of those: a push. Once it was sent it ends as EMBD_UNANSWERED, not as lost */
    bool while_loading; /* the server takes it before it has loaded its tables */
    bool was_begun;     /* on a connection that is gone; the link's */
    /* Where bin `index` of the answer, of `bytes`, goes: memory of at least that size; NULL with
     * `error` set when the answer cannot have such a bin. Not called for bins of 0 bytes unless
     * expected so. */
    void *(*on_bin)(struct exchange *x, uint32_t index, uint32_t bytes);
    /* on_bin may set a window, of fewer bytes than the bin: its memory has room for so many, which
     * are the owner's to take, by on_window, before the next ones come to the same place. */
    uint32_t window;
    void (*on_window)(struct exchange *x, uint32_t bytes);
    /* The answer is complete and is no error of the peer's. Sets `error`, or the reader's, when it
     * is not what was asked for. */
    void (*on_answer)(struct exchange *x, struct reader *reader);
    /* Called exactly once; `error` says how it went, its text naming the server. The exchange is
     * the owner's again. Must not call back into the link. */
    void (*on_end)(struct exchange *x);
    void *owner;
    struct embd__error error; /* status EMBD_OK when given to embd__link_send */
    /* With an error: the server's, or one that came when some of it was sent already. Else the
     * server has not got it. Both are the link's. */
    bool is_refused, is_out;
    /* The link's. */
    enum exchange_state state;
    struct exchange *next;
    uint32_t piece;      /* next piece to send */
    uint64_t piece_sent; /* bytes of it that are sent */
    uint32_t held; /* pieces from this one on are not there yet: embd__link_go_on; 0: all are */
};

/* ---- sending ---- */

/* The next pieces that can be sent, `max` at most; their number, 0 when the rest is held. */
uint32_t embd__exchange_pieces(const struct exchange *x, struct iovec *iov, uint32_t max);

/* `bytes` more of it are sent; true when all are. */
bool embd__exchange_sent(struct exchange *x, uint64_t bytes);

/* ---- waiting ---- */

/* Exchanges that are not sent yet, oldest first; the head may be half sent. */
struct queue {
    struct exchange *head, **end;
};

void embd__queue_init(struct queue *queue);
/* Last, or first; nothing of it is sent then. */
void embd__queue_push(struct queue *queue, struct exchange *x);
void embd__queue_push_front(struct queue *queue, struct exchange *x);
struct exchange *embd__queue_pop(struct queue *queue);

/* The first that `chosen` says becomes the head, of which nothing is sent; false: there is none. */
bool embd__queue_prefer(struct queue *queue, bool (*chosen)(const struct exchange *x, uint64_t now),
                        uint64_t now);

/* Takes those out that `chosen` says, `now` being handed to it, and returns them as a list. */
struct exchange *embd__queue_take(struct queue *queue,
                                  bool (*chosen)(const struct exchange *x, uint64_t now),
                                  uint64_t now);

#endif
