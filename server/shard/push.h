/* push.h - the two ends of a push, which the step of a round has too. */
#ifndef EMBD_SHARD_PUSH_H
#define EMBD_SHARD_PUSH_H

#include "server/shard/work.h"

/* Takes what all parts need, where there are several: right before the first of them is made.
 * EMBD_FULL, EMBD_NO_MEMORY: none is to be. */
int push_prepare(struct shard_work *work, struct embd__error *e);

/* Pushes the next part; false: there is none. For shard_work.next_call. */
bool push_next_call(struct shard_work *work);

/* Answers with the steps and counts of the parts, or with the error. For shard_work.end. */
void push_end(struct shard_work *work);

/* Answers that the push was applied when it came before. */
void push_again(struct shard_work *work);

/* The error of part at - 1 says that others were applied before it, where some were. */
void push_tell_applied(struct shard_work *work);

#endif
