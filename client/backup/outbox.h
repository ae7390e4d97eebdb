/* outbox.h - files on their way to a place, which a thread puts there one after the other: so
 * whoever makes them does not wait for a slow place. */
#ifndef EMBD_BACKUP_OUTBOX_H
#define EMBD_BACKUP_OUTBOX_H

#include "client/backup/place.h"

#define OUTBOX_BYTES (128u << 20) /* then who adds one waits */

struct outbox;

/* EMBD_NO_MEMORY, errors of place_open. */
int outbox_open(const struct backup_where *to, struct outbox **out, struct embd__error *e);
/* A file of one piece, malloc'd, which is the outbox's from then on, also after an error: that of
 * an earlier file. */
int outbox_add(struct outbox *outbox, const char *name, uint8_t *bytes, size_t n,
               struct embd__error *e);
/* Whether all that were added are there. */
bool outbox_is_empty(struct outbox *outbox);
/* Waits until all are there; an error is the first one. NULL is allowed. */
int outbox_close(struct outbox *outbox, struct embd__error *e);

#endif
