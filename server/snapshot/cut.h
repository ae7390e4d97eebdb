/* cut.h - this shard's part of a snapshot, written while pushes go on: the tables are frozen under
 * a hold, which may end then; a thread writes the files, and the shard hands it the rows, a block
 * at a time between two requests. */
#ifndef EMBD_SNAPSHOT_CUT_H
#define EMBD_SNAPSHOT_CUT_H

#include "server/service/state.h"

/* Freezes the tables that `what` covers, or their changes, and begins to write them into NAME.tmp,
 * for as long as the connection of `call` is open. EMBD_UNSUPPORTED: this shard cannot be woken;
 * EMBD_BUSY, EMBD_NO_MEMORY, EMBD_INVALID, EMBD_IO, EMBD_UNKNOWN_TABLE. */
int cut_begin(struct call *call, const char *name, const struct snapshot_cut *what);

/* Whether NAME has begun here; then tables may not be dropped. */
bool cut_is_of(const struct shard *shard, const char *name);

/* The table's definition at the cut NAME; NULL: it is not of this shard's. */
const embd_schema *cut_schema(const struct shard *shard, const char *name,
                              const struct table *table);

/* Whether the connection that began NAME is closed, and its files will end soon. */
bool cut_is_ending(const struct shard *shard, const char *name);

/* Whether tables are frozen for one. */
bool cut_is_writing(const struct shard *shard);
/* A snapshot is being written, a dump read, or a mark digested: tables are frozen for it. */
static inline bool cut_is_on(const struct shard *shard)
{
    return (shard->cut != NULL && cut_is_writing(shard)) || shard->cut_read != NULL ||
           mark_is_frozen(&shard->mark);
}

/* Answers the request, when all parts are on disk, with the parts or the error. CALL_LATER. */
int cut_wait(struct call *call);

/* Passes rows on, and notes the end. True: call it again soon. */
bool cut_collect(struct shard *shard);

/* Removes the cut from the shard, whose tables go on without it; a waiting request gets `why`.
 * NULL: none. */
struct cut *cut_detach(struct shard *shard, int status, const char *why);
/* Waits until nothing of it is written any more. Any thread. */
void cut_wait_written(struct cut *cut);
/* Then frees it. NULL is allowed. */
void cut_discard(struct cut *cut);
/* The cut ends as soon as its thread does; a waiting request gets `why`. No cut is allowed. */
void cut_end(struct shard *shard, int status, const char *why);
/* Waits for that. */
void cut_close(struct shard *shard);
/* The table goes: a cut that has it ends, and is waited for. */
void cut_drop(struct shard *shard, const struct table *table);

void cut_forget(struct shard *shard, const struct request *request); /* the request is going */
void cut_leave(struct shard *shard,
               const struct shard_session *session); /* the connection is closed */

#endif
