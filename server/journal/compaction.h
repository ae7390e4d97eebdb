/* compaction.h - replaces a journal by operations that restore what the journaled tables hold now,
 * instead of all that ever changed them.
 *
 * The tables are frozen, and go on. Each gets a table_create and loads of all its rows; one
 * operation with the push streams follows. A thread of the journal writes them, a block at a time
 * between two requests, and the earlier files are removed. */
#ifndef EMBD_JOURNAL_COMPACTION_H
#define EMBD_JOURNAL_COMPACTION_H

#include "server/journal/commit.h"

#define COMPACTION_BLOCK_BYTES (1u << 20) /* copied in well under a millisecond */

struct compaction;

/* Freezes the tables; no operation may be in progress, and no table frozen. EMBD_NO_MEMORY,
 * EMBD_IO, EMBD_INTERNAL: nothing has begun. */
int compaction_begin(struct commit *commit, struct compaction **out, struct embd__error *e);

/* Hands the next record over, if there is room for it. An error gives the compaction up. Behind the
 * last one the earlier files go, unless somebody still reads them (`is_read`): call it again.
 * *has_more_out: call it again soon; otherwise when the journal wakes the shard. */
int compaction_step(struct compaction *c, bool is_read, bool *has_more_out, struct embd__error *e);

/* Tables are needed for something else: what is not yet copied of them is given up. */
void compaction_give_up(struct compaction *c);

/* Whether the journal's thread is through. */
bool compaction_is_over(const struct compaction *c);

/* Waits for the end, though somebody reads the earlier files, and frees. EMBD_OK: the journal is
 * compacted. EMBD_CLOSED: it was given up, by compaction_give_up if *again_out says so; EMBD_IO.
 * Then the journal is unchanged. */
int compaction_end(struct compaction *c, bool *again_out, struct embd__error *e);

/* Bytes that a base of the tables would take now, about. */
uint64_t compaction_bytes(const struct commit *commit);

/* All of it, before this returns. After an error the journal is as it was. */
int compaction_make_now(struct commit *commit, struct embd__error *e);

#endif
