/* room.h - whether all parts of a request will find room, asked before the first of them is
 * applied. */
#ifndef EMBD_SHARD_ROOM_H
#define EMBD_SHARD_ROOM_H

#include "work.h"

/* EMBD_FULL naming the part, when its table would refuse it after others were applied.
 * EMBD_NO_MEMORY. */
int room_check(struct shard_work *work, struct embd__error *e);

#endif
