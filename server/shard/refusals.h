/* refusals.h - a disk that takes no more of a shard's journal, and then does again: two lines in
 * the log, not one for each request. */
#ifndef EMBD_SHARD_REFUSALS_H
#define EMBD_SHARD_REFUSALS_H

struct shard;

/* A request is refused because its record could not be written. */
void refusals_note(struct shard *shard, const char *why);
/* Records were written. */
void refusals_over(struct shard *shard);

#endif
