/* device_part.h - the parts of calls in lent memory of a GPU, as messages have them (device.c). */
#ifndef EMBD_CORE_DEVICE_PART_H
#define EMBD_CORE_DEVICE_PART_H

#include "client/core/request.h"
#include "embd/device.h"
#include "proto/device.h"

/* Copies and checks the caller's, as a call begins. EMBD_INVALID, EMBD_TOO_LARGE,
 * EMBD_UNSUPPORTED. */
int embd__device_take(embd_client *client, const embd_device_part *given, embd_device_part *part);

/* Lends its memories to the server of this connection, if they were to that of another. Blocks. */
int embd__device_lend_again(const embd_device_part *part);

struct device_batch embd__device_batch_of(const embd_device_part *part);
/* Whether a stream may wait for calls in that memory. EMBD_UNSUPPORTED. */
int embd__device_check_gates(const embd_device *device);

/* Reads the answer and frees it. */
int embd__device_end(embd_client *client, enum method method, struct answer *answer);

#endif
