/* snapshot_fetch.h - the phase `fetch`: a piece of a file of a complete snapshot goes to an admin,
 * who makes a backup. It is read on a thread (server/files/errand.h): a shard reads one at a time.
 * Snapshots are begun, written and kept meanwhile. */
#ifndef EMBD_SNAPSHOT_FETCH_H
#define EMBD_SNAPSHOT_FETCH_H

#include "server/service/state.h"

#define FETCH_PIECE_BYTES (4u << 20)
#define FETCH_FILE_MAX    95u /* bytes of a file's name */

/* `file`: of the directory `name`, from `offset` on. CALL_LATER; EMBD_BUSY: another piece is being
 * read; EMBD_DENIED, EMBD_NO_MEMORY, EMBD_UNSUPPORTED: there is no such snapshot; EMBD_IO. */
int snapshot_fetch(struct call *call, const char *name, const char *file, uint64_t offset);

/* Answers, if the thread has ended. */
void snapshot_fetch_collect(struct shard *shard);
/* Waits for it. */
void snapshot_fetch_close(struct shard *shard);
/* The request is going: waits for the thread, which writes into its answer. */
void snapshot_fetch_forget(struct shard *shard, const struct request *request);

#endif
