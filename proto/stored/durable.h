/* durable.h - files and directories that are complete on disk or do not exist.
 *
 * A dump is written into a directory with a temporary name; every file is checksummed while it is
 * written and synced when it is complete; then the directory is synced, renamed, and its parent
 * synced. A reader that finds the final name finds everything under it, also after a power cut. */
#ifndef EMBD_STORED_DURABLE_H
#define EMBD_STORED_DURABLE_H

#include <xxhash.h>

#include "proto/message.h"

/* One file being written. Zero is "not open". */
struct durable_file {
    int fd; /* -1 once closed */
    char *path;
    uint64_t bytes;
    uint64_t flushing;  /* bytes that are on their way to the disk */
    uint64_t xxh3;      /* of the whole file; set by embd__durable_finish */
    XXH3_state_t *hash; /* NULL: no checksum is kept */
};

/* A new file `directory`/`name`; it must not exist. Errors name the path and the cause. */
int embd__durable_create(struct durable_file *file, const char *directory, const char *name,
                         struct embd__error *e);

/* The same for a file without a checksum. */
int embd__durable_create_plain(struct durable_file *file, const char *directory, const char *name,
                               struct embd__error *e);

/* Appends the pieces in order. */
int embd__durable_write(struct durable_file *file, const struct msg_piece *pieces,
                        uint32_t n_pieces, struct embd__error *e);

/* Starts writing the appended bytes to disk; does not wait. */
void embd__durable_flush(struct durable_file *file);

/* Syncs and closes; file->bytes and file->xxh3 stay. */
int embd__durable_finish(struct durable_file *file, struct embd__error *e);

/* Frees, closing what is open. Zero is allowed. */
void embd__durable_fini(struct durable_file *file);

/* Creates the directory that embd__durable_publish will rename to `target`: "TARGET.tmp-PID",
 * malloc'd. EMBD_EXISTS: `target` exists already. */
int embd__durable_stage(const char *target, char **staged_out, struct embd__error *e);

/* Syncs `staged`, renames it to `target`, which must not exist, and syncs the parent. */
int embd__durable_publish(const char *staged, const char *target, struct embd__error *e);

/* Renames `staged`/`name`, which is finished, to `target` beside the directory; it must not exist.
 * Like the directory's own name it is on disk once embd__durable_publish has synced the parent. */
int embd__durable_publish_file(const char *staged, const char *name, const char *target,
                               struct embd__error *e);

/* Removes a staged directory and the files in it, as far as it can. */
void embd__durable_discard(const char *staged);

#endif
