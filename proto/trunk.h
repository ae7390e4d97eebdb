/* trunk.h - one connection for many shards of a process: behind `trunk` its bytes are chunks, each
 * of one stream, and a stream is to its shard what a connection is. PROTOCOL.md has the meaning.
 *
 * A chunk is three u32, little-endian (kind, stream, value), and for DATA `value` bytes. The
 * client numbers streams: a slot, and how often the slot was used before. What it sends on a
 * stream is bounded by a window, which CREDIT opens again, so that no shard can stop the others'.
 * Answers have none: the client takes them as they come.
 *
 * Pure functions over bytes, for both sides. */
#ifndef EMBD_PROTO_TRUNK_H
#define EMBD_PROTO_TRUNK_H

#include <stddef.h>
#include <stdint.h>

#include "proto/errors.h"
#include "proto/limit.h"

#define TRUNK_HEAD_BYTES   12u
#define TRUNK_SLOTS        LIMIT_SHARDS
#define TRUNK_WINDOW_BYTES (256u << 10) /* of a stream, from the client */
#define TRUNK_DATA_BYTES   (64u << 10)  /* of one chunk, at most */

enum trunk_kind {
    TRUNK_OPEN = 1,   /* client: a stream to the shard `value` of the cluster */
    TRUNK_DATA = 2,   /* `value` bytes of the stream */
    TRUNK_END = 3,    /* this side sends nothing more on it */
    TRUNK_CLOSE = 4,  /* client: it is over; server: it was cut, or never began */
    TRUNK_CREDIT = 5, /* server: so many bytes more may be sent on it */
};

struct trunk_chunk {
    uint32_t kind, stream, value;
};

static inline uint32_t embd__trunk_slot(uint32_t stream)
{
    return stream & 0xffff;
}

/* The number of the slot's next stream. */
static inline uint32_t embd__trunk_next(uint32_t stream)
{
    return stream + 0x10000;
}

void embd__trunk_head(uint8_t out[TRUNK_HEAD_BYTES], uint32_t kind, uint32_t stream,
                      uint32_t value);

/* What a side receives. Zeroed before its first byte. */
struct trunk_reader {
    uint8_t head[TRUNK_HEAD_BYTES];
    uint32_t head_bytes;      /* that have come */
    struct trunk_chunk chunk; /* the last one whose head is complete */
    uint32_t left;            /* bytes of it that are still to come */
};

enum trunk_event {
    TRUNK_MORE = 0,  /* all n bytes are used, nothing is complete */
    TRUNK_CHUNK = 1, /* the head of `chunk` is complete */
    TRUNK_BYTES = 2, /* the first *used_out bytes, one or more, are of `chunk` */
};

/* The next event of p[0 .. n), n > 0. EMBD_PROTOCOL: no such chunk may come `from_client`, or from
 * a server; `e` says what came. */
int embd__trunk_read(struct trunk_reader *r, bool from_client, const uint8_t *p, size_t n,
                     size_t *used_out, struct embd__error *e);

#endif
