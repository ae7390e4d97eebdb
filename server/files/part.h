/* part.h - one table's rows of one shard as a part file (proto/partfile.h), for snapshots. */
#ifndef EMBD_FILES_PART_H
#define EMBD_FILES_PART_H

#include "proto/partfile.h"

/* Where the rows of a part come from. */
struct part_rows {
    /* 1: the next block, until the next call; 0: no more; or the status of an error. */
    int (*next)(struct part_rows *rows, struct row_block *out, struct embd__error *e);
};

/* Writes and syncs the rows of one table as TABLE.SHARD.part into `dir`, and describes the file.
 * EMBD_OK or e->status: EMBD_IO naming the file and the cause, EMBD_NO_MEMORY, or what `rows` says.
 */
int part_write(int dir, const embd_schema *schema, uint32_t shard, struct part_rows *rows,
               struct manifest_part *out, struct embd__error *e);
void part_name(char out[96], const char *table, uint32_t shard);

#endif
