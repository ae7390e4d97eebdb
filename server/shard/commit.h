/* commit.h - what happens between a checked request that changes journaled tables and its effect:
 * its record comes to the disk first. */
#ifndef EMBD_SHARD_COMMIT_H
#define EMBD_SHARD_COMMIT_H

#include "server/shard/state.h"

/* Applies what was appended, and closes the journal. */
void commit_close(struct shard *shard);

static inline bool commit_is_kept(const struct table *table)
{
    return table->schema.s.durability != EMBD_DURABILITY_SNAPSHOT;
}

/* A table that was just created, so that what is in the journal can be created: as commit_now.
 * After an error the table has to go again. EMBD_UNSUPPORTED, where the shard has no place for a
 * journal. */
int commit_create(struct call *call, const embd_schema *schema);

/* A push whose parts are checked. WRITER_AGAIN: its writer's push was applied; a status: it cannot
 * be applied, whatever still waits for its record. */
int commit_look(struct shard_work *work, struct embd__error *e);
/* The push was refused when its turn came. */
void commit_refused(struct shard_work *work);
/* Whether the tables of a work's parts are journaled, and how: all, or none; EMBD_INVALID: some. */
int commit_durability(const struct shard_work *work, embd_durability *out, struct embd__error *e);

/* A checked push: runs call->work now, or when the record is written. */
int commit_push(struct call *call);

/* The opening of a stream of pushes to journaled tables, decided: ends call->work when `record` is
 * written, or now, in the order of the records. The frame may go then. */
int commit_opening(struct call *call, const struct frame_scanner *record);

/* A checked request that is applied right after this returns EMBD_OK; no push may be waiting.
 * EMBD_IO, EMBD_NO_MEMORY: it must not be applied. */
int commit_now(struct call *call, embd_durability durability);
/* The same for the tables of call->work. */
int commit_parts_now(struct call *call);

/* A request that commit_now let through, or a push whose turn it was, failed: where that is for
 * want of memory no start applies it any more. Ends the process where it is partly done, or that
 * cannot be had. */
void commit_withdraw(const struct shard_work *work, bool is_partly_done,
                     const struct embd__error *why);

/* Applies some of what was written since, and has the next group written. True: it is to be called
 * again soon. */
bool commit_collect(struct shard *shard);

/* The request is going: its record, if it has one, will be applied nevertheless. */
void commit_forget(struct shard *shard, struct request *request);

#endif
