/* restore_streams.h - the streams of pushers that a start takes from the chosen snapshots. */
#ifndef EMBD_SNAPSHOT_RESTORE_STREAMS_H
#define EMBD_SNAPSHOT_RESTORE_STREAMS_H

#include "server/service/state.h"

struct journal_end;

/* After SNAPSHOT_SELECT_FOUND. Those of journaled tables too where there is no journal; then
 * *has_journaled_out is set if there are any. */
int restore_streams(struct shard *shard, const struct journal_end *end, bool has_journal,
                    bool *has_journaled_out, struct embd__error *e);

#endif
