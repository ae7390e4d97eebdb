/* directory.h - the data directory of the process: whose it is, and who is asked about it. */
#ifndef EMBD_DIRECTORY_H
#define EMBD_DIRECTORY_H

#include "server/process.h"

/* Locks it, and reads whose it is; nothing without a data directory. EMBD_IO, EMBD_CORRUPT,
 * EMBD_NO_MEMORY. */
/* A follower's directory, or that of one which was promoted, may have another number of shards than
 * the configuration says: as many as its cluster had, or more. */
int directory_fit(struct process *p, struct embd__error *e);
int directory_open(struct process *p, struct embd__error *e);

/* The shards have started: the other servers are asked. EMBD_NO_MEMORY. */
int directory_ask(struct process *p, struct embd__error *e);

/* Other tokens and authorities count from now on, for what this server asks others. EMBD_NO_MEMORY:
 * the authorities before stay. */
int directory_take_credentials(struct process *p, struct embd__error *e);

#endif
