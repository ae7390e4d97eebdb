/* elder.h - `snapshots.elder` in a data directory: snapshots that no start begins with any more.
 *
 * With failover another process may take the place of this one. What this one had of its own is
 * kept aside then (rank.c), but for its snapshots, which jobs and operators go back to. They are
 * older than the tables that there are now; so a start passes over them, unless an operator names
 * one. The file has the greatest sequence of theirs, in decimal digits and a line feed. */
#ifndef EMBD_SNAPSHOT_ELDER_H
#define EMBD_SNAPSHOT_ELDER_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/errors.h"

#define ELDER_FILE "snapshots.elder"

/* All snapshots that there are now. On disk when this returns EMBD_OK. EMBD_IO, EMBD_CORRUPT. */
int elder_note(int data_dir, struct embd__error *e);
/* Those of this sequence and lower ones. false: there are none. EMBD_CORRUPT: what the file has is
 * no sequence. */
int elder_read(int data_dir, bool *are_there, uint64_t *sequence_out, struct embd__error *e);
/* Whether a directory of that name is a complete snapshot, or was meant to be one. */
bool elder_stays(int data_dir, const char *name);

#endif
