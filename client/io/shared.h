/* shared.h - memory that a client shares with the servers on its host: rows and gradients lie in
 * it, and only their places go through the socket.
 *
 * One memfd of the client's, handed to each link's server when the link connects (sharing.c).
 * Blocks of it are taken for calls, and lent to the caller (embd_buffer_new). A block may be used
 * again when no server can write to it, or read it, any more: a call that ended without its
 * server's answer, on a connection that the server has not ended, keeps its block for good. */
#ifndef EMBD_IO_SHARED_H
#define EMBD_IO_SHARED_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/errors.h"

/* Rows and gradients of fewer bytes go through the socket. */
#define SHARED_LEAST_BYTES_OF_CALL (32u << 10)
/* So do more rows of one shard, unless they come into a lent buffer: those that come through the
 * ring, or the socket, get to their places while the server makes the next ones. */
#define SHARED_MOST_BYTES_OF_SHARD (1000u << 10)

struct shared_block {
    uint64_t at, bytes;
    bool is_lent;
    bool is_gate; /* of device_call.c: GPUs read and write there, too */
    bool is_kept; /* for good: a server may yet write there */
};

/* Owner: the caller's thread, but for what is said. */
struct shared {
    uint32_t n_users; /* the client, and buffers that it has lent; guarded by the mutex */
    uint64_t wanted;  /* bytes; 0: nothing is shared */
    /* The loop's thread, before any link says that it shares; then they stay. */
    int fd;
    bool is_tried;
    uint8_t *base;
    uint64_t bytes;
    bool is_off; /* no further call shares */
    /* Guarded: */
    pthread_mutex_t mutex;
    const uint8_t *view;         /* where rows are read that a server wrote: base, until detached */
    struct shared_block *blocks; /* [n_blocks] in use, by their place */
    uint32_t n_blocks, capacity;
};

/* Of the size that EMBD_SHARED_MIB says. EMBD_INVALID, EMBD_NO_MEMORY. */
int embd__shared_new(struct shared **out, struct embd__error *e);
/* The client is closed; the memory goes with the last buffer. NULL is allowed. */
void embd__shared_leave(struct shared *shared);
/* The loop's thread: makes the memory, of `most` bytes at most, the first time. False: there is
 * none. */
bool embd__shared_open(struct shared *shared, uint64_t most);

/* Memory of a new memfd, all zero and sealed as servers expect it; NULL: none, and *fd_out may be
 * -1. Its owner closes and unmaps. */
uint8_t *embd__shared_map(const char *name, uint64_t bytes, int *fd_out);

/* At least `bytes`, at the begin of a page; NULL: no room. A lent block is a user, too. */
void *embd__shared_take(struct shared *shared, uint64_t bytes, bool is_lent);
/* Any thread. */
void embd__shared_give(struct shared *shared, const void *block);
/* Whether all of it lies in memory that is shared. */
static inline bool embd__shared_has(const struct shared *shared, const void *data, uint64_t bytes)
{
    uintptr_t at = (uintptr_t)data - (uintptr_t)shared->base;
    return shared->base != NULL && !shared->is_off && bytes <= shared->bytes &&
           at <= shared->bytes - bytes;
}

/* `data` lies in a gate: its block stays shared, also where others are detached. Any thread. */
void embd__shared_hold(struct shared *shared, const void *data);
/* Its block is not used again when it is given back. Any thread. */
void embd__shared_keep(struct shared *shared, const void *data);
/* A server may write to lent blocks, or read them, without our knowing: they become the caller's
 * alone, with their content, and nothing is shared any more. Nothing to do where none is lent. */
void embd__shared_detach(struct shared *shared);

/* Any thread: what a server wrote `at`, until it is said to be viewed. */
const uint8_t *embd__shared_view(struct shared *shared, uint64_t at);
void embd__shared_viewed(struct shared *shared);

static inline uint64_t embd__shared_at(const struct shared *shared, const void *data)
{
    return (uint64_t)((const uint8_t *)data - shared->base);
}

#endif
