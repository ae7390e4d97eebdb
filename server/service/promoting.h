/* promoting.h - a shard that follows is promoted while the process runs: see
 * server/follow/promotion.h. Owner: the shard's thread. */
#ifndef EMBD_SERVICE_PROMOTING_H
#define EMBD_SERVICE_PROMOTING_H

#include "server/service/shard.h"

/* Whether the shard asks the other server for nothing now: it has voted, or is about to. */
bool promoting_rests(const struct shard *shard);

/* Whether it has, and so takes nothing more until the decision. */
bool promoting_has_voted(const struct shard *shard);

/* While it is asked: nothing of what has come can be taken any more. */
bool promoting_is_settled(const struct shard *shard);

/* Does the next step of an attempt. True: the shard has been promoted, and shard->following is
 * to be closed. An error is for good. */
bool promoting_look(struct shard *shard, struct embd__error *e);

#endif
