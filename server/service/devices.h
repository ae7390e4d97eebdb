/* devices.h - memory of GPUs that the peer of a connection lends (proto/device.h): opened by its
 * handle, named by a number, given back when the peer says so or its connection ends. Owner: the
 * shard's thread. */
#ifndef EMBD_SERVICE_DEVICES_H
#define EMBD_SERVICE_DEVICES_H

#include "proto/device.h"
#include "server/service/state.h"

/* Of one connection. */
#define DEVICES_MOST 16u

/* EMBD_FULL: the connection has lent DEVICES_MOST; errors of store_ops.device_open. */
int devices_open(struct call *call, const struct device_lent *lent, struct device_opened *out);
/* No request that names it is under way. EMBD_INVALID: there is none of that number. */
int devices_close(struct call *call, uint64_t number);
/* All of a session that ends. Its requests are over. */
void devices_leave(const struct shard *shard, struct shard_session *session);

/* Where `bytes` from that place lie. NULL: EMBD_INVALID, they do not, or nothing of that number is
 * lent; `what` names the field's begin, "keys" or "rows". */
uint8_t *devices_find(struct call *call, const struct device_place *place, uint64_t bytes,
                      const char *what);

#endif
