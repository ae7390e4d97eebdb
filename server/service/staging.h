/* staging.h - tables that a loader fills beside those in use, and a coordinator lets take their
 * places: the connections that this depends on, and the positions of streams that come with it. */
#ifndef EMBD_SERVICE_STAGING_H
#define EMBD_SERVICE_STAGING_H

#include "server/engine/op.h"
#include "server/service/shard.h"

/* Owner: the shard's thread. */
struct staging {
    const struct shard_session *loader;   /* NULL: it has left, and its tables go */
    const struct shard_session *replacer; /* has checked, and applies next; NULL: none */
    struct push_stream *streams[2];       /* malloc'd; [1]: of journaled tables */
    uint32_t n_streams[2];
    bool brings_unknown; /* the tables are all of their snapshot */
    uint64_t done;       /* id of the last set that took its place */
    struct op end;       /* of tables whose loader has left */
    bool is_ending;
};

void staging_fini(struct shard *shard);

void staging_forget_streams(struct staging *staging);

/* Ends the set of a loader that has left. */
void staging_look(struct shard *shard);
/* The connection is closed. */
void staging_leave(struct shard *shard, const struct shard_session *session);
/* Whether this connection must not begin a hold: another one's tables are about to take their
 * places on all shards. */
bool staging_stops_hold(const struct shard *shard, const struct shard_session *session);

#endif
