/* behind.h - requests of a connection that wait behind one of its requests: a push in a round, or
 * what waits at a gate. */
#ifndef EMBD_SERVICE_BEHIND_H
#define EMBD_SERVICE_BEHIND_H

#include "server/service/shard.h"

void behind_park(struct shard_session *session, struct request *request);
void behind_unpark(struct shard_session *session, struct request *request);
/* That request waits no more: those behind it are tried in their turn. */
void behind_go_on(struct shard *shard, struct shard_session *session);

#endif
