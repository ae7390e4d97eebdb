/* quota.h - how much memory the process gives to its peers (frame_memory): for connections, for
 * what is received on them, and for what their answers take. Charged before memory is taken.
 *
 * What is charged, and what happens when nothing is left:
 *
 *   a connection   its struct, and for TLS what OpenSSL was measured to take   refused BUSY, closed
 *   bytes          that are read, and may have to be kept                      nothing is read
 *   a request      struct exchange, and a buffer for each bin                  it waits; then BUSY
 *   of a push      larger than other frames: also against half of the limit    the same
 *   an answer      a chunk to make rows in                                     it waits
 *   of get, keys   all of it                                                   refused BUSY
 *   shared memory  all that a peer on this host shares, also what is not   refused BUSY; the peer
 *                  touched yet                                             does without
 *   i8, i4         gradients of a push as f32; rows of a pull from GPUs too    refused BUSY
 *
 * Heads of answers and ciphertext to be sent exist already when they are charged; they are bounded
 * for each connection. Idle buffers are not charged: a shard keeps at most an eighth of the limit
 * in them, for some seconds (frame_memory.h).
 *
 * Connections get at most half of the limit, and shared memory a quarter, so that frames have
 * room. So do pushes larger than other frames may be, from the bin on that makes them so: peers
 * that announce such and do not send them leave room to the others. What is received leaves a 32nd
 * to new connections and to answers, whose end gives memory back. */
#ifndef EMBD_QUOTA_H
#define EMBD_QUOTA_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Shared by all threads of the process. */
struct quota {
    _Atomic uint64_t used;
    _Atomic uint64_t connections; /* of it */
    _Atomic uint64_t large;       /* of it, for pushes larger than other frames */
    _Atomic uint64_t shared;      /* of it, that peers on this host share */
    uint64_t limit;
};

/* For what is received. False, and nothing is taken, when it would pass the limit. */
bool quota_take(struct quota *quota, uint64_t bytes);
/* The same for what is answered. */
bool quota_take_answer(struct quota *quota, uint64_t bytes);
/* Always succeeds: for memory that exists already, and is bounded by other means. */
static inline void quota_force(struct quota *quota, uint64_t bytes)
{
    atomic_fetch_add_explicit(&quota->used, bytes, memory_order_relaxed);
}

static inline void quota_give(struct quota *quota, uint64_t bytes)
{
    atomic_fetch_sub_explicit(&quota->used, bytes, memory_order_relaxed);
}

/* For connections. */
bool quota_take_connection(struct quota *quota, uint64_t bytes);
void quota_give_connection(struct quota *quota, uint64_t bytes);

/* For memory that a peer shares. */
bool quota_take_shared(struct quota *quota, uint64_t bytes);
void quota_give_shared(struct quota *quota, uint64_t bytes);

/* Received bytes of a large push are charged here first. */
bool quota_take_large(struct quota *quota, uint64_t bytes);
static inline void quota_give_large(struct quota *quota, uint64_t bytes)
{
    if (bytes > 0)
        atomic_fetch_sub_explicit(&quota->large, bytes, memory_order_relaxed);
}

static inline uint64_t quota_large(const struct quota *quota)
{
    return atomic_load_explicit(&quota->large, memory_order_relaxed);
}

/* Little is left: time to read in small steps. */
static inline bool quota_is_tight(const struct quota *quota)
{
    uint64_t used = atomic_load_explicit(&quota->used, memory_order_relaxed);
    return used > quota->limit - quota->limit / 4;
}

/* A read is charged for the bytes that it may bring: bytes without a complete request must be kept,
 * and it is not known in advance which read brings such. The allowance is filled up again only
 * after a read whose bytes were kept, so a read costs comparisons and no atomic operation. Owner:
 * the shard's thread. */
struct read_allowance {
    struct quota *quota;
    uint64_t bytes; /* charged, and not spent */
};

/* How much of `bytes` may be read now, if `more` may have to be kept as well; 0: there is no
 * memory. */
size_t read_allowance_fill(struct read_allowance *allowance, size_t bytes, size_t more);

static inline size_t read_allowance_room(struct read_allowance *allowance, size_t bytes,
                                         size_t more)
{
    if (allowance->bytes >= bytes + more && !quota_is_tight(allowance->quota))
        return bytes;
    return read_allowance_fill(allowance, bytes, more);
}

/* `bytes` of what was read are kept; given back with quota_give. */
void read_allowance_spend(struct read_allowance *allowance, uint64_t bytes);
/* Gives all of it back. */
void read_allowance_return(struct read_allowance *allowance);

#endif
