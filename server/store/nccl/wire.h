/* wire.h - the devices of the process, and how bytes go from one to another. Two ways, the same to
 * their caller: by peer access, where a kernel of one device loads and stores what lies in the
 * memory of another, and by NCCL, where every device sends what lies ready in its own. One file
 * implements this with CUDA and NCCL; tests have one that moves bytes by memcpy.
 *
 * Numbers returned are as in device.h, or WIRE_LOST. The wire is the shard's thread's: one thread
 * at a time may have it open, as often as it likes. */
#ifndef EMBD_NCCL_WIRE_H
#define EMBD_NCCL_WIRE_H

#include <stdbool.h>
#include <stdint.h>

#define WIRE_MAX  16u  /* devices */
#define WIRE_LOST (-2) /* a device does not answer; wire_why says more */

/* WIRE_AUTOMATIC: which one is measured where there are both. */
enum wire_way { WIRE_AUTOMATIC, WIRE_BY_PEER, WIRE_BY_NCCL };

/* Opens it if nobody has; the first one in the process decides the way. Negative: *why_out says why
 * there is none. */
int wire_open(enum wire_way way, const char **why_out);
void wire_close(void);

/* After wire_open. */
uint32_t wire_devices(void);
/* Peers' memory may be loaded and stored by kernels, and that is the way to be taken. */
bool wire_is_peer(void);

/* Device memory that all devices reach; of the device in use. DEVICE_NO_MEMORY. */
int wire_memory_new(void **memory_out, uint64_t bytes);
void wire_memory_free(void *memory);

/* What is enqueued on `stream` from now on waits for the event. */
int wire_wait_event(void *stream, void *event);

/* Every device d sends counts[d][e] bytes to every device e: those for device 0 lie first at
 * from[d], then those for device 1, ...; what e gets lies at to[e] in the order of the senders.
 * What is d's own, counts[d][d], has its room in both and is not moved. */
struct wire_lane {
    uint8_t *from[WIRE_MAX], *to[WIRE_MAX];
    uint64_t counts[WIRE_MAX][WIRE_MAX];
};
/* Several of these at once, enqueued on the devices' streams. Not by peer access. What goes out
 * does not wait for what comes home: each has connections of its own. */
enum wire_bound { WIRE_OUT, WIRE_HOME, WIRE_BOUNDS };
int wire_all_to_all(enum wire_bound bound, void *const streams[], const struct wire_lane lanes[],
                    uint32_t n_lanes);

/* Nanoseconds that this way takes to move that many bytes from every device to every other, and as
 * many within each; UINT64_MAX: it does not work. The wire is open, or about to be. */
#define WIRE_MEASURED_BYTES ((uint64_t)64 << 20)
uint64_t wire_measure(enum wire_way way);

/* 0, or WIRE_LOST: what was sent will not arrive. Never waits. */
int wire_check(void);
/* Gives the wire up, so that what waits for a lost device ends. Never waits. */
void wire_abort(void);
const char *wire_why(void);

/* Milliseconds of a clock that only goes forward, for deadlines. */
uint64_t wire_now_ms(void);

#endif
