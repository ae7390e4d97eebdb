/* ring.c - see ring.h.
 *
 * A doorbell is not missed: a side says that it waits, and then looks once more; the other changes
 * a position, and then looks whether somebody waits. With a fence between the two on each side, one
 * of them sees the other. */
#include "proto/local/ring.h"

#include <string.h>

enum { AT_REQUESTS = 0, AT_ANSWERS = 128, AT_WAITS = 256, LINE = 64 };

static bool fits(uint64_t bytes)
{
    return bytes >= RING_LEAST_BYTES && bytes <= RING_MOST_BYTES && (bytes & (bytes - 1)) == 0;
}

bool embd__ring_fits(uint64_t requests, uint64_t answers)
{
    return fits(requests) && fits(answers);
}

static struct ring_way way(uint8_t *memory, size_t words, uint8_t *data, uint64_t bytes)
{
    return (struct ring_way){.written = (_Atomic uint64_t *)(void *)(memory + words),
                             .taken = (_Atomic uint64_t *)(void *)(memory + words + LINE),
                             .data = data,
                             .bytes = bytes};
}

void embd__ring_init(struct ring *ring, uint8_t *memory, uint64_t requests, uint64_t answers,
                     bool is_server)
{
    uint8_t *data = memory + RING_WORDS_BYTES;
    struct ring_way asks = way(memory, AT_REQUESTS, data, requests);
    struct ring_way says = way(memory, AT_ANSWERS, data + requests, answers);
    _Atomic uint32_t *server = (_Atomic uint32_t *)(void *)(memory + AT_WAITS);
    _Atomic uint32_t *client = (_Atomic uint32_t *)(void *)(memory + AT_WAITS + LINE);
    *ring = (struct ring){.in = is_server ? asks : says,
                          .out = is_server ? says : asks,
                          .own_wait = is_server ? server : client,
                          .other_wait = is_server ? client : server};
}

/* ---- bytes ---- */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Up to where the ring goes on at its begin. */
static size_t straight(const struct ring_way *way, size_t n)
{
    return least(n, (size_t)(way->bytes - (way->at & (way->bytes - 1))));
}

size_t embd__ring_take(struct ring *ring, void *to, size_t n)
{
    struct ring_way *in = &ring->in;
    int64_t ready = embd__ring_ready(ring);
    n = ready < 0 ? 0 : least(n, (size_t)ready);
    size_t first = straight(in, n);
    memcpy(to, in->data + (in->at & (in->bytes - 1)), first);
    memcpy((uint8_t *)to + first, in->data, n - first);
    in->at += n;
    return n;
}

size_t embd__ring_put(struct ring *ring, const void *from, size_t n)
{
    struct ring_way *out = &ring->out;
    int64_t room = embd__ring_room(ring);
    n = room < 0 ? 0 : least(n, (size_t)room);
    size_t first = straight(out, n);
    memcpy(out->data + (out->at & (out->bytes - 1)), from, first);
    memcpy(out->data, (const uint8_t *)from + first, n - first);
    out->at += n;
    return n;
}

/* ---- doorbells ---- */

/* Who takes a wait back rings, also if it is for something else by now: the other side has woken
 * meanwhile, and sleeps again. */
static bool must_ring(struct ring *ring, unsigned waits)
{
    atomic_thread_fence(memory_order_seq_cst);
    if ((atomic_load_explicit(ring->other_wait, memory_order_relaxed) & waits) == 0)
        return false;
    return atomic_exchange_explicit(ring->other_wait, 0, memory_order_relaxed) != 0;
}

bool embd__ring_publish(struct ring *ring)
{
    atomic_store_explicit(ring->out.written, ring->out.at, memory_order_release);
    return must_ring(ring, RING_BYTES);
}

/* Who waits for room is not woken for a little of it. */
bool embd__ring_release(struct ring *ring)
{
    const struct ring_way *in = &ring->in;
    atomic_store_explicit(in->taken, in->at, memory_order_release);
    uint64_t left = atomic_load_explicit(in->written, memory_order_relaxed) - in->at;
    return left <= in->bytes / 2 && must_ring(ring, RING_ROOM);
}

static bool is_so(const struct ring *ring, unsigned waits)
{
    int64_t room = embd__ring_room(ring);
    return ((waits & RING_BYTES) != 0 && embd__ring_ready(ring) != 0) ||
           ((waits & RING_ROOM) != 0 && (room < 0 || (uint64_t)room >= ring->out.bytes / 2));
}

bool embd__ring_wait(struct ring *ring, unsigned waits)
{
    atomic_store_explicit(ring->own_wait, waits, memory_order_relaxed);
    ring->is_waiting = true;
    atomic_thread_fence(memory_order_seq_cst);
    if (!is_so(ring, waits))
        return true;
    embd__ring_wake(ring);
    return false;
}
