/* restore.h - what the chosen snapshots have of this shard comes back at its start, behind the
 * replay of its journal. */
#ifndef EMBD_SNAPSHOT_RESTORE_H
#define EMBD_SNAPSHOT_RESTORE_H

#include "server/journal/journal.h"
#include "server/service/state.h"

/* The journal is read, up to `end`. EMBD_NO_MEMORY. */
int restore_begin(struct shard *shard, const struct journal_end *end, struct embd__error *e);
/* A step of some milliseconds, or none while there is no verdict: *waits_out. *is_over_out: that
 * was the last step. After an error the shard cannot be used. */
int restore_go_on(struct shard *shard, bool *waits_out, bool *is_over_out, struct embd__error *e);
/* Where the journal goes on, and whether the tables that it keeps came from the snapshot, and it
 * has none of them yet. */
const struct journal_end *restore_journal_end(const struct shard *shard);
bool restore_has_journaled(const struct shard *shard);
/* None is allowed. */
void restore_end(struct shard *shard);

/* Bytes of the snapshot's files that are compared and loaded, and of all of them. */
void restore_progress(const struct shard *shard, uint64_t *done_bytes_out,
                      uint64_t *total_bytes_out);
/* The table that is being loaded; "": none. */
const char *restore_table(const struct shard *shard);
/* The snapshot that is being checked or loaded; "": none. */
const char *restore_snapshot(const struct shard *shard);

#endif
