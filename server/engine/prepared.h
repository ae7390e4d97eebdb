/* prepared.h - a replacement that this shard has prepared, and that shard 0 decides: its staged
 * tables are checked, and take their places, or do not, also after a start. Until then nothing may
 * change tables here.
 *
 * Owner: the shard's thread. */
#ifndef EMBD_ENGINE_PREPARED_H
#define EMBD_ENGINE_PREPARED_H

#include "proto/errors.h"
#include "server/engine/pushers.h"

/* Zeroed: there is none. */
struct prepared {
    uint64_t id;             /* of the set of staged tables; 0: there is none */
    uint64_t decision;       /* the number of the attempt, that no other one has */
    struct rollback back[2]; /* as op_replace.back; the lists are malloc'd */
};

/* EMBD_NO_MEMORY: `out` is zero. */
int prepared_copy(const struct prepared *from, struct prepared *out, struct embd__error *e);
void prepared_fini(struct prepared *prepared);

#endif
