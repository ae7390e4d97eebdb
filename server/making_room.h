/* making_room.h - a process that follows gets more shards while it runs, since its cluster does:
 * each has a port and a thread of its own, and begins as any shard that follows, with a base. */
#ifndef EMBD_MAKING_ROOM_H
#define EMBD_MAKING_ROOM_H

#include "server/process.h"

/* Whether the process may: it follows, alone in its configuration. Behind the configuration. */
bool making_room_may(const struct process *p);
/* For shard_config.make_room; any thread. */
void making_room_ask(void *process, uint32_t n_shards);
/* Makes what was asked for. The main thread. */
void making_room_look(struct process *p);

#endif
