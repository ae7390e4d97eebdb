/* settle.h - pulls whose bytes are made while they are sent, and what has to happen before a table
 * changes. */
#ifndef EMBD_SHARD_SETTLE_H
#define EMBD_SHARD_SETTLE_H

#include "server/engine/tables.h"

struct shard;
struct shard_session;
struct shard_work;
struct work_part;

/* Lists an answered pull that has rows left to make; settle_forget takes it off, also when it is
 * not listed. */
void settle_watch(struct shard_work *work);
void settle_forget(struct shard_work *work);

enum change {
    CHANGE_INSERTS, /* first values get rows: shows only where zeros were asked for */
    CHANGE_ROWS,
    CHANGE_DROP, /* the table goes */
};

/* Before `session` changes `table`: makes the rows that answers on their way still need of it into
 * memory. EMBD_NO_MEMORY, and EMBD_BUSY when that would be too much: the change must not happen;
 * the answers are as good as before. */
int settle(struct shard *shard, const struct shard_session *session, const struct table *table,
           enum change change, struct embd__error *e);

/* Frees the rows of a part that were made before they were sent. */
void settle_free(struct shard *shard, struct work_part *part);

#endif
