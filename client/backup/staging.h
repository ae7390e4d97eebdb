/* staging.h - files of backups from a bucket, in a directory of this machine for a while. */
#ifndef EMBD_BACKUP_STAGING_H
#define EMBD_BACKUP_STAGING_H

#include "client/backup/record.h"
#include "proto/stored/ticker.h"

struct staging {
    char path[4096];
};

/* A new directory, which its owner alone may read. EMBD_IO. */
int staging_make(const char *in, struct staging *out, struct embd__error *e);
/* Reads the files of one backup, several at a time, and compares their checksums; with tables in
 * the order, of parts only theirs. */
int staging_fill(const struct staging *staging, const struct restore_order *order,
                 const struct record *record, struct ticker *ticker, struct embd__error *e);
/* As far as it can. */
void staging_remove(const struct staging *staging);

#endif
