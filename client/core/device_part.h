/* device_part.h - the parts of calls in lent memory of a GPU, as messages have them, and the shards
 * that the memory is lent to (device.c). */
#ifndef EMBD_CORE_DEVICE_PART_H
#define EMBD_CORE_DEVICE_PART_H

#include "client/core/request.h"
#include "embd/device.h"
#include "proto/device.h"

/* Copies and checks the caller's, as a call begins. EMBD_INVALID, EMBD_TOO_LARGE,
 * EMBD_UNSUPPORTED. */
int embd__device_take(embd_client *client, const embd_device_part *given, embd_device_part *part);

/* Lends its memories to each shard that they are not lent to on its connection of now. Blocks. An
 * error names the shard. */
int embd__device_lend(const embd_device_part *part);
/* Lending has failed. Whether a shard has left the cluster: the client has another map now, and no
 * error. May wait for that until the deadline. */
bool embd__device_follow(embd_client *client);
/* On the connection of now, as far as this thread knows. False: there is none. */
bool embd__device_is_lent(const embd_device *device, uint32_t shard);

/* As the shard is told; all keys take part. */
struct device_batch embd__device_batch_of(const embd_device_part *part, uint32_t shard);
/* Whether a stream may wait for calls in that memory. EMBD_UNSUPPORTED. */
int embd__device_check_gates(const embd_device *device);

#endif
