/* wanting_room.h - whether a process that follows may get more shards while it runs, and asking for
 * them. The main thread makes them (making_room.h). */
#ifndef EMBD_WANTING_ROOM_H
#define EMBD_WANTING_ROOM_H

#include "server/process.h"

/* Whether the process may: it follows, alone in its configuration. Behind the configuration. */
bool wanting_room_may(const struct process *p);
/* For shard_config.make_room; any thread. */
void wanting_room_ask(void *process, uint32_t n_shards);

#endif
