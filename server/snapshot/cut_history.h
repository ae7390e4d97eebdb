/* cut_history.h - cuts from before the start whose changes the replayed journal gives. */
#ifndef EMBD_SNAPSHOT_CUT_HISTORY_H
#define EMBD_SNAPSHOT_CUT_HISTORY_H

#include "server/service/state.h"

/* Looks for them in the data directory's snapshots. EMBD_IO, EMBD_NO_MEMORY. */
int cut_history_open(struct shard *shard, struct embd__error *e);
/* n records are replayed, and this is the checksum of the last one: where a cut was made here,
 * stores note changes from now on. */
void cut_history_meet(struct shard *shard, uint64_t position, uint64_t chain);
void cut_history_close(struct shard *shard); /* none were looked for: nothing */

#endif
