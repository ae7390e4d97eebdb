/* tokenstats.h - what tokens take of the shards. */
#ifndef EMBCTL_TOKENSTATS_H
#define EMBCTL_TOKENSTATS_H

#include "embd/embd.h"

/* Prints it, of every token with limits that the client may see. EMBD_UNREACHABLE: a shard did not
 * answer, and was named; EMBD_NO_MEMORY. */
int show_token_stats(embd_client *client);

#endif
