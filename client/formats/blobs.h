/* blobs.h - the trainer's own files in a snapshot. */
#ifndef EMBD_FORMATS_BLOBS_H
#define EMBD_FORMATS_BLOBS_H

#include "embd/admin.h"
#include "proto/stored/dumpdir.h"
#include "client/core/request.h"

/* The blobs of embd_snapshot: their number, names and sizes. */
int embd__blobs_check(const embd_blob *blobs, uint32_t n, struct embd__error *e);

/* Sends one blob to shard 0, which has begun the snapshot `name`. The client's error names the
 * shard and the cause. */
int embd__blob_send(embd_client *client, const char *name, const embd_blob *blob);

#endif
