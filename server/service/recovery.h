/* recovery.h - the journal's records become the tables they made, and a snapshot what they held,
 * before the shard takes requests. */
#ifndef EMBD_SERVICE_RECOVERY_H
#define EMBD_SERVICE_RECOVERY_H

#include "server/service/state.h"

/* Where the config has `loaded`, the shard loads from now on, in recovery_go_on, and until that is
 * called requests that touch tables are answered EMBD_LOADING; else all of it is done when this
 * returns. */
int recovery_begin(struct shard *shard, struct embd__error *e);

/* Replays for some milliseconds. True: there is more to do. */
bool recovery_go_on(struct shard *shard);

/* The owner of the data directory may be known now: the loading begins, or a shard that had loaded
 * stops serving. */
void recovery_heed_identity(struct shard *shard);

/* All is read: if the shard still loads, it waits for a decision (doubt.h). */
bool recovery_is_read(const struct shard *shard);

/* It will not be ended. */
void recovery_give_up(struct shard *shard);

/* The progress as a sentence for the caller: the table of the last record, if the caller may know
 * it, bytes done and of all. */
#define RECOVERY_TEXT_BYTES 384u
void recovery_tell(const struct call *call, char text[RECOVERY_TEXT_BYTES]);
void recovery_progress(const struct shard *shard, uint64_t *done_bytes_out,
                       uint64_t *total_bytes_out);

#endif
