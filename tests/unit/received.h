/* received.h - a message as a connection would receive it: scanned in pieces, each bin in memory of
 * exactly its size, so that a sanitizer sees every step beside it. For tests and fuzzers. */
#ifndef EMBD_TESTS_RECEIVED_H
#define EMBD_TESTS_RECEIVED_H

#include "proto/message.h"

struct received {
    struct frame_scanner scanner;
    struct embd__error error;
    uint8_t *head; /* exactly the capacity given */
    msgpack_zone zone;
    size_t used; /* bytes of the input taken, bins included */
    int event;   /* FRAME_MORE, FRAME_DONE or an error */
};

void received_init(struct received *r, uint32_t head_capacity, uint64_t frame_limit);
void received_fini(struct received *r);

/* Feeds p[0 .. n), at most `piece` bytes at a time (0: all at once). Ends at FRAME_DONE, at an
 * error or with the bytes, also inside a bin's payload. Called once for each struct. */
int received_feed(struct received *r, const uint8_t *p, size_t n, size_t piece);

/* Opens a reader on a complete message; its errors go to r->error. */
int received_read(struct received *r, struct reader *reader);

/* A built message as one piece of memory, bins without data as zeros; malloc'd. */
uint8_t *flatten(const struct msg *m, size_t *bytes_out);

#endif
