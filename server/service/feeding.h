/* feeding.h - servers that follow this shard: each asks for the next records of the journal, and
 * waits for its answer while there are none (proto/follow.h).
 *
 * A follower has one question at a time. So nothing queues for it: one that is slow asks less
 * often, and one that comes back too late begins anew with a base. Files are read on a thread of
 * their own, into memory that is charged to what peers may take; the shard waits for no follower.
 *
 * Owner: the shard's thread. */
#ifndef EMBD_SERVICE_FEEDING_H
#define EMBD_SERVICE_FEEDING_H

#include "proto/follow.h"
#include "server/service/shard.h"
#include "server/service/succession.h"

#define FOLLOWERS_MAX 8u

struct ack_times;
struct feed_read;
struct recent;

struct feed {
    const struct shard_session *session; /* NULL: it is free */
    struct request *request;             /* not answered yet; NULL: none */
    struct feed_read *read;              /* of files, under way; NULL: none */
    struct follow_ask ask;               /* the last one */
    uint64_t asked_ns, answered_ns;
    bool is_told;       /* that there will be more shards than it has room for */
    bool is_ours;       /* its records are this journal's: one of its questions had records */
    uint64_t behind_ns; /* since when it lacks records; 0: it has all */
    uint64_t left;      /* bytes that it lacked when it was answered last */
};

struct feeding {
    struct feed list[FOLLOWERS_MAX];
    uint32_t n;        /* that have a session, or a read */
    uint64_t begun_ns; /* since when operations are waited for; 0: they are not */
    bool is_over;      /* the server ends: no question has another answer any more */
    struct succession succession;
    struct recent *recent;   /* records that were written last; NULL: no memory */
    struct ack_times *times; /* NULL: nobody has asked yet, or there was no memory */
};

/* Answers whom it can, and has files read. True: call it again soon. */
bool feeding_look(struct shard *shard);
/* Notes when records are acknowledged, once a follower has asked. */
void feeding_note_times(struct shard *shard);

struct feeding_figures {
    uint32_t n;            /* followers that are connected */
    uint64_t us;           /* that one of them is behind, at most */
    uint64_t bytes;        /* likewise, as of its last answer */
    uint64_t recent_bytes; /* memory of the records kept for them */
};
struct feeding_figures feeding_figures(const struct shard *shard); /* archives do not count */

/* Whether a follower that takes records has not taken all of those before the position. */
bool feeding_lacks(const struct shard *shard, uint64_t position);

/* The request, or its connection, is going. */
void feeding_forget(struct shard *shard, const struct request *request);
void feeding_leave(struct shard *shard, const struct shard_session *session);
/* The server drains: questions that wait are answered, and followers ask again. */
void feeding_drain(struct shard *shard);
/* No change comes any more. Whether the followers have all records, those that were heard of
 * lately, or it `is_late`: then every question is answered with an error. */
bool feeding_finish(struct shard *shard, bool is_late);
/* Waits for reads. */
void feeding_close(struct shard *shard);

#endif
