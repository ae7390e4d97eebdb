/* reached.h - how far a shard's journal was on disk: `journal.SHARD.reached`, beside it.
 *
 * A file that is cut off at a record's end, or in its last group, looks like one that never had
 * more. This one says that it had. It is written behind each sync of the journal, and not synced
 * itself: it never says more than is on disk, and after a power cut it may say less. */
#ifndef EMBD_JOURNAL_REACHED_H
#define EMBD_JOURNAL_REACHED_H

#include <stdint.h>

#include "proto/errors.h"

/* *position_out: records that were on disk; 0: unknown, or the file does not verify, which is
 * logged. EMBD_IO. */
int reached_read(int data_dir, uint32_t shard, uint64_t *position_out, struct embd__error *e);

/* The journal has this many records on disk. *fd: that of the file, -1 before the first call; the
 * caller closes it. If it cannot be written, it says less, which does no harm. */
void reached_note(int *fd, int data_dir, uint32_t shard, uint64_t position);

/* The journal begins at this position again, since damage before was accepted: on disk when this
 * returns EMBD_OK. Nothing where the file says no more. EMBD_IO. */
int reached_lower(int data_dir, uint32_t shard, uint64_t position, struct embd__error *e);

#endif
