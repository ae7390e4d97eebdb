/* streamsread.h - the lists of pushers' streams that a snapshot has (streamsfile.h), read and
 * checked. */
#ifndef EMBD_STORED_STREAMSREAD_H
#define EMBD_STORED_STREAMSREAD_H

#include "proto/stored/dumpdir.h"
#include "proto/streamsfile.h"

/* One shard's whole file, malloc'd. NULL: the error names the file: EMBD_CORRUPT, EMBD_IO,
 * EMBD_NO_MEMORY. */
uint8_t *embd__streams_read(const struct dump_share *share, const struct manifest_streams *w,
                            struct streamsfile *head_out, struct embd__error *e);

/* Reads and checks those of one share. As above. */
int embd__streams_verify(const struct dump_share *share, struct embd__error *e);

#endif
