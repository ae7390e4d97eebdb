/* blobs.h - files that go with a snapshot, named on the command line. */
#ifndef EMBCTL_BLOBS_H
#define EMBCTL_BLOBS_H

#include "embd/embd.h"
#include "embd/admin.h"

/* Reads the file of "NAME=FILE" into *blob_out, which blob_fini frees. On failure prints the cause
 * on stderr; returns an exit code. */
int blob_from_file(const char *text, embd_blob *blob_out);
void blob_fini(embd_blob *blob);

#endif
