/* outlet.h - the sending half of a connection: answers in, batches of bytes out.
 *
 * A batch is what one writev takes: pieces of answers that lie in memory, in place, and one chunk
 * of rows that the shard makes now (shard_fill), small enough to be in the cache still when the
 * kernel copies it. Many small answers share a batch. An answer is freed when the batch with its
 * last byte was taken. One that is still being made (request.is_partial) goes as far as it is. */
#ifndef EMBD_OUTLET_H
#define EMBD_OUTLET_H

#include "proto/local/ring.h"
#include "server/net/exchange.h"
#include "server/net/sender.h"

#define OUTLET_BUFS SENDER_BUFS
/* Large answers in memory go out in such steps; those that another thread sends in larger ones. */
#define OUTLET_BATCH_BYTES (1u << 20)
#define OUTLET_ASIDE_BYTES (32u << 20)

struct outlet {
    struct exchange_queue ready; /* answers not wholly in a batch yet, the first perhaps in part */
    struct exchange_queue gathered; /* those whose last byte is in the batch */
    uint32_t piece;                 /* of the first of `ready`: what comes next */
    uint64_t offset;
    uint64_t most;              /* bytes of a batch that were not made for it */
    uv_buf_t bufs[OUTLET_BUFS]; /* the batch; bufs[first .. n) are still to be sent */
    uint32_t first, n;
    uint64_t batch_bytes; /* still to be sent */
    struct chunk *chunk;  /* made bytes of the batch, or NULL */
    size_t chunk_used;
};

void outlet_init(struct outlet *out);
/* Forgets the batch; the exchanges are freed by the connection. */
void outlet_fini(struct outlet *out, struct shard_io *io);

/* Takes an answered exchange. */
static inline void outlet_add(struct outlet *out, struct exchange *x)
{
    STAILQ_INSERT_TAIL(&out->ready, x, in_queue);
}

/* Builds the next batch if there is none; rows are made until `until_ns`, and those of one answer.
 * False: nothing to send, or in *status_out EMBD_BUSY: there is no memory to make rows in now;
 * EMBD_NO_MEMORY. */
bool outlet_gather(struct outlet *out, struct shard_io *io, uint64_t until_ns, int *status_out);

/* Copies of the batch what the ring has room for; how much. */
size_t outlet_put(const struct outlet *out, struct ring *ring);

/* The peer, or the kernel, has taken n bytes of the batch. */
void outlet_sent(struct outlet *out, struct shard_io *io, uint64_t n);

/* Moves the next exchange that was sent wholly out of the outlet; NULL: none. Only when the batch
 * is over. */
static inline struct exchange *outlet_next_sent(struct outlet *out)
{
    struct exchange *x = out->batch_bytes > 0 ? NULL : STAILQ_FIRST(&out->gathered);
    if (x != NULL)
        STAILQ_REMOVE_HEAD(&out->gathered, in_queue);
    return x;
}

static inline bool outlet_is_empty(const struct outlet *out)
{
    return out->batch_bytes == 0 && STAILQ_EMPTY(&out->ready);
}

/* Frees the spare chunks. */
void outlet_trim(struct shard_io *io);

#endif
