/* insert.h - the rows that a pull makes: what each of its tables is to insert. Parts that name one
 * table and make rows are one insert of it: a request sees a key once, and the rows of its own keys
 * stay. */
#ifndef EMBD_SHARD_INSERT_H
#define EMBD_SHARD_INSERT_H

#include "server/shard/work.h"

/* Whether the part's table is to make rows for it; a pull that asks for zeros only reads. */
bool insert_is_of(const struct work_part *part);

/* Says of each table's first part what that table inserts, and asks all tables where there are
 * several, or several parts of one: work->is_prepared. EMBD_FULL, EMBD_NO_MEMORY, EMBD_TOO_LARGE:
 * nothing is changed. */
int insert_prepare(struct shard_work *work, struct embd__error *e);

/* The statuses that the table of `first` has answered, to its parts. */
void insert_tell(const struct shard_work *work, const struct work_part *first);

#endif
