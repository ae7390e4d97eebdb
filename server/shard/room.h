/* room.h - whether all parts of a push will find room and memory, asked before its record is written, and before the
 * first of them is applied. */
#ifndef EMBD_SHARD_ROOM_H
#define EMBD_SHARD_ROOM_H

#include "work.h"

/* EMBD_FULL naming the part, when its table would refuse it after others were applied, or after its record was
 * written, as it did with the push before. EMBD_NO_MEMORY. */
int room_check(struct shard_work *work, struct embd__error *e);

/* Memory for the rows of a push whose record is to be written, beside those whose records are. EMBD_NO_MEMORY and
 * others of store_ops.reserve: it must not be. */
int room_reserve(struct shard_work *work, struct embd__error *e);
/* Until it is applied, other pushes leave it that memory. */
void room_keep(struct shard_work *work);
void room_part_left(const struct shard_work *work, const struct work_part *part);
void room_left(struct shard_work *work); /* the parts whose tables are not NULL */
/* The same of part i, of a push of several that is about to be applied. */
int room_reserve_part(const struct shard_work *work, uint32_t i, struct embd__error *e);

#endif
