/* frame.h - finds where a MessagePack-RPC message ends while its bytes arrive.
 *
 * A frame is a head and its bins. The head is the message with every bin emptied: the bytes of a
 * bin's header stay, with a length of zero, and its payload goes elsewhere, directly into a buffer
 * of exactly its size, with the alignment that the store requires. So a bin is never copied after
 * the kernel's copy, and msgpack-c only unpacks heads, which are small and known to be well-formed.
 *
 * The happy path: embd__frame_scan() consumes head bytes until it returns FRAME_BIN; the caller
 * takes `bin_bytes` payload bytes for bin number n_bins - 1 from the stream and calls again, even
 * without more bytes, since a bin may end the message; FRAME_DONE ends it. What can fail: a byte
 * that no message has, or an exceeded limit; then the stream is out of step, and the connection
 * must close after the error is sent. Nothing here allocates or recurses. */
#ifndef EMBD_PROTO_FRAME_H
#define EMBD_PROTO_FRAME_H

#include "proto/errors.h"

/* A bin that lies in shared memory is an ext of this type, which stands where the bin would:
 * offset and bytes, little-endian u64. */
#define SHARED_BIN_TYPE  1
#define SHARED_BIN_BYTES 16u

enum frame_event {
    FRAME_MORE,   /* all bytes eaten, the message goes on */
    FRAME_BIN,    /* a bin's payload comes next in the stream; the caller takes it */
    FRAME_DONE,   /* the message ended with the last byte eaten */
    FRAME_SHARED, /* a bin whose payload lies in shared memory, at shared_at: nothing of it comes */
};

/* Where a bin stands in the head, and its payload. */
struct frame_bin {
    uint32_t at;    /* offset in head of the byte after the emptied bin */
    uint32_t bytes; /* of the payload */
    uint8_t *data;  /* set by the scanner's user; NULL while unset */
};

struct msg_bin;

struct frame_scanner {
    /* Set at init; the caller's. */
    uint8_t *head;
    uint32_t head_capacity;
    uint64_t frame_limit; /* of head and bins together */
    /* Readable at any time. */
    uint32_t head_bytes;
    uint64_t frame_bytes; /* head as it came, and bins announced so far */
    uint32_t n_bins;
    uint32_t bin_bytes; /* of the bin just announced */
    /* The user's, set after init: room for LIMIT_ANSWER_BINS - LIMIT_BINS bins beyond those above;
     * NULL: there are no more. */
    struct frame_bin *more;
    /* Of a message that embd__msg_frame made: the payloads of its bins, one piece behind the other.
     * NULL: bins have them. */
    const struct msg_bin *pieces;
    uint32_t n_pieces;
    bool takes_shared;  /* the user's, set after init: bins may lie in shared memory */
    uint64_t shared_at; /* where the bin just announced does */
    int type;           /* 0 request, 1 response, 2 notification; -1 not known yet */
    bool has_msgid;
    uint32_t msgid;
    /* Private. */
    struct {
        uint32_t left; /* elements still to come at this depth */
        bool is_map;
    } stack[LIMIT_DEPTH];
    uint32_t depth;
    uint32_t want; /* bytes of the current item's header, or of a str/ext body, still to copy */
    uint8_t token[16];
    uint8_t shared[SHARED_BIN_BYTES]; /* of the body, as far as it has come */
    uint32_t shared_bytes;
    bool is_shared; /* it is such a body that `want` counts */
    uint32_t token_bytes, token_want;
    uint32_t item; /* index of the next element of the outermost array */
    /* Readable, too; last, as few of them are in most messages. */
    struct frame_bin bins[LIMIT_BINS];
};

/* Ready for the next message. */
static inline void embd__frame_reset(struct frame_scanner *s)
{
    s->head_bytes = 0;
    s->frame_bytes = 0;
    s->n_bins = 0;
    s->bin_bytes = 0;
    s->type = -1;
    s->has_msgid = false;
    s->msgid = 0;
    s->depth = 0;
    s->want = 0;
    s->is_shared = false;
    s->token_bytes = 0;
    s->token_want = 0;
    s->item = 0;
}

/* Ready for the first byte of a first message. `head` [head_capacity] must outlive the scanner. */
static inline void embd__frame_init(struct frame_scanner *s, uint8_t *head, uint32_t head_capacity,
                                    uint64_t frame_limit)
{
    s->head = head;
    s->head_capacity = head_capacity;
    s->frame_limit = frame_limit;
    s->more = NULL;
    s->pieces = NULL;
    s->takes_shared = false;
    embd__frame_reset(s);
}

/* Eats p[0 .. *used_out) and returns a frame_event, or a negative status with `e` set (naming
 * field, value and limit); after an error only embd__frame_init helps. *used_out is set in every
 * case. Bins over `frame_limit` are announced like others before the error would lose step: the
 * scanner returns EMBD_TOO_LARGE only when the caller asks embd__frame_over(). */
int embd__frame_scan(struct frame_scanner *s, const uint8_t *p, size_t n, size_t *used_out,
                     struct embd__error *e);

/* Bin number i, below n_bins. */
static inline struct frame_bin *embd__frame_bin(struct frame_scanner *s, uint32_t i)
{
    return i < LIMIT_BINS ? &s->bins[i] : &s->more[i - LIMIT_BINS];
}

/* True when the frame has passed its limit: the user should discard the payload of this and later
 * bins, and answer EMBD_TOO_LARGE at FRAME_DONE. The stream stays in step. */
bool embd__frame_over(const struct frame_scanner *s);

/* Whether it is a request of this method, as soon as the name has come. A name of at most 31 bytes,
 * with a header of one byte, which is what packers write. */
bool embd__frame_is_request(const struct frame_scanner *s, const char *method);

#endif
