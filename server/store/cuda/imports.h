/* imports.h - memory that other processes lend, as this process has it open: each handle once a
 * device, however many of its shards, and connections, have it. A second opening of a handle may
 * fail, and the end of one may end both: that differs between versions of CUDA. Any thread. */
#ifndef EMBD_CUDA_IMPORTS_H
#define EMBD_CUDA_IMPORTS_H

#include "server/store/cuda/device.h"

/* `bytes` of the memory of a handle, for the device in use, which is `device`. 0; DEVICE_TOO_SMALL;
 * DEVICE_NO_MEMORY; or as device_import: nothing is open. */
int imports_open(int device, const uint8_t handle[DEVICE_HANDLE], uint64_t bytes,
                 void **memory_out);
/* As often as it was opened. */
void imports_close(int device, void *memory);

#endif
