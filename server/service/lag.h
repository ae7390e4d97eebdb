/* lag.h - how far behind a replica may be for a pull, and is. */
#ifndef EMBD_SERVICE_LAG_H
#define EMBD_SERVICE_LAG_H

#include <stdint.h>

struct call;

/* How long ago nothing acknowledged was missing here, by clock_ns; LIMIT_BEHIND_MS: as long or
 * longer, or fresh_ns is 0: not known. */
uint64_t lag_ms(uint64_t fresh_ns);
/* Of the pull whose reader's lag is set. EMBD_LOADING: more than `most_ms`; 0: any may be. */
int lag_check(struct call *call, uint64_t most_ms);

#endif
