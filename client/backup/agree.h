/* agree.h - which records of several shards count, so that a push is on all of them or on none.
 *
 * A client sends each push to every shard, and each shard has a client's pushes in their order. So
 * of each client those pushes count that all shards have; the later ones, which some shards lack,
 * count nowhere. What has no client, such as loads and erases, counts.
 *
 * The pushes of a numbered stream may be of several clients, one behind the other: a later one
 * sends again what only some shards have of the one before. So these count by their numbers. The
 * numbers of a stream of one client do not: such a client has a stream of its own on each shard,
 * and numbers may part there. Pure functions. */
#ifndef EMBD_BACKUP_AGREE_H
#define EMBD_BACKUP_AGREE_H

#include "proto/archived.h"

/* Whose push it is: of a numbered stream, or of a client. */
struct agree_who {
    uint64_t high, low, stream; /* of a client: 0, its id, 2^64 - 1 */
};

/* A push of `who` in a record. */
struct agree_push {
    struct agree_who who;
    uint64_t place; /* the push's order, or its number */
    uint64_t position;
    struct agree_who stream; /* that it is of, too, */
    uint64_t sequence;       /* with this number; 0: it has none */
    uint32_t shard;
};

struct agree {
    struct agree_push *pushes; /* [n], malloc'd */
    uint64_t n;
    uint32_t n_shards;
};

/* EMBD_NO_MEMORY. */
int agree_add(struct agree *agree, uint32_t shard, uint64_t position,
              const struct archived_deed *deed, struct embd__error *e);

struct agree_left {
    uint32_t shard;
    uint64_t position;
};

/* The records that do not count: *out [*n_out], by shard and position, malloc'd. EMBD_NO_MEMORY. */
int agree_end(struct agree *agree, struct agree_left **out, uint64_t *n_out, struct embd__error *e);
void agree_fini(struct agree *agree);

#endif
