/* device.h - the device as the C files of this folder see it: memory, streams, events. Functions
 * that return a number return 0, DEVICE_NO_MEMORY (nothing changed, other calls may go on) or
 * another CUDA error, after which nothing on the device can be trusted; device_text explains them.
 * device.c and import.c implement this with CUDA; tests of the kernels' logic have another.
 *
 * Calls are made with the store's device current (device_use). A stream runs its work in order. */
#ifndef EMBD_CUDA_DEVICE_H
#define EMBD_CUDA_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DEVICE_NO_MEMORY (-1)

const char *device_text(int status);

/* The number of devices. 0: *why_out has the reason. */
int device_count(const char **why_out);
/* The device of this thread's stores; threads take devices in turn. */
int device_of_thread(void);
int device_use(int device);
/* Bytes of memory of the device in use. */
uint64_t device_memory(void);
uint64_t device_memory_free(void);

int device_stream_new(void **stream_out);
/* A stream whose kernels run before waiting kernels of other streams. */
int device_urgent_stream_new(void **stream_out);
void device_stream_free(void *stream);
int device_stream_wait(void *stream);

/* Whether the work before the record is done; *error_out is not 0 if it failed. */
#define DEVICE_PENDING 1
#define DEVICE_DONE    0
int device_event_new(void **event_out);
void device_event_free(void *event);
int device_event_record(void *event, void *stream);
int device_event_query(void *event, int *error_out);

/* A cheaper event for frequent queries: a word of the host's memory that the device writes. A query
 * makes no driver call, which would take a lock shared by all threads. */
struct device_flag;
int device_flag_new(struct device_flag **flag_out);
void device_flag_free(struct device_flag *flag); /* NULL is allowed; no raise is under way */
int device_flag_raise(struct device_flag *flag, void *stream);
int device_flag_query(struct device_flag *flag, int *error_out);
/* A flag may be raised several times before it is queried, and is done with the last. How many of
 * these the stream has not come to: the earliest are counted off first. */
uint32_t device_flag_left(const struct device_flag *flag);

/* Device memory, valid from the stream's next operation until the free, in stream order. */
int device_new(void **memory_out, uint64_t bytes, void *stream);
void device_free(void *memory, void *stream);

int device_copy(void *to, const void *from, uint64_t bytes, void *stream);
/* Copies n rows of `bytes`. */
int device_copy_rows(void *to, uint64_t to_stride, const void *from, uint64_t from_stride,
                     uint64_t bytes, uint64_t n, void *stream);
int device_fill(void *memory, int byte, uint64_t bytes, void *stream);

/* Host memory that the device reads and writes at the same address. Any thread. NULL: out of
 * memory. */
void *pinned_new(size_t bytes);
void pinned_free(void *memory);

/* Memory of a device that another process has lent, by its handle (cudaIpcMemHandle_t), which may
 * be any bytes: where the device in use reaches it, and how many bytes it has. Any other status
 * than 0: it is of no memory that this device can reach; nothing has failed. Only imports.c calls
 * these, which opens a handle once. */
#define DEVICE_HANDLE    64u
#define DEVICE_UUID      16u
#define DEVICE_TOO_SMALL (-2)
int device_import(const uint8_t handle[DEVICE_HANDLE], void **memory_out, uint64_t *bytes_out);
void device_unimport(void *memory);
/* Whether that is the device in use, and it serves one process at a time. */
bool device_takes_turns(const uint8_t uuid[DEVICE_UUID]);
/* Memory of this process, of any device: makes the device in use reach it. The address may be
 * anything. DEVICE_TOO_SMALL: it has fewer bytes. Any other status as of device_import. */
int device_reach(void *memory, uint64_t bytes);
/* Copies device memory into the host's, and waits. */
int device_fetch(void *to, const void *from, uint64_t bytes);

/* The kind of memory at an address. */
enum memory_kind { MEMORY_HOST, MEMORY_PINNED, MEMORY_DEVICE };
enum memory_kind memory_kind(const void *memory);

/* An array of device memory that grows at its end and never moves. */
struct device_range {
    uint8_t *base;
    uint64_t reserved, bytes; /* addresses; memory behind them */
    struct device_piece *pieces;
    uint32_t n_pieces, pieces_capacity;
};
int device_range_open(struct device_range *range, uint64_t most_bytes);
void device_range_close(struct device_range *range);
/* Grows to at least `bytes` in all. DEVICE_NO_MEMORY: nothing changed. */
int device_range_grow(struct device_range *range, uint64_t bytes);

#endif
