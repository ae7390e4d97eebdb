/* exchange.h - one request and its answer: the frame as it was received, the memory its bins lie
 * in, and the `struct request` the shard sees. Lives from the request's first byte to the answer's
 * last.
 *
 * Small bins lie in the exchange itself, larger ones in buffers of the frame pool. Exchanges are
 * reused, each keeps the head buffer of its answer. */
#ifndef EMBD_EXCHANGE_H
#define EMBD_EXCHANGE_H

#include "server/net/shard_io.h"

#define EXCHANGE_ARENA_BYTES (12u << 10)
#define EXCHANGE_SMALL_BIN   (4u << 10) /* and below: goes to the arena while there is room */
/* An idle exchange keeps no more of its answer than this. */
#define EXCHANGE_KEPT_ANSWER (8u << 10)
/* Bins of one connection's requests, with what their buffers are larger than they: one frame may
 * always come; others wait until those before are answered. */
#define EXCHANGE_SHARE(frame_bytes) ((frame_bytes) + (frame_bytes) / 4)
/* A bin without frame memory waits this long before its request is refused. The first large bin of
 * a large push waits for as long as a frame may make no progress: it holds up no other. */
#define EXCHANGE_WAIT_MS 1000u

struct exchange {
    struct request request;
    struct connection *connection;
    struct frame_scanner frame;
    struct embd__error refusal; /* set: payload is discarded and this is the answer */
    bool is_with_shard;         /* shard_handle has seen the request */
    bool is_old;                /* began before the drain */
    bool is_large;              /* a push of more than frame_bytes */
    uint64_t charged_bytes;     /* to the frame quota, for bins */
    uint64_t large_bytes;       /* of them, since it is large */
    uint64_t answer_bytes;      /* likewise, for the answer's head */
    uint64_t wait_until_ms;     /* for memory for the bin just announced; then it is refused */
    bool is_waiting;
    uint32_t arena_used;
    TAILQ_ENTRY(exchange) in_connection;
    STAILQ_ENTRY(exchange) in_queue; /* of answers to send, or of spare exchanges */
    uint8_t head[LIMIT_HEADER_BYTES];
    _Alignas(64) uint8_t arena[EXCHANGE_ARENA_BYTES];
};

/* Ready for the first byte; charged to the quota. NULL: there is no memory now. */
struct exchange *exchange_new(struct shard_io *io, struct connection *connection);

/* Gives everything back, whatever state it is in. */
void exchange_free(struct shard_io *io, struct exchange *x);

static inline bool exchange_has_room(const struct exchange *x, uint32_t bytes)
{
    return bytes <= EXCHANGE_SMALL_BIN && bytes <= sizeof x->arena - x->arena_used;
}

static inline uint8_t *exchange_place_small(struct exchange *x, uint32_t bytes)
{
    uint8_t *data = x->arena + x->arena_used;
    x->arena_used += (bytes + 63) / 64 * 64;
    return data;
}

/* exchange_place_bin where the bin is large, or the request refused. */
uint8_t *exchange_place_large(struct shard_io *io, struct exchange *x);

/* Memory for the bin that the scanner has just announced. NULL: its payload is discarded
 * (x->refusal says why, then or earlier), or x->is_waiting: call again. Never NULL for an empty bin
 * of a valid request. */
static inline uint8_t *exchange_place_bin(struct shard_io *io, struct exchange *x)
{
    struct frame_bin *bin = &x->frame.bins[x->frame.n_bins - 1];
    x->is_waiting = false;
    if (x->refusal.status != EMBD_OK || x->frame.type != 0 || embd__frame_over(&x->frame) ||
        !exchange_has_room(x, bin->bytes))
        return exchange_place_large(io, x);
    bin->data = exchange_place_small(x, bin->bytes);
    return bin->data;
}

/* Makes the answer of a refused request. */
void exchange_refuse(struct exchange *x);

/* Frees the spare ones. */
void exchange_trim(struct shard_io *io);

#endif
