/* wire.h - the devices of the process, and how bytes go from one to another. Callers see no
 * difference between two ways: by peer access, kernels of one device load and store the memory of
 * another; by NCCL, every device sends bytes from its own memory. One file implements this with
 * CUDA and NCCL; tests have one that moves bytes by memcpy.
 *
 * Numbers returned are as in device.h, or WIRE_LOST. The wire belongs to the shard's thread: one
 * thread at a time may have it open, any number of times. */
#ifndef EMBD_NCCL_WIRE_H
#define EMBD_NCCL_WIRE_H

#include <stdbool.h>
#include <stdint.h>

#define WIRE_MAX  16u  /* devices */
#define WIRE_LOST (-2) /* a device does not answer; wire_why has the reason */

/* WIRE_AUTOMATIC: the faster one, measured, if both work. */
enum wire_way { WIRE_AUTOMATIC, WIRE_BY_PEER, WIRE_BY_NCCL };

/* Opens the wire, or counts one more user. The first call in the process decides the way. Negative:
 * *why_out says why there is none. */
int wire_open(enum wire_way way, const char **why_out);
void wire_close(void);

/* After wire_open. */
uint32_t wire_devices(void);
/* Whether kernels access the memory of peers. */
bool wire_is_peer(void);

/* Memory of the device in use that all devices reach. DEVICE_NO_MEMORY. */
int wire_memory_new(void **memory_out, uint64_t bytes);
void wire_memory_free(void *memory);

/* Makes the stream wait for the event. */
int wire_wait_event(void *stream, void *event);

/* Every device d sends counts[d][e] bytes to every device e. Those for device 0 lie first at
 * from[d], then those for device 1, ... What e gets lies at to[e] in the order of the senders. Both
 * have room for the counts[d][d] bytes that stay on d; these are not moved. */
struct wire_lane {
    uint8_t *from[WIRE_MAX], *to[WIRE_MAX];
    uint64_t counts[WIRE_MAX][WIRE_MAX];
};
/* Enqueues several lanes at once, on the devices' streams. Not by peer access. Outbound lanes do
 * not wait for inbound ones: each direction has connections of its own. */
enum wire_bound { WIRE_OUT, WIRE_HOME, WIRE_BOUNDS };
int wire_all_to_all(enum wire_bound bound, void *const streams[], const struct wire_lane lanes[],
                    uint32_t n_lanes);

/* Nanoseconds that this way takes to move that many bytes from every device to every other, and as
 * many within each; UINT64_MAX: the way does not work. The wire is open or being opened. */
#define WIRE_MEASURED_BYTES ((uint64_t)64 << 20)
uint64_t wire_measure(enum wire_way way);

/* 0, or WIRE_LOST: sent bytes will not arrive. Never waits. */
int wire_check(void);
/* Aborts the wire, which ends all waits for a lost device. Never waits. */
void wire_abort(void);
const char *wire_why(void);

/* Milliseconds of a monotonic clock, for deadlines. */
uint64_t wire_now_ms(void);

#endif
