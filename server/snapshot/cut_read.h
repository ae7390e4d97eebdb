/* cut_read.h - a cut of this shard whose rows an admin fetches while changes go on. The tables are
 * frozen under a hold, which may end then; each goes on as usual once its last row was fetched. */
#ifndef EMBD_SNAPSHOT_CUT_READ_H
#define EMBD_SNAPSHOT_CUT_READ_H

#include "server/service/state.h"

/* Freezes the table, or all (""), for as long as the connection of `call` is open. EMBD_BUSY,
 * EMBD_NO_MEMORY, EMBD_INVALID, EMBD_UNKNOWN_TABLE. */
int cut_read_begin(struct call *call, uint64_t id, const char *table);

static inline bool cut_is_read(const struct shard *shard)
{
    return shard->cut_read != NULL;
}

/* `scan` of the cut `id`, from any connection: the next rows of a table, or, without one, which
 * tables it has. */
struct cut_scan {
    uint64_t id, cursor, bytes;
    const char *table; /* "": which there are */
    bool is_digest;    /* the rows are wanted as a digest of all of them */
};
int cut_read_scan(struct call *call, const struct cut_scan *scan);

/* None is allowed. */
void cut_read_end(struct shard *shard);
/* The table goes: a cut that has it ends. */
void cut_read_drop(struct shard *shard, const struct table *table);
void cut_read_leave(struct shard *shard, const struct shard_session *session);

#endif
