/* ring_memory.h - the memory of a link's rings (proto/local/ring.h). A forked child of this process
 * has other memory there, whose words are impossible: a handle of the parent finds its connections
 * ended, and writes nothing that the parent's servers read. */
#ifndef EMBD_CLIENT_IO_RING_MEMORY_H
#define EMBD_CLIENT_IO_RING_MEMORY_H

#include <stdint.h>

#include "client/io/channel_ring.h"

/* Zeros, of ring->bytes; and its descriptor, which the caller closes unless it is negative. False:
 * there is none. Calls of any threads. */
bool embd__ring_memory_open(struct channel_ring *ring, int *fd_out);
/* Where there is some. */
void embd__ring_memory_close(struct channel_ring *ring);

#endif
