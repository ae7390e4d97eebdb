/* snapshot_files.h - files of a complete snapshot from the servers that wrote it: what embctl makes
 * backups of. Exported like table_copy.h: under a version that names the release.
 *
 * Functions return EMBD_OK or a negative status; the client's error then has the sentence. */
#ifndef EMBD_FORMATS_SNAPSHOT_FILES_H
#define EMBD_FORMATS_SNAPSHOT_FILES_H

#include "proto/message.h"

struct answer;

struct file_piece {
    struct answer *answer; /* owns what `data` points to */
    const uint8_t *data;   /* [bytes] */
    uint64_t bytes;        /* 0: the file ends before */
    uint64_t file_bytes;   /* of the whole file */
};

/* The bytes from `at` on of one file, from the server process whose first shard `shard` is; they
 * are freed by embd__copy_piece_free. EMBD_INVALID: it is not the first of its process;
 * EMBD_UNSUPPORTED: there is no such snapshot, or the server is of an earlier version. */
EMBD_API int embd__copy_file_piece(embd_client *client, uint32_t shard, const char *snapshot,
                                   const char *file, uint64_t at, struct file_piece *out);
EMBD_API void embd__copy_piece_free(struct file_piece *piece);

/* The number of the cluster that the tables come from, which stays when a follower is promoted; 0:
 * its servers have no data directory, or are of an earlier version. */
EMBD_API int embd__copy_lineage(embd_client *client, uint64_t *lineage_out);

#endif
