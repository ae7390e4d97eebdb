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
    struct push_number *parted; /* [n_parted]: pushes that some shards have applied, and that others
                                   refused since keys had moved. Their streams end there */
    uint32_t n_parted;
};

void embd__opened_fini(struct opened *opened);

enum opened_end {
    OPENED,        /* the shard has answered: it is open there */
    MAY_BE_OPENED, /* it was sent, and not answered */
    NOT_OPENED,    /* it was refused, or not sent */
};

#endif
