/* numbered.h - streams of pushers that this client has opened, by shard. No stream is opened again
 * after its first push may have been applied: a shard that has forgotten the stream meanwhile must
 * say so. Owner: the caller's thread. */
#ifndef EMBD_CALL_NUMBERED_H
#define EMBD_CALL_NUMBERED_H

#include "proto/message.h"

struct opened_stream;

/* Zeroed: none. */
struct opened {
    struct opened_stream *list; /* [capacity], n of them are used */
    uint32_t n, capacity;
};

void embd__opened_fini(struct opened *opened);

enum opened_end {
    OPENED,        /* the shard has answered: it is open there */
    MAY_BE_OPENED, /* it was sent, and not answered */
    NOT_OPENED,    /* it was refused, or not sent */
};

/* *opens_out: the first push of the stream follows an opening; call embd__opened_end when that is
 * answered. There is no opening if the shard has answered one, or if one was sent so long ago
 * without an answer that the shard may have forgotten the stream since. EMBD_NO_MEMORY. */
int embd__opened_begin(struct opened *opened, const struct push_number *stream, uint32_t shard,
                       uint64_t now_ns, bool *opens_out);
/* For the opening that was begun at began_ns. */
void embd__opened_end(struct opened *opened, const struct push_number *stream, uint32_t shard,
                      uint64_t began_ns, enum opened_end end);

#endif
