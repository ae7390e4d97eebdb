/* prepared.h - a replacement that this shard has prepared, and that shard 0 decides: its staged
 * tables are checked, and take their places, or do not, also after a start; or another map of keys
 * to shards takes the place of this one. Until then nothing may change tables here.
 *
 * Owner: the shard's thread. */
#ifndef EMBD_ENGINE_PREPARED_H
#define EMBD_ENGINE_PREPARED_H

#include "proto/errors.h"
#include "proto/placement.h"
#include "server/engine/pushers.h"

/* Zeroed: there is none. */
struct prepared {
    uint64_t id;             /* of the set of staged tables; 0: there is none */
    uint64_t decision;       /* the number of the attempt, that no other one has */
    struct rollback back[2]; /* as op_replace.back; the lists are malloc'd */
    struct placement *place; /* malloc'd; NULL: keys stay where they are */
};

/* EMBD_NO_MEMORY: `out` is zero. */
int prepared_copy(const struct prepared *from, struct prepared *out, struct embd__error *e);
void prepared_fini(struct prepared *prepared);

#endif
