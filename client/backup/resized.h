/* resized.h - which later maps of keys the records of a shard have: so whether the cluster has
 * another number of shards from then on. The records come in pieces of any length. Pure functions.
 */
#ifndef EMBD_BACKUP_RESIZED_H
#define EMBD_BACKUP_RESIZED_H

#include <stdbool.h>

#include "proto/archived.h"
#include "proto/limit.h"

/* How far the record is whose bytes came last. All zero at the beginning of one. */
struct resized {
    uint8_t head[ARCHIVED_RECORD_BYTES + 8 + LIMIT_HEADER_BYTES];
    uint64_t n_head; /* bytes there, */
    uint64_t n_kept; /* of so many that are kept */
    uint64_t left;   /* bytes of the record that are to come behind its header */
};

/* A record begins with the next byte. */
static inline bool resized_begins(const struct resized *r)
{
    return r->n_head == 0 && r->left == 0;
}

/* Takes bytes [n > 0] of one record at most, and returns how many. *out: at the end of a record
 * about a later map, what that does; else its `move` is MOVE_NONE. */
uint64_t resized_take(struct resized *r, const uint8_t *bytes, uint64_t n,
                      struct archived_deed *out);

#endif
