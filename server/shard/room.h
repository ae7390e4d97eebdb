/* room.h - whether a request finds room and memory in all of its tables, asked before its record is
 * written, and before the first of them is changed. */
#ifndef EMBD_SHARD_ROOM_H
#define EMBD_SHARD_ROOM_H

#include "server/shard/work.h"

/* Has the store of part i decide on a push or insert that comes next. The error names the part
 * where there are several; errors of store_ops.prepare. */
int room_prepare(const struct shard_work *work, uint32_t i, struct store_plan *plan,
                 struct embd__error *e);

/* EMBD_FULL, where a push whose record is to be written is sure to be refused so; EMBD_NO_MEMORY.
 * Not where that would cost more than it saves. */
int room_check(struct shard_work *work, struct embd__error *e);

/* Memory for the rows of a push whose record is to be written, beside those whose records are.
 * EMBD_NO_MEMORY and others of store_ops.reserve: it must not be. */
int room_reserve(struct shard_work *work, struct embd__error *e);
/* Until it is applied, other pushes leave it that memory. */
void room_keep(struct shard_work *work);
void room_part_left(const struct shard_work *work, const struct work_part *part);
void room_left(struct shard_work *work); /* the parts whose tables are not NULL */

#endif
