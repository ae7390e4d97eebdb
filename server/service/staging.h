/* staging.h - tables that a loader fills beside those in use, and a coordinator lets take their
 * places: the connections that this depends on, and the positions of streams that come with it. */
#ifndef EMBD_SERVICE_STAGING_H
#define EMBD_SERVICE_STAGING_H

#include "server/engine/op.h"
#include "server/service/shard.h"

/* Trainers have so many sets: an admin's load has room beside them, also while an earlier one of an
 * admin is being dropped. */
#define STAGED_BY_TRAINERS (STAGED_SETS - 2)

/* A set of staged tables, and who loads it. One of them is each trainer's token's at most, and one
 * is admins': no loader waits for those of other tokens. */
struct staging_set {
    uint64_t id;                        /* 0: none */
    uint64_t principal;                 /* of the trainer's token; 0: an admin's */
    const struct shard_session *loader; /* NULL: it has left, and its tables go */
    struct push_stream *streams[2];     /* malloc'd; [1]: of journaled tables */
    uint32_t n_streams[2];
    bool brings_unknown; /* the tables are all of their snapshot */
    uint64_t placement;  /* version of the map that the shard had when the set began */
};

/* Owner: the shard's thread. */
struct staging {
    struct staging_set sets[STAGED_SETS];
    const struct shard_session *replacer; /* has checked, and applies next; NULL: none */
    uint64_t checked;                     /* id of the set that it has checked */
    bool is_place;                        /* it was a map of keys to shards */
    uint64_t done;                        /* id of the last set that took its place */
    uint64_t decision;                    /* number of the attempt that it has checked; 0: none */
    uint64_t deciding; /* of the last one whose record was handed over, to write it */
    uint64_t refused;  /* of the last one that shard 0 has told a shard it will not make */
    struct op end;     /* of tables whose loader has left */
    bool is_ending;
    struct op settle; /* of what was prepared: doubt.c */
    bool is_settling, is_doubt_told;
    uint64_t kept, kept_from; /* a decision, and the record from which on followers have it */
    uint64_t settle_again_ns; /* not before: what was refused is not asked for all the time */
};

void staging_fini(struct shard *shard);

/* NULL: there is none of that id. With 0: a free one. */
struct staging_set *staging_find(struct staging *staging, uint64_t id);
void staging_forget(struct staging_set *set);
/* How many sets are trainers'. */
uint32_t staging_of_trainers(const struct staging *staging);
/* Forgets sets whose tables took their places after all who asked for it had left. */
void staging_forget_gone(struct shard *shard);
/* Whether the tables of that id are about to take their places. */
bool staging_is_checked(const struct staging *staging, uint64_t id);

/* Nothing changes tables while a replacement is prepared: call it when that may have changed. */
void staging_lock(struct shard *shard);

/* Ends the sets of loaders that have left, one after the other. */
void staging_look(struct shard *shard);
/* The connection is closed. */
void staging_leave(struct shard *shard, const struct shard_session *session);
/* Whether this connection must not begin a hold: another one's tables are about to take their
 * places on all shards. */
bool staging_stops_hold(const struct shard *shard, const struct shard_session *session);

#endif
