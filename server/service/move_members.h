/* move_members.h - a map that makes shards members of the cluster, or that the last shards leave
 * by: whether this shard may go along with it. Such a map moves no key. */
#ifndef EMBD_SERVICE_MOVE_MEMBERS_H
#define EMBD_SERVICE_MOVE_MEMBERS_H

#include "server/service/state.h"

/* The shards that the map adds, and where they are. */
struct added {
    struct shard_entry *list; /* [n] malloc'd */
    uint32_t n;
};

/* Of a shard that joins: it takes any map that has it. EMBD_INVALID. */
int move_check_joining(struct call *call, const struct placement *next);
/* Of a member, where the map has another number of shards. EMBD_INVALID, EMBD_UNSUPPORTED. */
int move_check_members(struct call *call, const struct placement *next);
/* The directory knows the added shards from now on, where there are any. EMBD_INVALID, and errors
 * of identity_members_begin. */
int move_note_members(struct call *call, const struct placement *next, const struct added *added);

#endif
