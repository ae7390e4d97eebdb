/* settle.h - pulls whose bytes are made while they are sent, and what has to happen before a table
 * changes. */
#ifndef EMBD_SHARD_SETTLE_H
#define EMBD_SHARD_SETTLE_H

#include "tables.h"

struct shard;
struct shard_work;

/* Lists an answered pull that has rows left to make; settle_forget takes it off, also when it is
 * not listed. */
void settle_watch(struct shard_work *work);
void settle_forget(struct shard_work *work);

enum change {
    CHANGE_INSERTS, /* rows get there with their first values: shows only where zeros were asked for
                     */
    CHANGE_ANY,
};

/* Makes the rows that answers on their way still need of `table` into memory. EMBD_NO_MEMORY: the
 * change must not happen; the answers are as good as before. */
int settle(struct shard *shard, const struct table *table, enum change change,
           struct embd__error *e);

#endif
