/* materialize.h - what must happen before a table changes whose rows answers are being made of. */
#ifndef EMBD_SERVICE_MATERIALIZE_H
#define EMBD_SERVICE_MATERIALIZE_H

#include "server/engine/engine.h"
#include "server/service/work.h"

/* The engine's before_change: `session` of `shard` is about to change `table`. Makes the rows that
 * answers on their way still need of it into memory. EMBD_NO_MEMORY, and EMBD_BUSY when that would
 * be too much: the change must not happen; the answers are as good as before. */
int materialize(void *shard, const void *session, const struct table *table, enum change change,
                struct embd__error *e);

#endif
