/* compaction.h - a journal begins anew: with operations that make what the journaled tables hold
 * now, instead of all that ever changed them.
 *
 * The tables are frozen, and go on. For each there is a table_create and loads of all its rows,
 * then one operation with the push streams; a thread of the journal's writes them, a block at a
 * time between two requests, and what was before goes. */
#ifndef EMBD_JOURNAL_COMPACTION_H
#define EMBD_JOURNAL_COMPACTION_H

#include "server/journal/commit.h"

struct compaction;

/* Freezes the tables; nothing may be under way, and no table frozen. EMBD_NO_MEMORY, EMBD_IO,
 * EMBD_INTERNAL: nothing has begun. */
int compaction_begin(struct commit *commit, struct compaction **out, struct embd__error *e);

/* Hands the next record over, where there is room for it. An error gives it up. *has_more_out: it
 * is to be called again soon; else when the journal wakes the shard. */
int compaction_step(struct compaction *c, bool *has_more_out, struct embd__error *e);

/* Tables are needed for something else: what is not yet copied of them is given up. */
void compaction_give_up(struct compaction *c);

/* Whether the journal's thread is through. */
bool compaction_is_over(const struct compaction *c);

/* Waits for that, and frees. EMBD_OK: the journal has begun anew. EMBD_CLOSED: it was given up, by
 * compaction_give_up where *again_out says so; EMBD_IO. Then the journal is as it was. */
int compaction_end(struct compaction *c, bool *again_out, struct embd__error *e);

/* All of it, before this returns. After an error the journal is as it was. */
int compaction_make_now(struct commit *commit, struct embd__error *e);

#endif
