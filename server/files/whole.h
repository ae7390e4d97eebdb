/* whole.h - small files that are written in one go. */
#ifndef EMBD_FILES_WHOLE_H
#define EMBD_FILES_WHOLE_H

#include <stdint.h>

#include "proto/errors.h"

/* Writes and syncs a file that must not be there yet. EMBD_OK or e->status: EMBD_IO naming the file
 * and the cause. */
int whole_write(int dir, const char *file, const void *bytes, uint64_t n, struct embd__error *e);

#endif
