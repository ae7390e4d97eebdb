/* carrier.h - how a trunk gets its socket: a link of its own connects to the server, says hello,
 * asks `trunk`, and gives its socket up. For trunks.carry. */
#ifndef EMBD_IO_CARRIER_H
#define EMBD_IO_CARRIER_H

#include "client/io/link.h"
#include "client/io/trunk.h"

/* To the server of `config`. Ends with embd__trunk_start, or is dropped. EMBD_NO_MEMORY,
 * EMBD_INVALID. */
int embd__carrier_begin(struct trunk *trunk, uv_loop_t *loop, const struct link_config *config,
                        struct trunk_carrier *out, struct embd__error *e);

#endif
