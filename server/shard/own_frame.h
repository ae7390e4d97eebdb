/* own_frame.h - a request that the shard builds itself becomes a frame like one that was received.
 */
#ifndef EMBD_SHARD_OWN_FRAME_H
#define EMBD_SHARD_OWN_FRAME_H

#include "proto/frame.h"
#include "proto/message.h"

struct own_frame {
    uint8_t head[LIMIT_HEADER_BYTES];
    struct frame_scanner frame; /* its bins point to the message's */
};

/* The message is complete, and outlives the frame. EMBD_NO_MEMORY and EMBD_TOO_LARGE, as the
 * message has them. */
int own_frame_scan(struct own_frame *own, struct msg *msg, struct embd__error *e);

#endif
