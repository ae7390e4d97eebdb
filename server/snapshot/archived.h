/* archived.h - records that an archive kept of a shard's journal, behind the snapshot that its
 * tables came from (proto/archived.h): so a restore brings back a moment between two snapshots.
 *
 * A shard without a journal that finds its file in the data directory replays the records as a
 * start replays a journal. Then its tables become the base of its own journal, and the file is of
 * no more use. A shard that was added behind the snapshot has all of its records there. */
#ifndef EMBD_SNAPSHOT_ARCHIVED_H
#define EMBD_SNAPSHOT_ARCHIVED_H

#include "server/journal/record.h"

struct archived;

/* Whether the data directory, by its path, has records of the shard. */
bool archived_is_there(const char *data_dir, uint32_t shard);

/* *out NULL: there is no such file. `cut`: of the snapshot that the tables are of. EMBD_CORRUPT,
 * EMBD_IO, EMBD_INVALID: it is of another cut or shard. */
int archived_open(int data_dir, uint32_t shard, uint32_t n_shards, uint64_t cut,
                  struct archived **out, struct embd__error *e);
/* The next record that counts, whose bytes stay, and may be changed, until the end. *bytes_out
 * NULL: no more. EMBD_CORRUPT: it does not go on where the one before ends. */
int archived_next(struct archived *archived, uint8_t **bytes_out, struct record *record_out,
                  struct embd__error *e);
void archived_progress(const struct archived *archived, uint64_t *done_bytes_out,
                       uint64_t *total_bytes_out);
/* NULL is allowed. */
void archived_close(struct archived *archived);

#endif
