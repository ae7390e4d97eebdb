/* deposing.h - a promoted follower takes the place of the server that it followed: it tells that
 * one, which serves nothing from then on.
 *
 * The journals of the two part with the epoch, a number that rises by one with each promotion. A
 * server that hears of a greater one than its own notes it on disk, so that it does not serve after
 * a start either.
 *
 * A name may be of two clusters, so the number of the cluster has to be the same, too. Two
 * followers of one server may both be promoted, in the same epoch: `who` tells them apart. The
 * server heeds the one that told it first, and the other one serves nothing as soon as it hears of
 * that. Owner: the shard's thread. */
#ifndef EMBD_SERVICE_DEPOSING_H
#define EMBD_SERVICE_DEPOSING_H

#include "proto/follow.h"
#include "proto/message.h"
#include "server/service/shard.h"

struct follower;
struct note;

/* Before any shard is promoted. EMBD_INVALID: one of them is not a follower that has a base;
 * EMBD_IO, EMBD_CORRUPT. */
int deposing_check(const char *data_dir, uint32_t first, uint32_t n_shards, struct embd__error *e);

/* Whether some shards of the directory are promoted, and others still follow: a promotion was
 * interrupted. */
bool deposing_is_half(const char *data_dir, uint32_t first, uint32_t n_shards);

/* The journal becomes this server's own, in the next epoch. EMBD_IO. */
int deposing_promote(struct shard *shard, struct note *note, struct embd__error *e);

/* Tells the server of config.follow, again and again until it has heard, as soon as all shards here
 * are loaded. `before` has asked that server, and may know where its other shards are; NULL: nobody
 * has. EMBD_NO_MEMORY. */
int deposing_begin(struct shard *shard, struct follower *before, struct embd__error *e);
void deposing_look(struct shard *shard);
void deposing_close(struct shard *shard);

/* A number of the cluster that the journal began with, also where another server had it then; 0:
 * not known. */
uint64_t deposing_lineage(const struct shard *shard);

/* A server that was promoted tells so: by its epoch, or that and `who`. This one serves no more,
 * or the other one must not: then the answer says that. EMBD_OK: the question is a follower's;
 * else EMBD_INVALID. */
int deposing_heed(struct shard *shard, const struct follow_ask *ask, struct embd__error *e);
/* Whether a shard that serves nothing answers that all the same. */
bool deposing_hears(const struct shard *shard, enum method method);

#endif
