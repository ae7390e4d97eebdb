/* segments.h - a journal's files, one after the other: groups go to the end of the last, and are
 * synced.
 *
 * Owner: whoever has the journal's file, see journal_internal.h. */
#ifndef EMBD_JOURNAL_SEGMENTS_H
#define EMBD_JOURNAL_SEGMENTS_H

#include "server/journal/journal_internal.h"

/* ---- groups: records that gather in memory, to be written together ---- */

/* EMBD_NO_MEMORY: as if not asked. */
int group_append(struct journal_group *group, struct op *op, const struct frame_scanner *frame,
                 bool is_durable, struct embd__error *e);
/* Numbers its records from `position` on and chains them; returns the checksum of the last. */
uint64_t group_seal(struct journal_group *group, const struct record_key *key, uint64_t position,
                    uint64_t synced, uint64_t chain);
/* The operation's owner is going; its record stays. */
void group_forget(struct journal_group *group, const struct op *op);
void group_clear(struct journal_group *group);
void group_fini(struct journal_group *group);

/* ---- the files ---- */

/* All written records are on disk when this returns; else the process has ended. */
void segments_sync(struct journal *journal);
/* Behind the last record, in the next segment if it is time; synced if it is durable, or if there
 * is no time to do so later. group->error: none of it is in the journal. */
void segments_write(struct journal *journal, struct journal_group *group);
/* All that is written is synced. What says so is not, and where it cannot be written, nothing is
 * lost: pieces of it are written over. */
void segments_mark(struct journal *journal);

#endif
