/* stand_in_device.c - device.h without a device: memory is the host's, and whatever is enqueued has
 * happened when the call returns. Some of what the store sees is made worse than usual: memory
 * counts as pinned, the device's or neither by its address, events are pending the first time they
 * are asked (EMBD_STAND_IN_POLLS=N: N times), and memory runs out where a test says so.
 *
 * EMBD_STAND_IN_STEPS=FILE: the pieces of a pull that has several are made as the file says, one
 * for each `.` in it; at a `!` the device fails. All memory then counts as neither pinned nor the
 * device's, so that bytes come to the caller's memory when they are made, and not before. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/store/cuda/device.h"
#include "tests/cuda/stand_in_device.h"

uint64_t stand_in_calls_left = UINT64_MAX;
uint64_t stand_in_block_max = UINT64_MAX;
uint64_t stand_in_bytes_max = UINT64_MAX;
bool stand_in_is_full;
_Atomic uint64_t stand_in_bytes; /* shards of one process are threads */
int stand_in_failure;
bool stand_in_is_stuck;
uint64_t stand_in_queries_left = UINT64_MAX;
uint32_t stand_in_unimports;
uint64_t stand_in_reach = UINT64_MAX;

static bool memory_fails(void)
{
    if (stand_in_calls_left == UINT64_MAX)
        return false;
    if (stand_in_calls_left == 0)
        return true;
    stand_in_calls_left--;
    return false;
}

const char *device_text(int status)
{
    return status == DEVICE_NO_MEMORY ? "out of device memory" : "the stand-in was told to fail";
}

int device_count(const char **why_out)
{
    *why_out = NULL;
    return 1;
}

int device_of_thread(void)
{
    return 0;
}

int device_use(int device)
{
    (void)device;
    return 0;
}

uint64_t device_memory(void)
{
    return (uint64_t)1 << 36;
}

uint64_t device_memory_free(void)
{
    return device_memory();
}

int device_stream_new(void **stream_out)
{
    *stream_out = malloc(1);
    return 0;
}

int device_urgent_stream_new(void **stream_out)
{
    return device_stream_new(stream_out);
}

void device_stream_free(void *stream)
{
    free(stream);
}

int device_stream_wait(void *stream)
{
    (void)stream;
    return stand_in_failure;
}

int device_event_new(void **event_out)
{
    *event_out = malloc(sizeof(int));
    return 0;
}

void device_event_free(void *event)
{
    free(event);
}

/* So calls of a server take some turns of its shard. */
static int polls_until_done(void)
{
    static int polls;
    const char *text = polls == 0 ? getenv("EMBD_STAND_IN_POLLS") : NULL;
    if (polls == 0)
        polls = text != NULL && atoi(text) > 0 ? atoi(text) : 1;
    return polls;
}

int device_event_record(void *event, void *stream)
{
    (void)stream;
    *(int *)event = polls_until_done();
    return stand_in_failure;
}

int device_event_query(void *event, int *error_out)
{
    *error_out = stand_in_failure;
    if (stand_in_queries_left == 0)
        return DEVICE_PENDING;
    stand_in_queries_left -= stand_in_queries_left != UINT64_MAX;
    return stand_in_is_stuck || --*(int *)event >= 0 ? DEVICE_PENDING : DEVICE_DONE;
}

struct device_flag {
    int polls_left;
    uint32_t left;    /* raises that were not reached */
    bool has_several; /* of them at once */
};

int device_flag_new(struct device_flag **flag_out)
{
    *flag_out = calloc(1, sizeof **flag_out);
    return 0;
}

void device_flag_free(struct device_flag *flag)
{
    free(flag);
}

/* Of the file that says when pieces are made; NULL: none does. */
static const char *steps_path(void)
{
    static const char *path;
    static bool is_known;
    if (!is_known)
        path = getenv("EMBD_STAND_IN_STEPS");
    is_known = true;
    return path;
}

/* Whether the next piece may be made. */
static bool takes_step(void)
{
    static off_t n_taken;
    char step = 0;
    int fd = open(steps_path(), O_RDONLY | O_CLOEXEC);
    bool is_there = fd >= 0 && pread(fd, &step, 1, n_taken) == 1;
    if (fd >= 0)
        close(fd);
    n_taken += is_there;
    if (step == '!')
        stand_in_failure = 700;
    return is_there;
}

int device_flag_raise(struct device_flag *flag, void *stream)
{
    flag->has_several = flag->left++ > 0;
    return flag->has_several ? stand_in_failure : device_event_record(&flag->polls_left, stream);
}

/* One raise is reached at a time. */
int device_flag_query(struct device_flag *flag, int *error_out)
{
    bool is_stepped = flag->has_several && steps_path() != NULL;
    if (flag->left > 0 && device_event_query(&flag->polls_left, error_out) == DEVICE_DONE &&
        (!is_stepped || takes_step())) {
        flag->left = stand_in_failure != 0 ? 0 : flag->left - 1;
        flag->polls_left = polls_until_done();
    }
    *error_out = stand_in_failure;
    return flag->left > 0 ? DEVICE_PENDING : DEVICE_DONE;
}

uint32_t device_flag_left(const struct device_flag *flag)
{
    return flag->left;
}

/* The size lies in front. Fresh memory is no zeros. */
int device_new(void **memory_out, uint64_t bytes, void *stream)
{
    (void)stream;
    *memory_out = NULL;
    if (memory_fails() || bytes > stand_in_block_max || bytes > stand_in_bytes_max - stand_in_bytes)
        return DEVICE_NO_MEMORY;
    uint64_t *block = aligned_alloc(256, (bytes + 511) / 256 * 256);
    block[0] = bytes;
    memset((uint8_t *)block + 256, 0xa5, bytes);
    stand_in_bytes += bytes;
    *memory_out = (uint8_t *)block + 256;
    return 0;
}

void device_free(void *memory, void *stream)
{
    (void)stream;
    if (memory == NULL)
        return;
    uint64_t *block = (uint64_t *)(void *)((uint8_t *)memory - 256);
    stand_in_bytes -= block[0];
    free(block);
}

int device_copy(void *to, const void *from, uint64_t bytes, void *stream)
{
    (void)stream;
    if (bytes)
        memcpy(to, from, bytes);
    return 0;
}

int device_copy_rows(void *to, uint64_t to_stride, const void *from, uint64_t from_stride,
                     uint64_t bytes, uint64_t n, void *stream)
{
    (void)stream;
    for (uint64_t i = 0; i < n; i++)
        memcpy((uint8_t *)to + i * to_stride, (const uint8_t *)from + i * from_stride, bytes);
    return 0;
}

int device_fill(void *memory, int byte, uint64_t bytes, void *stream)
{
    (void)stream;
    memset(memory, byte, bytes);
    return 0;
}

void *pinned_new(size_t bytes)
{
    return memory_fails() ? NULL : aligned_alloc(64, (bytes + 63) / 64 * 64);
}

void pinned_free(void *memory)
{
    free(memory);
}

/* ---- memory of other processes ----
 * A handle is the path of a file that both can map: "/proc/PID/fd/N". As with some versions of
 * CUDA, one that is open cannot be opened again. */

#define IMPORTS 64

static struct {
    void *memory;
    uint64_t bytes;
    uint8_t handle[DEVICE_HANDLE];
} imports[IMPORTS];

/* imports.c has a lock. */
static int keep_import(void *memory, uint64_t bytes, const uint8_t *handle)
{
    int at = -1;
    for (int i = 0; i < IMPORTS; i++) {
        if (imports[i].memory == NULL)
            at = i;
        else if (memcmp(imports[i].handle, handle, DEVICE_HANDLE) == 0)
            return 1;
    }
    if (at < 0)
        return DEVICE_NO_MEMORY;
    imports[at].memory = memory;
    imports[at].bytes = bytes;
    memcpy(imports[at].handle, handle, DEVICE_HANDLE);
    return 0;
}

int device_import(const uint8_t handle[DEVICE_HANDLE], void **memory_out, uint64_t *bytes_out)
{
    char path[DEVICE_HANDLE + 1] = {0};
    struct stat file = {0};
    memcpy(path, handle, DEVICE_HANDLE);
    int fd = strncmp(path, "/proc/", 6) == 0 ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return 1;
    *bytes_out = fstat(fd, &file) == 0 ? (uint64_t)file.st_size : 0;
    *memory_out = mmap(NULL, *bytes_out, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (*memory_out == MAP_FAILED)
        return 1;
    int status = keep_import(*memory_out, *bytes_out, handle);
    if (status != 0)
        munmap(*memory_out, *bytes_out);
    return status;
}

void device_unimport(void *memory)
{
    for (int i = 0; i < IMPORTS && memory != NULL; i++)
        if (imports[i].memory == memory) {
            munmap(memory, imports[i].bytes);
            imports[i].memory = NULL;
            stand_in_unimports++;
        }
}

bool device_takes_turns(const uint8_t uuid[DEVICE_UUID])
{
    return uuid[0] == 1;
}

int device_reach(void *memory, uint64_t bytes)
{
    (void)memory;
    return bytes > stand_in_reach ? DEVICE_TOO_SMALL : 0;
}

int device_fetch(void *to, const void *from, uint64_t bytes)
{
    memcpy(to, from, bytes);
    return stand_in_failure;
}

enum memory_kind memory_kind(const void *memory)
{
    if (steps_path() != NULL)
        return MEMORY_HOST;
    return (enum memory_kind)((uintptr_t)memory / 32 % 3);
}

/* ---- ranges ---- */

#define PAGE 65536u

int device_range_open(struct device_range *range, uint64_t most_bytes)
{
    uint64_t bytes = (most_bytes + PAGE) / PAGE * PAGE;
    void *base = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory_fails() || base == MAP_FAILED)
        return DEVICE_NO_MEMORY;
    memset(range, 0, sizeof *range);
    range->base = base;
    range->reserved = bytes;
    return 0;
}

void device_range_close(struct device_range *range)
{
    if (range->reserved)
        munmap(range->base, range->reserved);
    memset(range, 0, sizeof *range);
}

int device_range_grow(struct device_range *range, uint64_t bytes)
{
    if (bytes <= range->bytes)
        return 0;
    uint64_t whole = (bytes + PAGE - 1) / PAGE * PAGE;
    if (memory_fails() || stand_in_is_full || whole > range->reserved ||
        mprotect(range->base, whole, PROT_READ | PROT_WRITE) != 0)
        return DEVICE_NO_MEMORY;
    range->bytes = whole;
    return 0;
}
