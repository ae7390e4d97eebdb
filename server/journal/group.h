/* group.h - records that gather in memory, to be written together. */
#ifndef EMBD_JOURNAL_GROUP_H
#define EMBD_JOURNAL_GROUP_H

#include "server/journal/journal.h"

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

#endif
