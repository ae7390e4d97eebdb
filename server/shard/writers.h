/* writers.h - who pushes, and how far each has come on this shard, so that several shards can make
 * one cut.
 *
 * A client that pushes names itself in hello by a number of its own choice, the same on all shards.
 * A push over several shards has one msgid on all of them, and msgids of a client rise. So shards
 * that stand at the same msgid for each writer have the same pushes; where one is behind, it is
 * told under its hold which pushes are still to be let in (hold.h). */
#ifndef EMBD_SHARD_WRITERS_H
#define EMBD_SHARD_WRITERS_H

#include "shard.h"

/* A push that some shards have and others not is on its way: for so long, or it never comes. */
#define WRITERS_RECENT_NS 60000000000u
#define WRITERS_MAX       65536u

struct writer_mark {
    uint64_t writer;
    uint32_t pushed; /* msgid */
};

/* Owner: the shard's thread. */
struct writers {
    struct shard_session *first;
};

/* The session pushes under this number from now on; 0: under none. */
void writers_name(struct writers *writers, struct shard_session *session, uint64_t writer);
/* Its push has been made, or refused. */
void writers_note(struct shard_session *session, uint32_t msgid, uint64_t now_ns);

/* Writers that have pushed lately, WRITERS_MAX at most: *out is malloc'd, [n]; NULL: out of memory.
 */
uint32_t writers_list(const struct writers *writers, uint64_t now_ns, struct writer_mark **out);

/* Whether msgid a comes before or is b, around the end of their range too. */
static inline bool writers_reaches(uint32_t b, uint32_t a)
{
    return (int32_t)(b - a) >= 0;
}

#endif
