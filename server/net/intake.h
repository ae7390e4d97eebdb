/* intake.h - the receiving half of a connection: bytes in, frames out.
 *
 * Heads come through a buffer that all connections of the shard share, and are fed to the frame
 * scanner. Of a bin, what already stands in that buffer is copied; the rest is received straight
 * into the bin's own memory: intake_direct() says where, before each read. So a large bin is not
 * copied after the kernel's copy. */
#ifndef EMBD_INTAKE_H
#define EMBD_INTAKE_H

#include "server/net/exchange.h"

/* Bounds one read, so that a connection with much to say leaves turns to others. */
#define INTAKE_DIRECT_BYTES (512u << 10)

enum intake_event {
    INTAKE_MORE,  /* all bytes eaten, the frame goes on */
    INTAKE_WAIT,  /* there is no memory for a bin now: to be called again later */
    INTAKE_FRAME, /* the frame in `arriving` is complete; intake_take() it */
};

struct intake {
    struct exchange *arriving; /* NULL between frames */
    uint8_t *bin;              /* where the rest of the current bin goes; NULL: it is discarded */
    uint32_t bin_left;         /* payload bytes still to come */
};

static inline bool intake_is_between_frames(const struct intake *in)
{
    return in->arriving == NULL;
}

void intake_begin(struct intake *in, struct exchange *x);

/* Eats p[0 .. *used_out); n may be 0, which ends a frame whose last bin was received directly.
 * Returns an intake_event, or a negative status and `e`: the stream is out of step. Only between
 * begin and take. */
int intake_eat(struct intake *in, struct hub *hub, const uint8_t *p, size_t n, size_t *used_out,
               struct embd__error *e);

/* Memory that the next bytes of the stream belong into, or NULL: they go through the shared buffer.
 */
uint8_t *intake_direct(const struct intake *in, size_t *bytes_out);
/* n bytes were received there. */
void intake_landed(struct intake *in, size_t n);

/* The request of which only the end of the last bin is still to come, and how much of that bin is
 * there; else NULL. */
struct request *intake_ending(const struct intake *in, uint64_t *arrived_out);

struct exchange *intake_take(struct intake *in);

#endif
