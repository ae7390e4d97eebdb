/* cut_history.h - cuts from before the start whose changes the replayed journal gives. */
#ifndef EMBD_SNAPSHOT_CUT_HISTORY_H
#define EMBD_SNAPSHOT_CUT_HISTORY_H

#include "server/service/state.h"

/* Looks for them in the data directory's snapshots. EMBD_IO, EMBD_NO_MEMORY. */
int cut_history_open(struct shard *shard, struct embd__error *e);
/* So many records are replayed, and that is the checksum of the last one: stores note what changes
 * from now on where a cut was made here. */
void cut_history_meet(struct shard *shard, uint64_t position, uint64_t chain);
void cut_history_close(struct shard *shard); /* none were looked for: nothing */

#endif
