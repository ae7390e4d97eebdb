/* deposing.h - a promoted follower takes the place of the server that it followed: it tells that
 * one, which serves nothing from then on.
 *
 * The journals of the two part with the epoch, a number that rises by one with each promotion. A
 * server that hears of a greater one than its own notes it on disk, so that it does not serve after
 * a start either. Owner: the shard's thread. */
#ifndef EMBD_SERVICE_DEPOSING_H
#define EMBD_SERVICE_DEPOSING_H

#include "proto/follow.h"
#include "server/service/shard.h"

struct note;

/* Before any shard is promoted. EMBD_INVALID: one of them is no follower's that has a base;
 * EMBD_IO, EMBD_CORRUPT. */
int deposing_check(const char *data_dir, uint32_t n_shards, struct embd__error *e);

/* The journal becomes this server's own, in the next epoch. EMBD_IO. */
int deposing_promote(struct shard *shard, struct note *note, struct embd__error *e);

/* Tells the server of config.follow, again and again until it has heard, as soon as all shards here
 * are loaded. EMBD_NO_MEMORY. */
int deposing_begin(struct shard *shard, struct embd__error *e);
void deposing_look(struct shard *shard);
void deposing_close(struct shard *shard);

/* A server that was promoted has asked: this one serves no more. EMBD_INVALID. */
int deposing_heed(struct shard *shard, const struct follow_ask *ask, struct embd__error *e);

#endif
