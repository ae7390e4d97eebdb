/* opening.h - the request that opens a stream of a pusher's pushes, as a client sends it and as a
 * journal has it, and the answer. Pure functions. */
#ifndef EMBD_PROTO_OPENING_H
#define EMBD_PROTO_OPENING_H

#include "proto/message.h"

struct stream_opening {
    struct push_number stream; /* `sequence` is not looked at, nor that of `forgotten` */
    bool is_journaled;         /* of tables that are */
    /* A record's alone: what was decided when it was written. */
    uint64_t principal; /* who opens it; 0: everybody */
    bool forgets;       /* another one goes for it: */
    struct push_number forgotten;
};

/* The map of a request or, with what was decided, of a record; the caller has called
 * embd__msg_request and calls embd__msg_end. */
void embd__opening_write(struct msg *m, const struct stream_opening *opening, bool is_record);
/* The whole request. */
int embd__opening_read(struct reader *r, bool is_record, struct stream_opening *out);

/* Its last push applied, and whether it was opened by this. As embd__msg_result and embd__msg_end
 * go. */
void embd__opened_write(struct msg *m, uint64_t last, bool opened);
int embd__opened_read(struct reader *r, uint64_t *last_out, bool *opened_out);

#endif
