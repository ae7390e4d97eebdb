/* sources.h - how far the pushes of each client have come, for cuts of several shards.
 *
 * A client's pushes have places, which rise and are the same on all shards. The place of the last
 * one applied is part of what a journal restores: so a shard that has started again knows that a
 * push is in its tables: a snapshot does not wait for it, and a push of a round that comes again,
 * since its answer was lost, is in no second step (rounds/step.c).
 *
 * Room is limited. If it is full all clients are forgotten: then a snapshot waits for pushes of a
 * client that rests, as if they were on their way. Owner: the shard's thread. */
#ifndef EMBD_ENGINE_SOURCES_H
#define EMBD_ENGINE_SOURCES_H

#include "proto/batch.h"

#define SOURCES_MAX 65536u

/* Zeroed: of no client. */
struct sources {
    struct push_source
        *table;     /* [2 * SOURCES_MAX] by hash, client 0: free; NULL before the first */
    uint32_t *born; /* [2 * SOURCES_MAX] how many there had ever been with it */
    uint32_t n, n_ever;
    uint64_t seed; /* of the hash: a peer cannot choose ids that meet */
};

void sources_fini(struct sources *sources);

/* A push of that client has been applied, behind later ones or not. Without memory nothing is kept.
 */
void sources_note(struct sources *sources, const struct push_source *push);
/* Whether that push has been applied, or a later one of its client, which comes behind it on each
 * shard. */
bool sources_have(const struct sources *sources, const struct push_source *push);
/* False: no push of that client is known. */
bool sources_find(const struct sources *sources, uint64_t client, uint32_t *place_out);
/* How many clients there had ever been when that one pushed first; 0: it is not known. */
uint32_t sources_born(const struct sources *sources, uint64_t client);
/* All of them: [sources->n]. */
void sources_list(const struct sources *sources, uint64_t *clients, uint32_t *places);

#endif
