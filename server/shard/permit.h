/* permit.h - whether the peer of a request may ask for it: by the role of its token, and table by
 * table. Where the shard has no list of tokens, everybody may do everything that the listener
 * offers. All return EMBD_OK, or EMBD_DENIED naming method, role and table. */
#ifndef EMBD_SHARD_PERMIT_H
#define EMBD_SHARD_PERMIT_H

#include "server/shard/state.h"

/* Takes the token of a hello, "" where it shows none. */
int permit_hello(struct call *call, const char *token);

/* The method that call->reader found. */
int permit_method(struct call *call);

/* Whether the peer may know of a table. */
bool permits_table(const struct call *call, const char *table);
int permit_table(struct call *call, const char *table);
/* Rows of a part; a pull that creates rows is for those who may push. */
int permit_part(struct call *call, const struct table *table, bool is_push);

#endif
