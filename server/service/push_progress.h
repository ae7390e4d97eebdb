/* push_progress.h - who pushes, and how far each client has come on this shard, so that several
 * shards can make one cut.
 *
 * A client that pushes names itself in hello by a number of its choice, the same on all shards. A
 * push over several shards has one place on all of them, and the places of a client rise. So shards
 * that are at the same place for each client have the same pushes. A shard that is behind learns
 * under its hold which pushes to let in (hold.h).
 *
 * Sessions tell whose pushes are on their way, also for a minute behind their end: a client that
 * lost its connections comes back, and brings a push that some shards have to the others. What was
 * applied is the engine's (sources.h): it is asked about a client whose pushes other shards have
 * and no session here does, since the server has started again.
 *
 * A place is the low 32 bits of the push's order. Clients of earlier versions send no order: then
 * the msgid of a push is its place, and the msgids of their other requests are theirs. Other
 * requests of clients with an order follow the push before them on their connection. */
#ifndef EMBD_SERVICE_PUSH_PROGRESS_H
#define EMBD_SERVICE_PUSH_PROGRESS_H

#include "proto/message.h"
#include "server/service/shard.h"

/* A push that some shards have and others not is on its way: for so long, or it never comes. */
#define PUSH_PROGRESS_RECENT_NS 60000000000u
#define PUSH_PROGRESS_MAX       65536u

struct push_progress_mark {
    uint64_t client;
    uint32_t pushed; /* place */
};

/* Where a session has left. */
struct push_progress_left {
    struct push_progress_mark mark;
    uint64_t pushed_ns;
};

/* Owner: the shard's thread. */
struct push_progress {
    struct shard_session *first;
    struct push_progress_left *left; /* [n_left] in the order in which they left; of n_room */
    uint32_t n_left, n_room;
    uint64_t last_serial; /* of a session that named itself */
};

void push_progress_fini(struct push_progress *progress);

/* The session pushes under this number from now on; 0: under none, it ends. */
void push_progress_name(struct push_progress *progress, struct shard_session *session,
                        uint64_t client);

/* One of those that cuts are made between. In memory of a GPU only with an order: without one a
 * push goes to the only shard. */
static inline bool push_progress_counts(const struct reader *reader)
{
    return reader->method == METHOD_PUSH ||
           (reader->method == METHOD_DEVICE_PUSH && embd__push_order(reader) != 0);
}

/* Finds a request's place, once: in the order they came. */
static inline void push_progress_place(struct request *request, const struct reader *reader)
{
    struct shard_session *session = request->session;
    bool is_push = push_progress_counts(reader);
    if (request->place_kind != PLACE_UNKNOWN)
        return;
    if (!is_push && (!session->has_arrived || session->is_ordered)) {
        request->place_kind = session->has_arrived ? PLACE_BEHIND : PLACE_FIRST;
        request->place = session->arrived;
        return;
    }
    uint64_t order = is_push ? embd__push_order(reader) : 0;
    request->place_kind = PLACE_AT;
    request->place = order != 0 ? (uint32_t)order : request->frame->msgid;
    if (is_push) {
        session->arrived = request->place;
        session->has_arrived = true;
        session->is_ordered = order != 0;
    }
}

/* Whether all pushes up to `pushed` include it. */
bool push_progress_includes(uint32_t pushed, const struct request *request);

/* Sessions that have pushed lately, PUSH_PROGRESS_MAX at most: *out is malloc'd, with room for
 * `more` others; NULL: out of memory. */
uint32_t push_progress_list(struct push_progress *progress, uint64_t now_ns, uint32_t more,
                            struct push_progress_mark **out);
/* One mark for each client, the furthest, PUSH_PROGRESS_MAX at most. Returns how many. */
uint32_t push_progress_merge(struct push_progress_mark *marks, uint32_t n);

/* Whether place a comes before or is b, around the end of their range too. */
static inline bool push_progress_covers(uint32_t b, uint32_t a)
{
    return (int32_t)(b - a) >= 0;
}

/* A push of the session has been made, or refused. */
static inline void push_progress_note(struct shard_session *session, const struct request *push,
                                      uint64_t now_ns)
{
    if (push->place_kind != PLACE_AT ||
        (session->pushed_ns != 0 && push_progress_covers(session->pushed, push->place)))
        return;
    session->pushed = push->place;
    session->pushed_ns = now_ns;
}

#endif
