/* making_room.h - a process that follows gets more shards while it runs, since its cluster does:
 * each has a port and a thread of its own, and begins as any shard that follows, with a base. */
#ifndef EMBD_MAKING_ROOM_H
#define EMBD_MAKING_ROOM_H

#include "server/process.h"

/* Makes what was asked for (wanting_room.h). The main thread. */
void making_room_look(struct process *p);

#endif
