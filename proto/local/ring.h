/* ring.h - the bytes of a connection in memory that both processes have, instead of through its
 * socket: one ring for each direction. The socket carries doorbells, a byte each, where the other
 * side sleeps, and shows its end.
 *
 * The memory begins with a page of words: how many bytes each side has written and taken, and what
 * it waits for. The rings follow. Each side keeps its own places for itself, checks the other's
 * words, and copies bytes out of the ring before it looks at them; so a peer that writes there at
 * any time does what it could do to a socket, too. Owner: the connection. */
#ifndef EMBD_PROTO_LOCAL_RING_H
#define EMBD_PROTO_LOCAL_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RING_WORDS_BYTES 4096u
#define RING_LEAST_BYTES 4096u
#define RING_MOST_BYTES  (16u << 20)

/* The events that a side waits for before it sleeps. */
enum ring_wait {
    RING_BYTES = 1, /* there are some */
    RING_ROOM = 2,  /* half of the ring is free */
};

/* One direction, as one of its two sides has it. */
struct ring_way {
    _Atomic uint64_t *written, *taken;
    uint8_t *data;
    uint64_t bytes; /* a power of two */
    uint64_t at;    /* written or taken by this side; the other may not know it yet */
};

struct ring {
    struct ring_way in, out;
    _Atomic uint32_t *own_wait, *other_wait;
    bool is_waiting; /* own_wait is set, unless the other side has taken it back */
};

/* Powers of two in the bounds. */
bool embd__ring_fits(uint64_t requests, uint64_t answers);

static inline uint64_t embd__ring_total(uint64_t requests, uint64_t answers)
{
    return RING_WORDS_BYTES + requests + answers;
}

/* Over zeroed memory of so many bytes, which outlives it. */
void embd__ring_init(struct ring *ring, uint8_t *memory, uint64_t requests, uint64_t answers,
                     bool is_server);

/* How many bytes can be taken, or put; negative: the other side's words are impossible. */
static inline int64_t embd__ring_ready(const struct ring *ring)
{
    const struct ring_way *in = &ring->in;
    uint64_t n = atomic_load_explicit(in->written, memory_order_acquire) - in->at;
    return n <= in->bytes ? (int64_t)n : -1;
}

static inline int64_t embd__ring_room(const struct ring *ring)
{
    const struct ring_way *out = &ring->out;
    uint64_t n = out->at - atomic_load_explicit(out->taken, memory_order_acquire);
    return n <= out->bytes ? (int64_t)(out->bytes - n) : -1;
}

/* Copies what there is, or what fits, of n bytes; how many. The other side learns of them by the
 * next call of release or publish, which say whether it sleeps and needs a doorbell. */
size_t embd__ring_take(struct ring *ring, void *to, size_t n);
bool embd__ring_release(struct ring *ring);
size_t embd__ring_put(struct ring *ring, const void *from, size_t n);
bool embd__ring_publish(struct ring *ring);

/* This side is about to sleep until one of `waits` (enum ring_wait) is so. False: one is already,
 * and no doorbell will come. */
bool embd__ring_wait(struct ring *ring, unsigned waits);
/* It does not sleep, and needs no doorbells. */
static inline void embd__ring_wake(struct ring *ring)
{
    if (ring->is_waiting)
        atomic_store_explicit(ring->own_wait, 0, memory_order_relaxed);
    ring->is_waiting = false;
}

#endif
