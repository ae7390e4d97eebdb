/* contents.h - the files of a backup, read and checked. */
#ifndef EMBD_BACKUP_CONTENTS_H
#define EMBD_BACKUP_CONTENTS_H

#include "client/backup/record.h"
#include "proto/stored/ticker.h"

/* Takes the bytes of a file in order; nonzero ends it. */
typedef int contents_sink(void *arg, uint32_t piece, bool is_last, const void *data, size_t bytes);

/* Reads one file. Its last piece goes to the sink after the checksum of the whole was compared.
 * EMBD_CORRUPT: it is missing, or has other bytes. `sink` may be NULL; what it returns is
 * returned. `ticker`: counts bytes. */
int contents_read(struct place *place, const struct record *record, const struct record_file *file,
                  contents_sink *sink, void *arg, struct ticker *ticker, struct embd__error *e);

/* Calls `visit` for the share manifests of the record, each read and compared: `share` is its
 * directory below the backup. */
typedef int contents_visit(void *arg, const char *share, const struct manifest *manifest);

/* Whether the record has just the files that its manifests promise, with their sizes and checksums,
 * for one cut and one base. EMBD_CORRUPT. */
int contents_check(struct place *place, const struct record *record, struct embd__error *e);

/* Calls `visit` for each file of a manifest; `rows`: of a part. */
typedef int contents_file(void *arg, const char *file, uint64_t bytes, uint64_t xxh3,
                          uint64_t rows);
int contents_files(const struct manifest *manifest, contents_file *visit, void *arg);

#endif
