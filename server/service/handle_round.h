/* handle_round.h - pushes that wait for those of other workers, and what their connections send
 * behind them (engine/rounds/step.h makes the step). */
#ifndef EMBD_SERVICE_HANDLE_ROUND_H
#define EMBD_SERVICE_HANDLE_ROUND_H

#include "server/service/answer.h"

/* From now on pushes of workers that leave or are replaced go with them. */
void round_open(struct shard *shard);

#define ROUND_MADE 2

/* The push in `call`, checked, waits in its round from now on. CALL_LATER, ROUND_MADE where its
 * step was made, or the status of an error. */
int round_wait(struct call *call);

/* The push waits no more, if it did: what is behind it is tried in its turn. */
void round_leave(struct shard_work *work);

/* Makes the step of a round that waits for no worker. False: there is none. */
bool round_make(struct shard *shard);

/* Refuses every push that waits with EMBD_DRAINING: the shard takes no more. */
void round_refuse_all(struct shard *shard, const char *why);

/* The same with EMBD_MOVED: clients split their pushes by the shard's new map. */
void round_refuse_moved(struct shard *shard);

/* The peer has ended its side of the connection: its push is not in the round. */
void round_end_session(struct shard *shard, struct shard_session *session);

/* The request is going; it waits, or a step is made of it. */
void round_drop(struct shard *shard, struct request *request);

#endif
