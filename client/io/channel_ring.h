/* channel_ring.h - the ring of a link, and what its socket showed. Owner: the link. */
#ifndef EMBD_IO_CHANNEL_RING_H
#define EMBD_IO_CHANNEL_RING_H

#include <sys/queue.h>

#include "proto/local/ring.h"

struct channel_ring {
    struct ring ring;
    uint8_t *memory; /* NULL: there is none */
    uint64_t bytes;
    LIST_ENTRY(channel_ring) in_mapped; /* ring_memory.c: while there is memory */
    bool has_ended; /* the server has ended the stream; the ring may still have bytes */
    int error;      /* of the socket: a negative errno */
};

#endif
