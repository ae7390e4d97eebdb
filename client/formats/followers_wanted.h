/* followers_wanted.h - whether shards have the followers that changes of replicated tables wait
 * for, before such a table is made. */
#ifndef EMBD_FORMATS_FOLLOWERS_WANTED_H
#define EMBD_FORMATS_FOLLOWERS_WANTED_H

#include "client/core/request.h"

/* Waits for those of all shards, as long as a server does. EMBD_BUSY: some are missing; the
 * client's error names the table, which is not there yet. */
int embd__followers_await(embd_client *client, const char *table);

#endif
