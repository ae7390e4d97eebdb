/* writers.h - whose pushes were applied, so that one that is sent again is not applied again.
 *
 * A writer numbers its pushes to a shard 1, 2, ... in each of its streams. A number is used up when
 * its push is applied; one that is refused has used none. Only the last one of each stream is
 * remembered, of the WRITERS_MAX streams that pushed last: which these are depends on the pushes
 * applied and on nothing else, so that a journal that is replayed ends with the same ones. Owner:
 * the shard's thread. */
#ifndef EMBD_SHARD_WRITERS_H
#define EMBD_SHARD_WRITERS_H

#include "message.h"

#define WRITERS_MAX 65536u /* 5 MiB */

struct writer_stream;

/* Zeroed: of no writer. */
struct writers {
    struct writer_stream *streams; /* [WRITERS_MAX + 1], 0 is none; NULL before the first */
    uint32_t *buckets;
    uint64_t seed; /* of the hash: a peer cannot choose ids that meet in a bucket */
    uint32_t n;
    uint32_t oldest, newest;
};

void writers_fini(struct writers *writers);

#define WRITER_AGAIN 1

/* EMBD_OK: the push is the next of its stream. WRITER_AGAIN: it was applied. EMBD_GAP naming the
 * last applied one; EMBD_FORGOTTEN: it is not the first, and the stream is not known. EMBD_NO_MEMORY.
 * Changes nothing. */
int writers_look(struct writers *writers, const struct push_writer *push, struct embd__error *e);
/* It is applied now; writers_look has just said EMBD_OK. */
void writers_note(struct writers *writers, const struct push_writer *push);

/* It was refused after all, and has changed nothing. Where a device has begun the next one meanwhile, its
 * number stays used. */
void writers_take_back(struct writers *writers, const struct push_writer *push);

/* The last push applied, 0 where the stream is not known. */
uint64_t writers_last(const struct writers *writers, const struct push_writer *stream);

/* All streams, the one that has not pushed for longest first: `out` has room for writers->n. Their number. */
uint32_t writers_list(const struct writers *writers, struct push_writer *out);
/* They are noted, in their order. EMBD_NO_MEMORY. */
int writers_restore(struct writers *writers, const struct push_writer *list, uint32_t n,
                    struct embd__error *e);

#endif
